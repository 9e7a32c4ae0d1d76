// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/operatorctl"
)

// operatorNamespace is where the operator's lease lies when neither flag nor environment says otherwise.
const operatorNamespace = "onecloud"

// allNamespaces stands for every namespace.
const allNamespaces = "*"

func newOperatorRunCommand() *cobra.Command {
	o := operatorctl.Options{}
	var kubeconfig, reach string
	var namespaces []string
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the operator until it is told to stop",
		Long: "Watches OnecloudCluster resources in the namespaces it is told and brings each cloud to what its spec says. It needs rights there and\n" +
			"nowhere else; a namespace without them is left out, and taken in once it has them.\n" +
			"In a pod it uses the pod's service account. Outside the cluster, name a kubeconfig, and where the services' ports can be reached.",
		Example: "  # In the cluster (the Deployment that ocadm init makes does this)\n  ocadm operator run --leader-elect\n\n" +
			"  # On a developer's machine, against a cluster whose node is 10.0.0.11\n" +
			"  ocadm operator run --kubeconfig ~/.kube/config --reach-services-at 10.0.0.11",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := operatorConfig(kubeconfig)
			if err != nil {
				return err
			}
			o.UserAgent = "ocadm-operator/" + version.Version
			o.Log = slog.Default()
			if o.Namespaces = namespaces; slices.Contains(namespaces, allNamespaces) {
				o.Namespaces = nil
			}
			if reach != "" {
				o.Dial = reachAt(reach)
			}
			return operatorctl.Run(c.Context(), cfg, o)
		},
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty uses the pod's service account, then $KUBECONFIG")
	f.StringVar(&o.Namespace, "namespace", envOr("POD_NAMESPACE", operatorNamespace), "namespace of the leader election lease")
	f.StringSliceVar(&namespaces, "namespaces", []string{envOr("POD_NAMESPACE", operatorNamespace)},
		"namespaces of the clouds; * for all, which takes rights in the whole cluster")
	f.BoolVar(&o.LeaderElection, "leader-elect", false, "take turns with other operators")
	f.StringVar(&o.MetricsAddress, "metrics-address", ":8080", "address of /metrics, 0 for none")
	f.StringVar(&o.HealthAddress, "health-address", ":8081", "address of /healthz and /readyz, 0 for none")
	f.StringVar(&o.ProfileAddress, "profile-address", "0", "address of Go's profiler, 0 for none; it tells everything in memory, keep it on loopback")
	f.DurationVar(&o.Audit, "audit-interval", operatorctl.DefaultAudit, "how often databases, accounts and endpoints are verified when nothing changed; negative for never")
	f.StringVar(&reach, "reach-services-at", "", "address of a node where the services' ports can be reached from outside the cluster")
	return c
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func operatorConfig(path string) (*rest.Config, error) {
	if path == "" {
		if cfg, err := rest.InClusterConfig(); err == nil {
			return cfg, nil
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return cfg, nil
}

// reachAt dials the cluster's own names at a node instead: the ports of the services are the same there.
func reachAt(node string) func(ctx context.Context, network, address string) (net.Conn, error) {
	const timeout = 10 * time.Second
	d := &net.Dialer{Timeout: timeout}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(host, ".svc") {
			host = node
		}
		return d.DialContext(ctx, network, net.JoinHostPort(host, port))
	}
}
