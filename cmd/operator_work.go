// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/reaper"
	"yunion.io/x/ocadm/internal/version"
	machinectl "yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// firstProcess is the PID of a container's first process.
const firstProcess = 1

// newOperatorWork returns the command of an operation's Job.
func newOperatorWork(a *app) *cobra.Command {
	var secrets, kubeconfig string
	namespace, pod := cmp.Or(os.Getenv("POD_NAMESPACE"), cluster.DefaultNamespace), os.Getenv("POD_NAME")
	c := &cobra.Command{
		Use: "work OPERATION", Short: "Run an operation on a machine", Hidden: true,
		Long: "Runs an operation on a machine to its end, as the pod of its Job. As the first process of a container it runs itself again, forwards signals\n" +
			"to that process, and reaps processes that lost their parent.",
		Example: "  POD_NAME=join-node2-x7k2p ocadm operator work join-node2\n  POD_NAME=join-node2-x7k2p ocadm operator work join-node2 --secrets /secrets",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if os.Getpid() == firstProcess {
				return runBelow()
			}
			if pod == "" {
				return errors.New("running an operation: POD_NAME is not set; only the pod of its Job does this")
			}
			cfg, err := operatorConfig(kubeconfig)
			if err != nil {
				return err
			}
			cfg.UserAgent = "ocadm-work/" + version.Version
			direct, err := kube.NewKnowing(cfg, []schema.GroupVersionKind{
				v1alpha1.GroupVersion.WithKind(v1alpha1.OperationKind), v1alpha1.GroupVersion.WithKind(v1alpha1.MachineKind),
				corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Pod"),
			}, []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Node")})
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(a.Err, nil))
			o := machinectl.Options{Client: direct, Direct: direct, SecretsDir: secrets, Read: &v1alpha1.OnecloudMachine{}, Log: log, Authority: machinectl.Authority(cfg)}
			if os.Geteuid() == 0 { // on a control-plane node, with its files
				o.Leave = leaveControlPlane
			}
			w := operation.Worker{Client: direct, Pod: pod, Log: log, Actions: machinectl.Actions(o)}
			return w.Work(c.Context(), client.ObjectKey{Namespace: namespace, Name: args[0]})
		},
	}
	c.Flags().StringVar(&secrets, "secrets", operation.SecretsDir, "directory with a directory for each Secret")
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty uses the service account of the pod, then $KUBECONFIG")
	return c
}

// runBelow runs this command as a child of this process, and returns its exit status as an error.
func runBelow() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	status, err := reaper.Run(append([]string{self}, os.Args[1:]...))
	if err == nil && status != 0 {
		err = &endedBelow{status}
	}
	return err
}

// endedBelow is the exit status of a child that has printed its error.
type endedBelow struct{ status int }

func (e *endedBelow) Error() string { return fmt.Sprintf("exit status %d", e.status) }
