// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

func newConfig(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "config", Short: "Print or validate a configuration file; list images",
		Long: "Every setting of init and join can be given in a file. Flags win over variables of the environment (OCADM_ and the flag's name in\n" +
			"capitals with _ for -: OCADM_MYSQL_HOST), those over the file, that over the defaults.",
		Example: `  ocadm config print > ocadm.yaml
  ocadm config validate -f ocadm.yaml
  ocadm config images list --onecloud-version v4.0.3`,
		Args: cobra.ArbitraryArgs, RunE: groupRunE,
	}
	c.AddCommand(newConfigPrint(a), newConfigValidate(a), newConfigImages(a))
	return c
}

func newConfigPrint(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "print", Short: "Print a file with every setting and its default",
		Long:    "Prints a configuration file with every setting, what it is for, and its default. Secrets are left out.",
		Example: "  ocadm config print\n  ocadm config print > ocadm.yaml && ocadm init --config ocadm.yaml",
		Args:    arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			cfg := config.Default()
			out, err := config.Print(&cfg)
			if err != nil {
				return err
			}
			_, err = a.Out.Write(out)
			return err
		},
	}
}

func newConfigValidate(a *app) *cobra.Command {
	var file, command string
	c := &cobra.Command{
		Use: "validate -f FILE", Short: "Check a configuration file",
		Long: "Checks a configuration file as init, or with --for join as join, would: every unknown key and every bad value is told. The variables of\n" +
			"the environment count. A bundle or password file that it names is opened.",
		Example: "  ocadm config validate -f ocadm.yaml\n  ocadm config validate -f - --for join < ocadm.yaml",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			which := config.ForInit
			if command == "join" {
				which = config.ForJoin
			}
			flags := &cobra.Command{Use: "validate"} // no flag is given: file, environment and defaults count
			addSettings(flags.Flags(), which)
			cfg, err := a.loadSettings(flags, which, file)
			if err != nil {
				return err
			}
			run := host.ReadOnly(exec.Machine{})
			complete(cfg, host.Gather(c.Context(), host.Files{DryRun: true}, run), "") // no root needed: nothing of ocadm's own is read
			if err := config.Validate(cfg, which); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Out, "%s is valid\n", file)
			return err
		},
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "configuration file; - is standard input")
	c.Flags().StringVar(&command, "for", "init", "the command it is for: init or join")
	_ = c.MarkFlagRequired("filename") // fails only for a flag that does not exist
	return c
}

func newConfigImages(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "images", Short: "List the images of a cluster and its cloud",
		Long:    "Lists the images that init needs: of Kubernetes, addons, operator and, with --onecloud-version, the cloud.",
		Example: "  ocadm config images list\n  ocadm config images list --onecloud-version v4.0.3 -o json",
		Args:    cobra.ArbitraryArgs, RunE: groupRunE,
	}
	var file string
	output := ui.NewFormat("text", "json", "yaml")
	list := &cobra.Command{
		Use: "list", Short: "List the images",
		Long: "Prints a reference per line, sorted, complete: what is listed is enough to work without any other registry.",
		Example: `  ocadm config images list --onecloud-version v4.0.3

  # copy them to a registry of your own
  ocadm config images list --onecloud-version v4.0.3 | while read i; do crane copy $i registry.example.org/yunionio/${i##*/}; done`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := a.loadSettings(c, config.ForInit, file)
			if err != nil {
				return err
			}
			images, err := allImages(cfg)
			if err != nil {
				return err
			}
			return ui.Print(a.Out, output.String(), images, func(w io.Writer) error {
				for _, i := range images {
					if _, err := fmt.Fprintln(w, i); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	addSettings(list.Flags(), config.ForInit)
	hideAllBut(list.Flags(), "image-repository", "kubernetes-image-repository", "onecloud-version", "operator-version", "cni", "storage", "ingress",
		"mysql-host", "edition", "product-version", "feature-gates", "kubernetes-version")
	list.Flags().StringVar(&file, "config", "", "configuration file; - is standard input")
	list.Flags().VarP(output, "output", "o", "how they are printed")
	c.AddCommand(list)
	return c
}

func hideAllBut(fs *pflag.FlagSet, keep ...string) {
	shown := map[string]bool{}
	for _, k := range keep {
		shown[k] = true
	}
	fs.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Hidden || !shown[f.Name] })
}
