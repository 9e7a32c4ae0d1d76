// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"yunion.io/x/ocadm/internal/finding"
)

type killKey struct{}

// Signals returns a context that ends with the first SIGINT or SIGTERM. A run then starts no more phases and waits for the running ones. The second
// signal ends these and their programs. The third calls exit. SIGHUP only counts as the first: a terminal that closes may send it several times. nohup
// ignores it, and it stays ignored.
func Signals(parent context.Context, exit func(status int)) (ctx context.Context, release func()) {
	stop, stopped := context.WithCancelCause(parent)
	kill, killed := context.WithCancelCause(parent)
	signals, hangUp := make(chan os.Signal, 3), make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hangUp, syscall.SIGHUP)
	}
	go func() {
		select {
		case s := <-signals:
			stopped(Interrupted(s))
		case s := <-hangUp:
			stopped(Interrupted(s))
		}
		killed(Interrupted(<-signals))
		<-signals
		exit(finding.ExitInterrupted)
	}()
	return context.WithValue(stop, killKey{}, kill), func() { stopped(nil); killed(nil) }
}

// Killed returns the context that ends with the second signal; without Signals it is ctx itself.
func Killed(ctx context.Context) context.Context {
	if kill, ok := ctx.Value(killKey{}).(context.Context); ok {
		return kill
	}
	return ctx
}

// outliveReaders lets a run continue when what reads its output has ended, such as "tee" after Ctrl-C, or ssh after its connection broke. By default, the
// next line would end this process in the middle of a phase. The log of the run has every line.
func outliveReaders() (undo func()) {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGPIPE)
	return func() { signal.Stop(ignored) }
}
