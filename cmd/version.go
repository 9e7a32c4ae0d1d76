// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/version"
)

type versions struct {
	Version    string `json:"version"`
	Kubernetes string `json:"kubernetes"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

func newVersion(a *app) *cobra.Command {
	output := ui.NewFormat("text", "json", "yaml", "short")
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Long: "Prints the version of ocadm and of the Kubernetes that it installs.",
		Example: "  ocadm version\n  ocadm version -o json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := versions{Version: version.Version, Kubernetes: version.Kubernetes, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			return ui.Print(a.Out, output.String(), v, func(w io.Writer) error {
				line := v.Version
				if output.String() == "text" {
					line = fmt.Sprintf("ocadm %s, Kubernetes %s, %s, %s", v.Version, v.Kubernetes, v.Platform, v.Go)
				}
				_, err := fmt.Fprintln(w, line)
				return err
			})
		},
	}
	c.Flags().VarP(output, "output", "o", "output format")
	return c
}

func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print a shell completion script", Long: "Prints the script that completes the commands, flags and values of ocadm in a shell.",
		Example:   "  source <(ocadm completion bash)\n  ocadm completion zsh > \"${fpath[1]}/_ocadm\"",
		ValidArgs: shells,
		Args:      arguments(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(c *cobra.Command, args []string) error {
			switch args[0] {
			case "zsh":
				return c.Root().GenZshCompletion(c.OutOrStdout())
			case "fish":
				return c.Root().GenFishCompletion(c.OutOrStdout(), true)
			}
			return c.Root().GenBashCompletionV2(c.OutOrStdout(), true)
		},
	}
}
