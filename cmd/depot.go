// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	depotphase "yunion.io/x/ocadm/phases/depot"
)

func newDepot(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "depot", Short: "Serve images and programs to the nodes of the cluster",
		Long: "A control-plane node keeps the images and programs that nodes need in " + depot.DefaultDir + ". A static pod serves them to the\n" +
			"other nodes, so that they join without a bundle and pull images without internet access.",
		Example: "  # sizes, and the space that is left\n  ocadm depot status\n\n  # remove what no workload uses\n  ocadm depot prune",
	}, newDepotStatus(a), newDepotPrune(a), newDepotAdd(a), newDepotServe(a), newDepotRenew(a))
}

type depotServer struct {
	directory, listen, cert, key, clientCA, kubeconfig, node string
	upstream                                                 upstreamFlags
}

func (d *depotServer) flags(fs *pflag.FlagSet) {
	fs.StringVar(&d.directory, "directory", depot.DefaultDir, "directory of the depot")
	fs.StringVar(&d.listen, "listen", ":6444", "address to listen on")
	fs.StringVar(&d.cert, "tls-cert-file", depotphase.CertificateFile, "certificate of the server; a renewed one is used without a restart")
	fs.StringVar(&d.key, "tls-private-key-file", depotphase.CertificateFile, "key of that certificate")
	fs.StringVar(&d.clientCA, "client-ca-file", "/etc/kubernetes/pki/ca.crt", "authority of the certificates of nodes and of the server")
	fs.StringVar(&d.node, "node", "", "name of this node, to report the images of its pods to machines that join")
	fs.StringVar(&d.kubeconfig, "kubeconfig", "/etc/kubernetes/kubelet.conf", "kubeconfig of this node, to verify join tokens at the API server")
	d.upstream.flags(fs)
}

// readers are the groups whose client certificates grant read access: nodes and administrators.
var readers = []string{"system:nodes", "system:masters", "kubeadm:cluster-admins"}

func newDepotServe(_ *app) *cobra.Command {
	var d depotServer
	c := &cobra.Command{
		Use: "serve", Short: "Serve the depot of this node",
		Long: "Serves the depot over HTTPS until it is stopped. Clients present the certificate of a node or a join token. The depot verifies a token\n" +
			"at the API server; while the API server does not answer, it accepts a token that was valid in the last day. Everyone may read /ca.crt, the\n" +
			"certificate of the authority. With --copy, it also copies missing images from their registries when nodes request them.",
		Example: "  # as the static pod of init does\n  ocadm depot serve --copy\n\n  # on another port\n  ocadm depot serve --listen :7444",
		RunE:    func(c *cobra.Command, _ []string) error { return d.serve(c.Context()) },
	}
	d.flags(c.Flags())
	return c
}

func (d *depotServer) serve(ctx context.Context) error {
	store, err := depot.Open(d.directory, depotphase.Reserve)
	if err != nil {
		return err
	}
	clients, err := depot.Authorities(d.clientCA)
	if err != nil {
		return cannotServe(err)
	}
	authority, err := depot.AuthorityPEM(d.clientCA)
	if err != nil {
		return cannotServe(err)
	}
	certificate := depot.CertificateFiles(d.cert, d.key)
	if _, err := certificate(nil); err != nil {
		return cannotServe(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", d.kubeconfig)
	if err != nil {
		return cannotServe(fmt.Errorf("reading the kubeconfig: %w", err))
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", d.listen)
	if err != nil {
		return cannotServe(err)
	}
	k, err := kube.New(config)
	if err != nil {
		return cannotServe(err)
	}
	if d.node != "" {
		store.InUse = podImages(k, d.node)
	}
	follow, err := d.follow(k, config)
	if err != nil {
		return cannotServe(err)
	}
	var followers sync.WaitGroup
	defer followers.Wait()
	if d.upstream.copy {
		u := depot.NewUpstream(store, d.upstream.registries)
		followers.Go(func() { u.Run(ctx) })
	}
	followers.Go(func() { store.Follow(ctx, followEvery, follow) })
	access := &depot.Access{Tokens: depot.Reviewed(config), Groups: readers, Authority: authority}
	return depot.Listen(ctx, l, depot.ServerTLS(certificate, clients), depot.Handler(store, access))
}

// renewEvery is the interval for checking the certificate. It is renewed months before its expiry.
const renewEvery = time.Hour

func newDepotRenew(_ *app) *cobra.Command {
	i := depot.Issuer{CACert: "/etc/kubernetes/pki/ca.crt", CAKey: "/etc/kubernetes/pki/ca.key", File: depotphase.CertificateFile}
	c := &cobra.Command{
		Use: "renew NAME...", Short: "Keep the certificate of the depot valid",
		Long: "Issues a certificate for the depot, signed by the cluster's certificate authority, for these host names and addresses, and renews it\n" +
			"when two thirds of its lifetime have passed, until it is stopped. ocadm depot serve uses the new one without a restart. It runs in a\n" +
			"separate container, so that the server cannot read the key of the authority.",
		Example: "  # as the static pod of init does\n  ocadm depot renew node1 10.0.0.1 cloud.example.org\n\n" +
			"  # with an authority elsewhere on the disk\n  ocadm depot renew node1 --ca-file ca.crt --ca-key-file ca.key --file serving.pem",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			i.Names = names
			if _, err := i.Renew(time.Now()); err != nil {
				return cannotServe(err)
			}
			i.Keep(c.Context(), renewEvery)
			return nil
		},
	}
	c.Flags().StringVar(&i.CACert, "ca-file", i.CACert, "certificate of the authority")
	c.Flags().StringVar(&i.CAKey, "ca-key-file", i.CAKey, "key of the authority")
	c.Flags().StringVar(&i.File, "file", i.File, "file of the certificate and its key")
	return c
}

// followEvery is the interval for asking the depots of other control-plane nodes for new content.
const followEvery = 30 * time.Second

// follow finds the other depots, which accept the certificate of this node.
func (d *depotServer) follow(k client.Client, server *rest.Config) (func(context.Context) ([]*depot.Client, error), error) {
	_, port, err := net.SplitHostPort(d.listen)
	if err != nil {
		return nil, err
	}
	other := rest.CopyConfig(server)
	other.QPS = -1
	browser, err := rest.HTTPClientFor(other)
	if err != nil {
		return nil, err
	}
	return otherDepots(k, func(address string) *depot.Client {
		return depot.NewClient("https://"+address, "", fetch.Fetcher{Client: browser})
	}, port), nil
}

func cannotServe(err error) error {
	return finding.Errorf("OCA-2316", "The depot cannot be served", "run it on a control-plane node, or name the files and the address: ocadm depot serve --help", "%w", err)
}
