// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/cluster/restapi"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/phases/config"
)

// allNamespaces stands for every namespace.
const allNamespaces = "*"

func newOperatorRunCommand(a *app) *cobra.Command {
	defaults := config.Default().Operator
	o := operatorctl.Options{
		Audit: defaults.AuditInterval, Image: os.Getenv(cluster.OperatorImageVariable),
		Listen: operatorctl.Addresses{Metrics: defaults.MetricsAddress, Health: defaults.HealthAddress, Profile: defaults.ProfileAddress},
	}
	lease, elect := cmp.Or(os.Getenv("POD_NAMESPACE"), cluster.DefaultNamespace), false
	namespaces := []string{lease}
	var kubeconfig, reach string
	var serve restapi.Options
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the operator",
		Long: "Watches OnecloudCluster resources in the given namespaces and makes each cloud match its spec. The operator needs permissions only in these\n" +
			"namespaces. It skips a namespace without permissions until it gets them. In a pod it uses the service account.\n\n" +
			"Every flag is also a setting: it is read from an OCADM_* variable or the file of --config if it is not given.",
		Example: "  # in the cluster, as the Deployment of init does\n  ocadm operator run --leader-elect\n\n" +
			"  # on a developer's machine\n  ocadm operator run --kubeconfig ~/.kube/config --namespaces onecloud",
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := operatorConfig(kubeconfig)
			if err != nil {
				return err
			}
			operator := rest.CopyConfig(cfg) // the REST API in the same process has another name
			operator.UserAgent = "ocadm-operator/" + version.Version
			o.Log = slog.Default()
			if elect {
				o.Lease = lease
			}
			if o.Namespaces = namespaces; slices.Contains(namespaces, allNamespaces) {
				o.Namespaces = nil
			}
			if reach != "" {
				o.Dial = reachAt(reach)
			}
			serve.Config, serve.Log, serve.Metrics = cfg, o.Log, metrics.Registry
			restapi.CountOwnRequests()
			all, ctx := errgroup.WithContext(c.Context())
			all.Go(func() error { return restapi.Serve(ctx, serve) })
			all.Go(func() error { return operatorctl.Run(ctx, operator, o) })
			return all.Wait()
		},
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty uses the service account of the pod, then $KUBECONFIG")
	f.StringVar(&lease, "namespace", lease, "namespace of the leader election lease")
	keys := map[string]string{"kubeconfig": "cluster.kubeconfig", "namespace": "cloud.namespace"}
	for key, field := range map[string]any{
		"namespaces": &namespaces, "leaderElect": &elect, "metricsAddress": &o.Listen.Metrics, "healthAddress": &o.Listen.Health,
		"profileAddress": &o.Listen.Profile, "auditInterval": &o.Audit, "apiAddress": &serve.Address, "apiCertificate": &serve.Certificate, "apiKey": &serve.Key,
	} {
		s := config.Find("operator." + key)
		addFlag(f, s.Flag, s.Usage, field)
		keys[s.Flag] = s.Key
	}
	f.BoolVar(&o.Operations.AtOnce, "at-once", false, "let a changed spec.version move all components at once, without checks or rollback; for development")
	f.Bool("waves", true, "")
	hide(f, "waves") // a former flag
	f.DurationVar(&o.Operations.Settle, "settle", operation.DefaultSettle, "how long the components of a wave must serve before the next one moves")
	f.IntVar(&o.Operations.MachinesAtOnce, "machines-at-once", operation.DefaultMachinesAtOnce, "how many machines of a cloud are joined or removed at once")
	f.StringVar(&reach, "reach-services-at", "", "address of a node at which the ports of the services are reachable from outside the cluster")
	hide(f, "reach-services-at")
	a.readsSettings(c, keys)
	return c
}

func operatorConfig(path string) (*rest.Config, error) {
	if path == "" {
		if cfg, err := rest.InClusterConfig(); err == nil {
			return cfg, nil
		}
	}
	return kube.Load(path, os.Getenv)
}

// reachAt dials a node instead of Services: the node publishes the same ports.
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
