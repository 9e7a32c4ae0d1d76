// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/cmd"
)

// newKubeadm returns kubeadm itself as a hidden command. Package kubernetes runs it as a child process. Arguments are passed on unchanged.
func newKubeadm(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "kubeadm", Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		Short:   "Run the linked kubeadm",
		Long:    "Runs the kubeadm that is linked into this program. Phases use it; you need it only for troubleshooting.",
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

// kubeadmError prints an error as kubeadm does, because the parent process reads it.
func kubeadmError(a *app, err error) error {
	if errors.Is(err, os.ErrClosed) {
		return err
	}
	fmt.Fprintf(a.Err, "error: %v\n", err)
	return &shownError{err}
}
