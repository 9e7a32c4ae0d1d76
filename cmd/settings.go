// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
)

// addSettings adds the flags of a command's settings, and those of earlier versions.
func addSettings(fs *pflag.FlagSet, command config.For) {
	defaults := config.Default()
	renamed := map[string]string{}
	for _, s := range config.Settings() {
		if s.For&command == 0 || s.Flag == "" {
			continue
		}
		field := config.Field(&defaults, s.Key)
		if text, ok := field.(*string); ok && len(s.Choices) > 0 {
			fs.Var(ui.NewChoice(text, s.Choices...), s.Flag, s.Usage)
		} else {
			addFlag(fs, s.Flag, s.Usage, field)
		}
		if strings.Contains(s.Usage, "(default") {
			f := fs.Lookup(s.Flag)
			f.DefValue = "" // the text describes it better
			if _, list := field.(*[]string); list {
				f.DefValue = "[]" // which help treats as no default
			}
		}
		if s.Advanced {
			mark(fs, s.Flag, annotationAdvanced)
		}
		if s.Was != "" {
			renamed[s.Was] = s.Flag
		}
	}
	if len(renamed) > 0 {
		fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
			return pflag.NormalizedName(cmp.Or(renamed[name], name))
		})
	}
	addLegacy(fs, command)
}

func addConfig(fs *pflag.FlagSet, file *string) {
	fs.StringVar(file, "config", "", "configuration file; - reads standard input")
}

// addFlag adds a flag that writes to the field behind the pointer.
func addFlag(fs *pflag.FlagSet, name, usage string, field any) {
	switch p := field.(type) {
	case *string:
		fs.StringVar(p, name, *p, usage)
	case *bool:
		fs.BoolVar(p, name, *p, usage)
	case *int:
		fs.IntVar(p, name, *p, usage)
	case *time.Duration:
		fs.DurationVar(p, name, *p, usage)
	case *[]string:
		fs.StringSliceVar(p, name, *p, usage)
	case **int32:
		fs.Var(optionalInt32{p}, name, usage)
	default:
		panic(fmt.Sprintf("no flag can hold a %T", field))
	}
}

// optionalInt32 is an optional number.
type optionalInt32 struct{ p **int32 }

func (o optionalInt32) String() string {
	if o.p == nil || *o.p == nil {
		return ""
	}
	return fmt.Sprint(**o.p)
}

func (o optionalInt32) Set(s string) error {
	var n int32
	if _, err := fmt.Sscanf(s+"\n", "%d\n", &n); err != nil {
		return fmt.Errorf("%q is not a number", s)
	}
	*o.p = &n
	return nil
}

func (o optionalInt32) Type() string { return "int32" }

// loadSettings returns the configuration of a command. Viper decides the precedence: flag, environment, file, default.
func (a *app) loadSettings(c *cobra.Command, command config.For, file string) (*config.Config, error) {
	v, err := a.openSettings(file)
	if err != nil {
		return nil, err
	}
	cfg := config.Default()
	sink := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	for _, s := range config.Settings() {
		addFlag(sink, s.Key, "", config.Field(&cfg, s.Key))
		if s.For&command != 0 && s.Flag != "" {
			if err := bindSetting(v, s, c.Flags().Lookup(s.Flag)); err != nil {
				return nil, err
			}
		}
		if !v.IsSet(s.Key) {
			continue
		}
		if err := set(sink.Lookup(s.Key).Value, s, v.Get(s.Key)); err != nil {
			return nil, err
		}
		cfg.Given = append(cfg.Given, s.Key)
	}
	if command&config.ForInit != 0 {
		cfg.Node.AsController = true
	}
	cfg.Run.Kubeconfig = cfg.Cluster.Kubeconfig
	if err := a.password(c.Flags(), &cfg); err != nil {
		return nil, err
	}
	if err := databaseCA(&cfg); err != nil {
		return nil, err
	}
	if err := a.registryConfig(&cfg); err != nil {
		return nil, err
	}
	if command&(config.ForInit|config.ForJoin) != 0 {
		a.proxies(&cfg)
	}
	a.legacy(c.Flags(), &cfg, command)
	a.redact.Add(cfg.Database.Password, cfg.Cluster.Token, cfg.Join.Token, cfg.Join.CertificateKey, cfg.Node.BundleToken)
	return &cfg, nil
}

// readsSettings makes a command read flags from OCADM_* variables and a configuration file, too. keys maps flags to the keys of their settings.
func (a *app) readsSettings(c *cobra.Command, keys map[string]string) {
	var file string
	addConfig(c.Flags(), &file)
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		v, err := a.openSettings(file)
		if err != nil {
			return err
		}
		for name, key := range keys {
			s, f := config.Find(key), c.Flags().Lookup(name)
			if err := bindSetting(v, s, f); err != nil {
				return err
			}
			if f.Changed || !v.IsSet(key) {
				continue // viper would return the flag's value
			}
			if err := set(f.Value, s, v.Get(key)); err != nil {
				return err
			}
			f.Changed = true
			mark(c.Flags(), name, annotationSetting)
		}
		return nil
	}
}

