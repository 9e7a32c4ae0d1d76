// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
)

// addSettings gives a command the flags of the settings it takes, and those of long ago.
func addSettings(fs *pflag.FlagSet, command config.For) {
	defaults := config.Default()
	for _, s := range config.Settings() {
		if s.For&command == 0 || s.Flag == "" {
			continue
		}
		addFlag(fs, s.Flag, s.Usage, config.Field(&defaults, s.Key))
		if strings.Contains(s.Usage, "(default") {
			fs.Lookup(s.Flag).DefValue = "" // help tells it already, and better
		}
		if s.Advanced {
			mark(fs, s.Flag, annotationAdvanced)
		}
	}
	addLegacy(fs, command)
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

// optionalInt32 is a number that need not be given.
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
		return fmt.Errorf("%q is no number", s)
	}
	*o.p = &n
	return nil
}

func (o optionalInt32) Type() string { return "int32" }

// loadSettings makes a configuration of flags, environment, file and defaults, the first that has a setting winning.
func (a *app) loadSettings(c *cobra.Command, command config.For, file string) (*config.Config, error) {
	v := viper.New()
	values, err := a.readConfigFile(file)
	if err != nil {
		return nil, err
	}
	for key, value := range values {
		v.SetDefault(key, value) // below environment and flags; what the file lacks is not set at all
	}
	cfg := config.Default()
	sink := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	for _, s := range config.Settings() {
		addFlag(sink, s.Key, "", config.Field(&cfg, s.Key))
		if s.For&command != 0 && s.Flag != "" {
			if err := v.BindEnv(s.Key, s.Env()); err != nil {
				return nil, fmt.Errorf("binding %s: %w", s.Env(), err)
			}
			if err := v.BindPFlag(s.Key, c.Flags().Lookup(s.Flag)); err != nil {
				return nil, fmt.Errorf("binding --%s: %w", s.Flag, err)
			}
		}
		if err := set(sink, s, settled(v, c.Flags(), s, values)); err != nil {
			return nil, err
		}
	}
	if command&config.ForInit != 0 {
		cfg.Node.AsController = true
	}
	if err := a.password(c.Flags(), &cfg); err != nil {
		return nil, err
	}
	if err := databaseCA(&cfg); err != nil {
		return nil, err
	}
	a.legacy(c.Flags(), &cfg, command)
	a.redact.Add(cfg.Database.Password, cfg.Cluster.Token, cfg.Join.Token)
	return &cfg, nil
}

// settled is the value of a setting that somebody gave, nil if nobody did.
func settled(v *viper.Viper, fs *pflag.FlagSet, s config.Setting, file map[string]any) any {
	_, env := os.LookupEnv(s.Env())
	flag := fs.Lookup(s.Flag)
	_, inFile := file[s.Key]
	if inFile || env && os.Getenv(s.Env()) != "" || flag != nil && flag.Changed {
		return v.Get(s.Key)
	}
	return nil
}

func set(sink *pflag.FlagSet, s config.Setting, value any) error {
	if value == nil {
		return nil
	}
	if err := sink.Set(s.Key, flagText(value)); err != nil {
		return finding.Finding{Code: "OCA-0320", Severity: finding.Error, What: "A setting is not valid",
			Cause:  fmt.Sprintf("--%s (%s, variable %s): %s", s.Flag, s.Key, s.Env(), problem(s, value, sink.Lookup(s.Key).Value.Type())),
			Remedy: "ocadm config print shows every setting with its default"}
	}
	return nil
}

func problem(s config.Setting, value any, kind string) string {
	if s.Secret {
		return "the value is not valid"
	}
	return fmt.Sprintf("%q is not of type %s", fmt.Sprint(value), kind)
}

// flagText is a value as a flag takes it.
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
	_ = w.Write(items) // a builder takes everything
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

func (a *app) readConfigFile(name string) (map[string]any, error) {
	var raw []byte
	var err error
	switch name {
	case "":
		return nil, nil
	case "-":
		raw, err = io.ReadAll(a.In)
	default:
		raw, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, finding.Errorf("OCA-0322", "The configuration file "+name+" cannot be read", "ocadm config print > "+name, "%w", err)
	}
	return config.Parse(name, raw)
}

// databaseCA reads the certificates that the database server is verified with.
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

// password takes the database password from where it was put and keeps it from where it should not be.
func (a *app) password(fs *pflag.FlagSet, cfg *config.Config) error {
	if fs.Changed(passwordFlag) {
		a.warn("--%s shows the password to every user of this machine for a moment, and to your shell's history for ever; "+
			"use --mysql-password-file FILE (- is standard input)", passwordFlag)
	}
	name := cfg.Database.PasswordFile
	if name == "" || cfg.Database.Password != "" && fs.Changed(passwordFlag) {
		return nil // both given: Validate says so
	}
	in := a.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return finding.Errorf("OCA-0323", "The password file cannot be read", "check --mysql-password-file", "%w", err)
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
			a.warn("other users may read %s; chmod 600 %s", name, name)
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

func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.Err, "warning: "+format+"\n", args...)
}
