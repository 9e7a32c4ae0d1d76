// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/doctor"
)

// examined is the output of "node doctor -o json".
type examined struct {
	Node     string       `json:"node"`
	Healthy  bool         `json:"healthy"`
	Findings finding.List `json:"findings"`
}

func newNodeDoctor(a *app) *cobra.Command {
	var kubeconfig, rootfs string
	var output *ui.Choice
	c := &cobra.Command{
		Use: "doctor [NODE]", Short: "Diagnose a compute node",
		Long: "Without NODE, examines this machine, as root: the executor (unit, socket, a test command), kubelet and containerd, programs,\n" +
			"kernel modules, directories, host.conf, disks, the clock, and the logs of the agent containers. It needs no access to the cluster.\n\n" +
			"With NODE, looks up in the cluster which agents run on that node, and examines their events and logs.\n\n" +
			"Every known log line becomes a finding with its cause and the next command. Messages that the host agent logged before its last\n" +
			"successful registration are ignored. Doctor changes nothing. It fails if it finds an error, but not for warnings.",
		Example: "  # on the compute node\n  ocadm node doctor\n\n  # from a control-plane node\n  ocadm node doctor node2\n\n" +
			"  # for a script\n  ocadm node doctor node2 -o json | jq -r '.findings[].code'",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				e, err := examineHere(c.Context(), rootfs)
				return a.printExamined(output, e, err)
			}
			return withKube(c.Context(), kubeconfig, func(ctx context.Context, k client.WithWatch) error {
				e, err := examineNode(ctx, k, kubeconfig, args[0])
				return a.printExamined(output, e, err)
			})
		},
	}
	addKubeconfig(c.Flags(), &kubeconfig)
	c.Flags().StringVar(&rootfs, "rootfs", "", "directory to use as the root of the machine")
	hide(c.Flags(), "rootfs")
	output = addOutput(c, "text")
	a.readsSettings(c, map[string]string{"kubeconfig": "cluster.kubeconfig"})
	return c
}

func examineHere(ctx context.Context, rootfs string) (examined, error) {
	h, err := thisMachine(ctx, rootfs)
	if err != nil {
		return examined{}, err
	}
	return examined{Node: h.Facts.Hostname, Findings: doctor.Gather(ctx, h)}, nil
}

func examineNode(ctx context.Context, k client.Client, kubeconfig, node string) (examined, error) {
	agents, err := cluster.GatherAgents(ctx, k, node)
	if err != nil {
		return examined{}, err
	}
	read, err := logReader(kubeconfig)
	if err != nil {
		return examined{}, err
	}
	logs, err := agents.Logs(ctx, read)
	if err != nil {
		return examined{}, err
	}
	return examined{Node: node, Findings: agents.Explain(logs)}, nil
}

// logReader reads container logs, which the controller-runtime client cannot.
func logReader(kubeconfig string) (cluster.ReadLog, error) {
	cfg, err := kube.Load(kubeconfig, os.Getenv)
	if err != nil {
		return nil, err
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for logs: %w", err)
	}
	return readLogs(c), nil
}

func readLogs(c kubernetes.Interface) cluster.ReadLog {
	return func(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) ([]byte, error) {
		return c.CoreV1().Pods(namespace).GetLogs(pod, o).DoRaw(ctx)
	}
}

func (a *app) printExamined(output *ui.Choice, e examined, err error) error {
	if err != nil {
		return err
	}
	if e.Findings == nil {
		e.Findings = finding.List{}
	}
	e.Healthy = e.Findings.Err() == nil
	return a.printFindings(output, e, e.Findings, "No problems found on "+e.Node+".")
}

// printFindings prints v, which contains the findings. As text it prints only these, and well if none is an error.
func (a *app) printFindings(output *ui.Choice, v any, found finding.List, well string) error {
	failed := found.Err()
	err := a.print(output, v, func(p *page) {
		ui.Findings(a.redact.Writer(p), program, found)
		if failed == nil {
			p.line("%s", well)
		}
	})
	if err == nil && failed != nil {
		return &shownError{failed}
	}
	return err
}
