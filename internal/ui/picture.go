// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"
)

const (
	pictureInterval = time.Second

	defaultWidth, defaultHeight = 80, 24

	wrapOff, wrapOn = "\x1b[?7l", "\x1b[?7h"
)

// Picture keeps a few lines on a terminal up to date in place.
type Picture struct {
	w      io.Writer
	height func() int

	mu    sync.Mutex
	lines func(now time.Time) []string
	drawn int // number of lines on the screen

	end func()
}

// NewPicture draws on the terminal w until Close, every second so that times are current.
func NewPicture(w io.Writer) *Picture {
	p := &Picture{w: w, height: func() int { _, h := size(w); return h }}
	p.end = every(pictureInterval, func(now time.Time) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.draw(now, true)
	})
	return p
}

// every calls do at an interval until end is called, which waits for the last call.
func every(interval time.Duration, do func(now time.Time)) (end func()) {
	stop := make(chan struct{})
	var stopped sync.WaitGroup
	stopped.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				do(now)
			}
		}
	})
	return func() {
		close(stop)
		stopped.Wait()
	}
}

func size(w io.Writer) (width, height int) {
	if f, ok := w.(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return defaultWidth, defaultHeight
}

func (p *Picture) Show(lines func(now time.Time) []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = lines
	p.draw(time.Now(), true)
}

// Close draws the last picture in full and stops.
func (p *Picture) Close() {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draw(time.Now(), false)
}

// draw redraws the lines. It cuts off those that do not fit: they could not be replaced after scrolling away.
func (p *Picture) draw(now time.Time, cut bool) {
	if p.lines == nil {
		return
	}
	var b strings.Builder
	if b.WriteString("\r"); p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn)
	}
	b.WriteString("\x1b[J")
	lines := p.lines(now)
	if room := max(2, p.height()-1); cut {
		b.WriteString(wrapOff)
		if more := len(lines) - room + 1; more > 1 {
			lines = append(lines[:room-1:room-1], fmt.Sprintf("… and %d more lines", more))
		}
	}
	for _, line := range lines {
		b.WriteString(strings.Map(printable, line) + "\n")
	}
	if cut {
		b.WriteString(wrapOn)
	}
	p.drawn = len(lines)
	_, _ = io.WriteString(p.w, b.String()) // only the display fails
}

// printable replaces runes in quoted text that would move the cursor.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}
