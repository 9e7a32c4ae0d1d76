// SPDX-License-Identifier: Apache-2.0

// Command apiserver ("make apiserver") starts a real etcd and kube-apiserver on loopback for development, prints the path of a kubeconfig on standard
// output, and stops them on Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"yunion.io/x/ocadm/test/integration/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	c, err := harness.Start(ctx, harness.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	fmt.Println(c.Kubeconfig)
	fmt.Fprintf(os.Stderr, "%s is up; audit log and logs in %s; Ctrl-C ends it\n", c.URL, c.Dir)
	<-ctx.Done()
	return nil
}
