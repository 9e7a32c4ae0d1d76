// SPDX-License-Identifier: Apache-2.0

// Command apiserver ("make apiserver") starts a real etcd and kube-apiserver on loopback for development, prints the path of a kubeconfig on standard
// output, and stops them on Ctrl-C. With -controller-manager and -kubelet it also plays the rest of a cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"yunion.io/x/ocadm/test/integration/harness"
)

func main() {
	manager := flag.Bool("controller-manager", false, "start a real kube-controller-manager")
	kubelet := flag.Bool("kubelet", false, "call workloads available at once; no pod runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *manager, *kubelet); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, manager, kubelet bool) (err error) {
	c, err := harness.Start(ctx, harness.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	kinds := harness.Workloads
	if manager {
		kinds = []string{"Pod"}
		if err := c.StartControllerManager(ctx); err != nil {
			return err
		}
	}
	if kubelet {
		labels := map[string]string{"onecloud.yunion.io/controller": "enable", "onecloud.yunion.io/host": "enable"}
		k, err := c.StartKubelet(ctx, kinds, harness.Node{Name: "node1", Labels: labels})
		if err != nil {
			return err
		}
		defer func() { _ = k.Stop() }()
	}
	fmt.Println(c.Kubeconfig)
	fmt.Fprintf(os.Stderr, "%s is up; audit log and logs in %s; Ctrl-C ends it\n", c.URL, c.Dir)
	<-ctx.Done()
	return nil
}
