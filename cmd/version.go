// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/version"
)

type versions struct {
	Version string `json:"version"`
	// Commit of the source. It ends in "-dirty" if the source had changes, and is empty if the build did not record it.
	Commit     string `json:"commit,omitempty"`
	Kubernetes string `json:"kubernetes"`
	// CloudReleases lists the OneCloud release lines that can be installed.
	CloudReleases []string `json:"cloudReleases"`
	Go            string   `json:"go"`
	Platform      string   `json:"platform"`
}

// text formats it for users.
func (v versions) text() string {
	ocadm := "ocadm " + v.Version
	if v.Commit != "" {
		ocadm += " (commit " + v.Commit + ")"
	}
	return fmt.Sprintf("%s\nKubernetes %s\nOneCloud %s\n%s, %s", ocadm, v.Kubernetes, strings.Join(v.CloudReleases, ", "), v.Platform, v.Go)
}

func newVersion(a *app) *cobra.Command {
	output := ui.NewFormat("text", "json", "yaml", "short")
	c := &cobra.Command{
		Use: "version", Short: "Print the version",
		Long:    "Prints the version and commit of ocadm, the version of Kubernetes that it installs, and the releases of OneCloud that it can install.",
		Example: "  ocadm version\n  ocadm version -o json",
		RunE: func(*cobra.Command, []string) error {
			v := versions{
				Version: version.Version, Commit: version.Commit, Kubernetes: version.Kubernetes, CloudReleases: version.CloudReleases(),
				Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			}
			return a.print(output, v, func(p *page) {
				if output.String() == "text" {
					p.line("%s", v.text())
				} else {
					p.line("%s", v.Version)
				}
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
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
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
