// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/callin"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
)

// newMachineCallIn returns the command in the bootstrap data of a machine that calls in.
func newMachineCallIn(a *app) *cobra.Command {
	var file, authority, to string
	var try int
	c := &cobra.Command{
		Use: "call-in", Short: "Join this machine and report the progress", Hidden: true,
		Long:    "Runs ocadm join with a file, forwards its events, and writes its progress to the ConfigMap of this machine, with the join token.",
		Example: "  ocadm machine call-in --config ocadm.json --ca ca.crt --to URL\n  ocadm machine call-in --config ocadm.json --ca ca.crt --to URL --try 2",
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := callInClient(file, authority, to)
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this program: %w", err)
			}
			// ocadm's settings in the environment, which other programs must not get
			own := lists.Filter(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "OCADM_") })
			join := exec.Command{Path: self, Args: []string{"join", "--config", file, "-o", "jsonl"}, Env: own}
			status, err := callin.Follow(c.Context(), exec.Machine{}, join, try, a.Out, func(ctx context.Context, r callin.Report) error {
				err := client.Send(ctx, r)
				if err != nil {
					fmt.Fprintln(a.Err, err) // the join goes on
				}
				return err
			})
			if err == nil && status != 0 {
				err = &endedBelow{status}
			}
			return err
		},
	}
	c.Flags().StringVar(&file, "config", "", "configuration file of join")
	c.Flags().StringVar(&authority, "ca", "", "file with the certificate authority of the cluster")
	c.Flags().StringVar(&to, "to", "", "URL of the ConfigMap of this machine")
	c.Flags().IntVar(&try, "try", 1, "number of this attempt since the boot")
	return c
}

func callInClient(file, authority, to string) (callin.Client, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return callin.Client{}, fmt.Errorf("reading the settings of join: %w", err)
	}
	values, err := config.Parse(file, text)
	if err != nil {
		return callin.Client{}, err
	}
	token, _ := values["join.token"].(string)
	pool, err := depot.Authorities(authority)
	if err != nil {
		return callin.Client{}, err
	}
	// No proxy: the control plane is in the machine's own network.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return callin.Client{URL: to, Token: token, HTTP: &http.Client{Transport: transport}}, nil
}
