// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// pieceBytes is the largest piece of output in one message.
const pieceBytes = 4096

// piece is one message of a stream of output.
type piece struct {
	start   bool
	data    []byte
	closed  bool
	failure []byte
}

// output is the read end of a program's standard output or standard error. It stays open until every writer has closed its end: otherwise the next
// write would kill a daemon that inherited it.
type output struct {
	r     *os.File
	taken atomic.Bool
	// done is closed once the stream that took the output has finished.
	done chan struct{}
}

func newOutput(r *os.File) *output { return &output{r: r, done: make(chan struct{})} }

// take reports whether the caller is the first, and thus the reader.
func (o *output) take() bool { return o.taken.CompareAndSwap(false, true) }

var always = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// finished returns a channel that is closed once there is nothing left to read, immediately if there is no pipe.
func (o *output) finished() <-chan struct{} {
	if o == nil {
		return always
	}
	return o.done
}

// copyTo sends the output until its end. If the receiver is gone, it reads and drops the rest.
func (o *output) copyTo(ctx context.Context, send func(piece) error) error {
	defer close(o.done)
	stop := context.AfterFunc(ctx, func() { _ = o.r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := send(piece{start: true}); err != nil {
		go o.drain()
		return err
	}
	buf := make([]byte, pieceBytes)
	for {
		n, err := o.r.Read(buf)
		if n > 0 {
			if err := send(piece{data: buf[:n]}); err != nil {
				go o.drain()
				return err
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			o.r.Close()
			return send(piece{closed: true})
		case errors.Is(err, os.ErrDeadlineExceeded):
			go o.drain()
			return ctx.Err()
		default:
			o.r.Close()
			return send(piece{failure: []byte(err.Error())})
		}
	}
}

// drain reads and discards the rest.
func (o *output) drain() {
	for {
		// A departed receiver may set its deadline as late as now.
		_ = o.r.SetReadDeadline(time.Time{})
		if _, err := io.Copy(io.Discard, o.r); !errors.Is(err, os.ErrDeadlineExceeded) {
			o.r.Close()
			return
		}
	}
}
