// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
)

// podFlags choose a pod of a component and a container in it.
type podFlags struct {
	cloudFlags
	container, node string
}

func (f *podFlags) add(c *cobra.Command) {
	addKubeconfig(c.Flags(), &f.kubeconfig)
	c.Flags().StringVar(&f.name, "name", "default", "name of the cloud")
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "onecloud", "namespace of the cloud")
	c.Flags().StringVarP(&f.container, "container", "c", "", "container (default: the component's own)")
	c.Flags().StringVar(&f.node, "node", "", "take the pod on this node")
}

// pod finds the pod, and the container's name.
func (f *podFlags) pod(c *cobra.Command, name string) (pod *corev1.Pod, container string, err error) {
	ref, _, err := componentRef(&f.cloudFlags, name)
	if err != nil {
		return nil, "", err
	}
	err = f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
		pod, err = ref.Pod(ctx, k, f.node)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if f.container != "" {
		return pod, f.container, nil
	}
	return pod, pod.Spec.Containers[0].Name, nil
}

// kubectl runs kubectl with our streams and its exit status; it speaks the protocols of logs, exec and debug.
func (a *app) kubectl(ctx context.Context, f *podFlags, args ...string) error {
	program, err := exec.LookPath("kubectl")
	if err != nil {
		return finding.Finding{
			Code: "OCA-4207", Severity: finding.Error, What: "kubectl was not found", Cause: err.Error(),
			Remedy: "run on a control-plane node, where init has installed it, or install kubectl", Err: err,
		}
	}
	file, err := kube.Kubeconfig(f.kubeconfig, os.Getenv)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, program, append([]string{"-n", f.namespace}, args...)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+file)
	c.Stdin, c.Stdout, c.Stderr = a.In, a.Out, a.Err
	err = c.Run()
	var status *exec.ExitError
	if errors.As(err, &status) && ctx.Err() == nil {
		return finding.Finding{
			Code: "OCA-7016", Severity: finding.Error, What: "kubectl " + args[0] + " ended with an error",
			Cause: fmt.Sprintf("exit status %d", status.ExitCode()), Remedy: "see its message above", Err: err,
		}
	}
	return err
}

func newComponentLogs(a *app) *cobra.Command {
	var f podFlags
	var follow, previous, everywhere bool
	var tail int
	c := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the log of a component",
		Long:  "Prints the log of a pod of the component. With --all-pods every line begins with the name of its pod.",
		Example: "  ocadm component logs region --follow\n  ocadm component logs host --node node2 --tail 100\n" +
			"  ocadm component logs region --previous          # of the container that crashed",
		Args: arguments(cobra.ExactArgs(1)), ValidArgsFunction: componentNames,
		RunE: func(c *cobra.Command, args []string) error {
			pod, container, err := f.pod(c, args[0])
			if err != nil {
				return err
			}
			argv := []string{"logs", "pod/" + pod.Name, "-c", container}
			if everywhere {
				argv = []string{"logs", "-l", "app.kubernetes.io/component=" + args[0], "--prefix", "-c", container, "--max-log-requests=50"}
			}
			for flag, on := range map[string]bool{"--follow": follow, "--previous": previous} {
				if on {
					argv = append(argv, flag)
				}
			}
			return a.kubectl(c.Context(), &f, append(argv, fmt.Sprintf("--tail=%d", tail))...)
		},
	}
	f.add(c)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing new lines")
	c.Flags().BoolVarP(&previous, "previous", "p", false, "of the container's run before the present one")
	c.Flags().BoolVar(&everywhere, "all-pods", false, "of every pod of the component")
	c.Flags().IntVar(&tail, "tail", -1, "print only that many of the last lines; -1 is all")
	return c
}

func newComponentExec(a *app) *cobra.Command {
	var f podFlags
	var terminal bool
	c := &cobra.Command{
		Use:     "exec NAME -- COMMAND [ARGUMENT...]",
		Short:   "Run a command in a pod of a component",
		Long:    "Runs a command in the component's container, a ready pod's if there is one, with standard input passed on.",
		Example: "  ocadm component exec climc -- climc server-list\n  ocadm component exec region -it -- sh",
		Args:    arguments(cobra.MinimumNArgs(2)), ValidArgsFunction: componentNames,
		RunE: func(c *cobra.Command, args []string) error {
			pod, container, err := f.pod(c, args[0])
			if err != nil {
				return err
			}
			argv := []string{"exec", pod.Name, "-c", container, "-i"}
			if terminal {
				argv = append(argv, "-t")
			}
			return a.kubectl(c.Context(), &f, append(append(argv, "--"), args[1:]...)...)
		},
	}
	f.add(c)
	c.Flags().BoolP("stdin", "i", true, "pass standard input on")
	c.Flags().BoolVarP(&terminal, "tty", "t", false, "with a terminal")
	return c
}

func newComponentDebug(a *app) *cobra.Command {
	var f podFlags
	var image string
	c := &cobra.Command{
		Use:   "debug NAME",
		Short: "Open a shell beside a component's process, with tools its image may lack",
		Long: "Adds an ephemeral container to a pod of the component. It shares the process and network namespaces of the component's container.\n" +
			"The pod is not restarted. The container ends with the shell and goes away with the pod.",
		Example: "  ocadm component debug keystone\n  ocadm component debug region --image 192.168.0.1:5000/tools/netshoot:v0.13",
		Args:    arguments(cobra.ExactArgs(1)), ValidArgsFunction: componentNames,
		RunE: func(c *cobra.Command, args []string) error {
			pod, container, err := f.pod(c, args[0])
			if err != nil {
				return err
			}
			if image == "" {
				if image, err = toolImage(pod); err != nil {
					return err
				}
			}
			return a.kubectl(c.Context(), &f, "debug", "-it", "pod/"+pod.Name, "--target="+container, "--image="+image, "--profile=general", "--", "sh")
		},
	}
	f.add(c)
	c.Flags().StringVar(&image, "image", "", "image of the tools (default: busybox, from the registry of the component's own image if that is private)")
	return c
}

// toolImage is busybox from where the node can pull: a private registry holds every image under its last element.
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
