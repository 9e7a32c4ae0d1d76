// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/cluster/restapi"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
)

// newUI serves the web page to the user of this machine.
func newUI(a *app) *cobra.Command {
	var f cloudFlags
	address := "127.0.0.1:0"
	c := &cobra.Command{
		Use: "ui", Short: "Serve the web page on this machine",
		Long: "Serves the web page at a loopback address until Ctrl-C, and prints the link. The link contains a token: anyone who has it can do what\n" +
			"the kubeconfig allows until this command ends. For a browser on another machine, forward the port: ssh -L 8444:127.0.0.1:8444 HOST.",
		Example: "  ocadm ui\n  ocadm ui --address 127.0.0.1:8444",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := loopback(address); err != nil {
				return err
			}
			file, err := f.file("serves the page with the permissions of a kubeconfig; the REST API serves the page itself")
			if err != nil {
				return err
			}
			cfg, err := kube.Config(file)
			if err != nil {
				return err
			}
			if err := f.withCloud(c, func(ctx context.Context, k client.WithWatch) error { // this reports an API server that does not answer
				_, err := cluster.Operations(ctx, k, f.namespace, f.name)
				return err
			}); err != nil {
				return err
			}
			return a.serveUI(c.Context(), cfg, address, f.namespace)
		},
	}
	f.add(a, c, nil)
	hide(c.Flags(), "name")
	c.Flags().StringVar(&address, "address", address, "loopback address and port; port 0 takes a free one")
	return c
}

func (a *app) serveUI(ctx context.Context, cfg *rest.Config, address, namespace string) error {
	o := restapi.Options{Config: cfg, Log: slog.Default(), Address: address}
	return restapi.ServeLocal(ctx, o, namespace, func(link string) {
		_, _ = fmt.Fprintln(a.Out, link) // a user who does not see it ends the command
		if ui.IsTerminal(a.Err) {
			_, _ = fmt.Fprintln(a.Err, "Open the link in a browser. Ctrl-C ends it.")
		}
	})
}

// loopback refuses an address that other machines can reach: the page is served without TLS.
func loopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return misused("--address "+address+": "+err.Error(), "for example --address 127.0.0.1:8444")
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return misused("--address "+address+" is not a loopback address", "for example --address 127.0.0.1:8444; docs/api.md describes how others reach the page")
	}
	return nil
}
