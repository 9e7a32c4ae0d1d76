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
// signal ends these and their programs. The third calls exit.
func Signals(parent context.Context, exit func(status int)) (ctx context.Context, release func()) {
	stop, stopped := context.WithCancelCause(parent)
	kill, killed := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		stopped(Interrupted(<-signals))
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