// typed reports whether a flag is on the command line.
func typed(c *cobra.Command, name string) bool {
	f := c.Flags().Lookup(name)
	return f.Changed && f.Annotations[annotationSetting] == nil
}

// openSettings returns the settings of a configuration file; "" means no file.
func (a *app) openSettings(file string) (*viper.Viper, error) {
	values, err := a.readConfigFile(file)
	if err != nil {
		return nil, err
	}
	tree := map[string]any{}
	for key, value := range values {
		section, name, _ := strings.Cut(key, ".")
		branch, _ := tree[section].(map[string]any)
		if branch == nil {
			branch = map[string]any{}
			tree[section] = branch
		}
		branch[name] = value
	}
	v := viper.New()
	if err := v.MergeConfigMap(tree); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return v, nil
}

// bindSetting makes viper read a setting from its flag and its environment variables.
func bindSetting(v *viper.Viper, s config.Setting, f *pflag.Flag) error {
	if err := v.BindEnv(append([]string{s.Key}, s.Envs()...)...); err != nil {
		return fmt.Errorf("binding %s: %w", s.Env(), err)
	}
	if err := v.BindPFlag(s.Key, f); err != nil {
		return fmt.Errorf("binding --%s: %w", s.Flag, err)
	}
	return nil
}

func set(to pflag.Value, s config.Setting, value any) error {
	err := to.Set(flagText(value))
	if err == nil {
		return nil
	}
	problem := fmt.Sprintf("%q: %v", fmt.Sprint(value), err)
	if s.Secret {
		problem = "the value is not valid"
	}
	return finding.New("OCA-0320", "A setting is not valid", fmt.Sprintf("--%s (%s, variable %s): %s", s.Flag, s.Key, s.Env(), problem),
		"ocadm config print shows every setting with its default")
}

// flagText returns a value in the form that its flag parses.
func flagText(value any) string {
	v := reflect.ValueOf(value)
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(value)
	}
	var items []string
	for i := range v.Len() {
		items = append(items, fmt.Sprint(v.Index(i).Interface()))
	}
	if len(items) == 0 {
		return ""
	}
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write(items) // a builder never fails
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

func (a *app) readConfigFile(name string) (map[string]any, error) {
	if name == "" {
		return nil, nil
	}
	raw, err := a.read(name)
	if err != nil {
		return nil, finding.Errorf("OCA-0322", "The configuration file "+name+" cannot be read", "give a file that exists; ocadm config print shows its form", "%w", err)
	}
	return config.Parse(name, raw)
}

// read reads a file, or standard input for -.
func (a *app) read(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(a.In)
	}
	return os.ReadFile(file)
}

// databaseCA reads the certificates that verify the database server.
func databaseCA(cfg *config.Config) error {
	name := cfg.Database.CAFile
	if name == "" {
		return nil
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return finding.Errorf("OCA-0324", "The file with the database server's CA cannot be read", "check --mysql-ca-file", "%w", err)
	}
	cfg.Database.CA = string(raw)
	return nil
}

// maxPasswordFile is larger than any password.
const maxPasswordFile = 64 << 10

func (a *app) password(fs *pflag.FlagSet, cfg *config.Config) error {
	if fs.Changed(passwordFlag) {
		a.warn("--%s exposes the password in the process list and leaves it in your shell history; "+
			"use --mysql-password-file FILE (- reads standard input)", passwordFlag)
	}
	if d := &cfg.Database; d.Password != "" && d.PasswordFile != "" {
		switch clear, file := sourceRank(fs, "database.password"), sourceRank(fs, "database.passwordFile"); {
		case clear > file:
			d.PasswordFile = ""
		case clear < file:
			d.Password = ""
		default:
			return nil // Validate reports it
		}
	}
	name := cfg.Database.PasswordFile
	if name == "" {
		return nil
	}
	in := a.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return finding.Errorf("OCA-0323", "The password file cannot be read", "check --mysql-password-file", "%w", err)
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
			a.warn("other users can read %s; run chmod 600 %s", name, name)
		}
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxPasswordFile))
	if err != nil {
		return finding.Errorf("OCA-0323", "The password file cannot be read", "check --mysql-password-file", "%w", err)
	}
	cfg.Database.Password, cfg.Database.PasswordFile = string(bytes.TrimRight(raw, "\r\n")), ""
	return nil
}

// sourceRank orders the sources of a setting that has a value: a flag, an environment variable, the configuration file.
func sourceRank(fs *pflag.FlagSet, key string) int {
	s := config.Find(key)
	switch {
	case fs.Changed(s.Flag):
		return 2
	case slices.ContainsFunc(s.Envs(), func(name string) bool { return os.Getenv(name) != "" }):
		return 1
	}
	return 0
}

func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.Err, "warning: "+format+"\n", args...)
}
