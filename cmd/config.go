// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

func newConfig(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "config", Short: "Print or validate a configuration file, or list images",
		Long: "Settings come from flags, environment variables, a configuration file and defaults, in this order of precedence. The variable of a flag\n" +
			"is OCADM_ and its name in capitals with _ for -, for example OCADM_MYSQL_HOST. --config names the file.",
		Example: `  ocadm config print > ocadm.yaml
  ocadm config validate --config ocadm.yaml
  ocadm config images list --onecloud-version v4.0.3`,
	}, newConfigPrint(a), newConfigValidate(a), newConfigImages(a))
}

func newConfigPrint(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "print", Short: "Print a file with every setting and its default",
		Long:    "Prints a configuration file with every setting, its description and its default. Secrets are left out.",
		Example: "  ocadm config print\n  ocadm config print > ocadm.yaml && ocadm init --config ocadm.yaml",
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
	var file string
	command := "init"
	c := &cobra.Command{
		Use: "validate --config FILE", Short: "Check a configuration file",
		Long: "Checks a configuration file as init does, or as join does with --for join, and reports every unknown key and every invalid value.\n" +
			"OCADM_* variables override the file. Files that it names, such as the password file, must be readable.",
		Example: "  ocadm config validate --config ocadm.yaml\n  ocadm config validate --config - --for join < ocadm.yaml",
		RunE: func(c *cobra.Command, _ []string) error {
			which := config.ForInit
			if command == "join" {
				which = config.ForJoin
			}
			if file == "" {
				return misused("--config is missing", c.UseLine())
			}
			flags := &cobra.Command{Use: "validate"} // without values: file, environment and defaults count
			addSettings(flags.Flags(), which)
			cfg, err := a.loadSettings(flags, which, file)
			if err != nil {
				return err
			}
			run := host.ReadOnly(exec.Machine{})
			complete(cfg, host.Gather(c.Context(), host.Files{DryRun: true}, run), "", netip.Addr{}) // reads nothing that needs root
			if err := config.Validate(cfg, which); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Out, "%s is valid\n", file)
			return err
		},
	}
	addConfig(c.Flags(), &file)
	c.Flags().StringVarP(&file, "filename", "f", "", "the former name of --config")
	hide(c.Flags(), "filename")
	c.Flags().Var(ui.NewChoice(&command, "init", "join"), "for", "command that the file is for")
	return c
}

func newConfigImages(a *app) *cobra.Command {
	var file string
	list := shows(a, &cobra.Command{
		Use: "list", Short: "List the images",
		Long: "Prints one image reference per line, sorted. The list is complete: a registry with these images is enough for an installation.",
		Example: `  ocadm config images list --onecloud-version v4.0.3

  # copy them to a private registry
  ocadm config images list --onecloud-version v4.0.3 | while read i; do crane copy $i registry.example.org/yunionio/${i##*/}; done`,
	}, "text", func(c *cobra.Command, _ []string) ([]string, error) {
		cfg, err := a.loadSettings(c, config.ForInit, file)
		if err != nil {
			return nil, err
		}
		return allImages(cfg)
	}, func(p *page, images []string) { p.lines("", images...) })
	addSettings(list.Flags(), config.ForInit)
	hideAllBut(list.Flags(), "image-repository", "kubernetes-image-repository", "onecloud-version", "operator-version", "cni", "storage", "ingress",
		"mysql-host", "edition", "product-version", "feature-gates", "kubernetes-version", "output")
	addConfig(list.Flags(), &file)
	return group(&cobra.Command{
		Use: "images", Short: "List the images of a cluster and its cloud",
		Long: "Lists the images that init needs: those of Kubernetes, the addons and, with --onecloud-version, the cloud. That of the operator is in the\n" +
			"list only with --operator-version: by default, init packs its own program.",
		Example: "  ocadm config images list\n  ocadm config images list --onecloud-version v4.0.3 -o json",
	}, list)
}

func hideAllBut(fs *pflag.FlagSet, keep ...string) {
	fs.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Hidden || !slices.Contains(keep, f.Name) })
	// These commands create neither a cloud nor a database: the settings choose images.
	fs.Lookup("onecloud-version").Usage = "version of the cloud whose images to include; empty includes none"
	fs.Lookup("mysql-host").Usage = "host of your own database server; empty includes the image of the embedded MariaDB"
}
