// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/probe"
)

// newMachineProbe returns the command that tests connections; it runs on each of the machines.
func newMachineProbe(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "probe", Short: "Test the network to other machines", Hidden: true,
		Long:    "Listens, sends to other machines and reports what arrives, as requested in lines of JSON on standard input. It ends when the input ends.",
		Example: "  ocadm machine probe <dialogue\n  echo '{\"run\":\"1\",\"name\":\"a\",\"tcp\":[10250]}' | ocadm machine probe",
		Args:    arguments(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return probe.Run(c.Context(), a.In, a.Out) },
	}
}
