// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/cmd"
)

// newKubeadm is kubeadm itself, whole and hidden: what the phases of package kubernetes run as a child, and what an expert may want.
// It gets every argument as it is.
func newKubeadm(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "kubeadm", Hidden: true, DisableFlagParsing: true,
		Short:   "Run the linked kubeadm",
		Long:    "Runs the kubeadm that this program links. Phases run it; people need it only to look deeper.",
		Example: "  ocadm kubeadm certs check-expiration\n  ocadm kubeadm config images list",
		RunE: func(c *cobra.Command, args []string) error {
			k := kubeadm.NewKubeadmCommand(a.In, a.Out, a.Err)
			k.SetArgs(args)
			k.SilenceErrors, k.SilenceUsage = true, true
			k.SetIn(a.In)
			k.SetOut(a.Out)
			k.SetErr(a.Err)
			if err := k.ExecuteContext(c.Context()); err != nil {
				return kubeadmError(a, err)
			}
			return nil
		},
	}
}

// kubeadmError shows an error as kubeadm does: its parent reads that, and kubeadm's own errors are many lines.
func kubeadmError(a *app, err error) error {
	if errors.Is(err, os.ErrClosed) {
		return err
	}
	fmt.Fprintf(a.Err, "error: %v\n", err)
	return &toldError{err}
}
