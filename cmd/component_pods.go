// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
)

type podFlags struct {
	cloudFlags
	container, node string
}

// newPodCommand makes a command that runs kubectl on a pod of a component. argv returns the arguments of kubectl for the pod, the container and the
// arguments after the name of the component.
func newPodCommand(a *app, c *cobra.Command, argv func(pod *corev1.Pod, container string, args []string) ([]string, error)) *cobra.Command {
	f := &podFlags{}
	f.add(a, c, nil)
	c.Flags().StringVarP(&f.container, "container", "c", "", "container (default: the main container of the component)")
	c.Flags().StringVar(&f.node, "node", "", "use the pod on this node")
	c.ValidArgsFunction = componentNames
	c.RunE = func(c *cobra.Command, args []string) error {
		pod, err := f.pod(c, args[0])
		if err != nil {
			return err
		}
		line, err := argv(pod, cmp.Or(f.container, pod.Spec.Containers[0].Name), args)
		if err != nil {
			return err
		}
		return a.kubectl(c.Context(), f, line...)
	}
	return c
}

func (f *podFlags) pod(c *cobra.Command, name string) (pod *corev1.Pod, err error) {
	ref, err := componentRef(&f.cloudFlags, name)
	if err != nil {
		return nil, err
	}
	err = f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
		previous, _ := c.Flags().GetBool("previous") // only logs has it
		pod, err = ref.Pod(ctx, k, f.node, previous)
		return err
	})
	return pod, err
}

// kubectl runs kubectl with the streams of this program. It implements the protocols of logs, exec and debug.
func (a *app) kubectl(ctx context.Context, f *podFlags, args ...string) error {
	program, err := exec.LookPath("kubectl")
	if err != nil {
		return finding.Errorf("OCA-4207", "kubectl not found", "run the command on a control-plane node, or install kubectl", "%w", err)
	}
	file, err := kube.Kubeconfig(f.kubeconfig, os.Getenv)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, program, append([]string{"-n", f.namespace}, args...)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+file)
	c.Stdin, c.Stdout, c.Stderr = a.In, a.Out, a.Err
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // it then restores the terminal
	c.WaitDelay = kubectlGrace
	err = c.Run()
	status, is := errors.AsType[*exec.ExitError](err)
	if !is || ctx.Err() != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	switch how, _ := status.Sys().(syscall.WaitStatus); how.Signal() {
	case syscall.SIGPIPE: // as for other programs: the reader of the output has ended
		return nil
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP: // Ctrl-C reaches it, too
		return Interrupted(how.Signal())
	default:
		return finding.New("OCA-7016", "kubectl "+args[0]+" ended with an error", fmt.Sprintf("exit status %d", status.ExitCode()),
			"read its message above").Wrap(err)
	}
}

const kubectlGrace = 5 * time.Second

func newComponentLogs(a *app) *cobra.Command {
	var follow, previous, everywhere bool
	var tail int
	c := newPodCommand(a, &cobra.Command{
		Use:   "logs COMPONENT",
		Short: "Print the log of a component",
		Long:  "Prints the log of one pod of the component. With --all-pods, each line starts with the name of its pod.",
		Example: "  ocadm component logs region --follow\n  ocadm component logs host --node node2 --tail 100\n" +
			"  ocadm component logs region --previous          # of the container that crashed",
		Args: cobra.ExactArgs(1),
	}, func(pod *corev1.Pod, container string, _ []string) ([]string, error) {
		argv := []string{"logs", "pod/" + pod.Name, "-c", container}
		if everywhere {
			alike := labels.SelectorFromSet(labels.Set{ // the namespace may have another cloud
				v1alpha1.LabelComponent: pod.Labels[v1alpha1.LabelComponent], v1alpha1.LabelInstance: pod.Labels[v1alpha1.LabelInstance],
			})
			argv = []string{"logs", "-l", alike.String(), "--prefix", "-c", container, "--max-log-requests=1000"} // a host agent runs on each node
		}
		return append(argv, fmt.Sprintf("--follow=%t", follow), fmt.Sprintf("--previous=%t", previous), fmt.Sprintf("--tail=%d", tail)), nil
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing new lines")
	c.Flags().BoolVarP(&previous, "previous", "p", false, "print the log of the container before its last restart")
	c.Flags().BoolVar(&everywhere, "all-pods", false, "print the logs of all pods of the component")
	c.MarkFlagsMutuallyExclusive("all-pods", "node")
	c.Flags().IntVar(&tail, "tail", -1, "number of lines from the end to print; -1 prints all")
	return c
}

func newComponentExec(a *app) *cobra.Command {
	var terminal bool
	c := newPodCommand(a, &cobra.Command{
		Use:     "exec COMPONENT [flags] -- COMMAND [ARGUMENT...]",
		Short:   "Run a command in a pod of a component",
		Long:    "Runs a command in the main container of the component, in a ready pod if possible. Standard input is forwarded.",
		Example: "  ocadm component exec climc -- climc server-list\n  ocadm component exec region -it -- sh",
		Args:    cobra.MinimumNArgs(2),
	}, func(pod *corev1.Pod, container string, args []string) ([]string, error) {
		return append([]string{"exec", pod.Name, "-c", container, "-i", fmt.Sprintf("--tty=%t", terminal), "--"}, args[1:]...), nil
	})
	c.Flags().BoolP("stdin", "i", true, "forward standard input")
	c.Flags().BoolVarP(&terminal, "tty", "t", false, "allocate a terminal")
	return c
}

func newComponentDebug(a *app) *cobra.Command {
	var image string
	c := newPodCommand(a, &cobra.Command{
		Use:   "debug COMPONENT",
		Short: "Open a shell with debugging tools next to a component",
		Long: "Adds an ephemeral container to a pod of the component. It shares the process and network namespaces of the component's container.\n" +
			"The pod does not restart. The container ends with the shell and disappears with the pod.",
		Example: "  ocadm component debug keystone\n  ocadm component debug region --image 192.168.0.1:5000/tools/netshoot:v0.13",
		Args:    cobra.ExactArgs(1),
	}, func(pod *corev1.Pod, container string, _ []string) ([]string, error) {
		tools := image
		if tools == "" {
			var err error
			if tools, err = toolImage(pod); err != nil {
				return nil, err
			}
		}
		return []string{"debug", "-it", "pod/" + pod.Name, "--target=" + container, "--image=" + tools, "--profile=general", "--", "sh"}, nil
	})
	c.Flags().StringVar(&image, "image", "", "image with the tools (default: busybox, from the registry of the component if that is private)")
	return c
}

// toolImage returns busybox in a registry that the node can reach. A private registry holds every image under the last element of its name.
func toolImage(pod *corev1.Pod) (string, error) {
	table, err := images.Load()
	if err != nil {
		return "", err
	}
	repository := path.Dir(images.Split(pod.Spec.Containers[0].Image).Repository)
	if repository == images.DefaultRepository {
		repository = ""
	}
	return table.Ref("busybox", repository)
}
