// SPDX-License-Identifier: Apache-2.0

// Command options writes the table of the options that the cloud's services know, templates/services/options, from the sources of the
// services: names, types and the values to choose from, nothing else. It reads struct definitions and runs nothing. Options that the
// table has and the sources do not, stay: the operator runs releases of several years. -replace starts anew.
//
//	go run ./scripts/options -src yunion.io/x/onecloud=../cloudpods -src yunion.io/x/structarg=../structarg \
//	    -src yunion.io/x/cloudmux=../cloudmux
//
// It is run by hand when a new release of the cloud is taken up; tests read the table only.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"yunion.io/x/ocadm/internal/options"
)

// structs says which struct a table is made of: module, directory, name. A struct that is itself a table is included, not repeated.
var structs = map[string]ref{
	"shared/base":               {cloud, "pkg/cloudcommon/options", "BaseOptions"},
	"shared/common":             {cloud, "pkg/cloudcommon/options", "CommonOptions"},
	"shared/agent":              {cloud, "pkg/cloudcommon/options", "HostCommonOptions"},
	"shared/database":           {cloud, "pkg/cloudcommon/options", "DBOptions"},
	"keystone":                  {cloud, "pkg/keystone/options", "SKeystoneOptions"},
	"region":                    {cloud, "pkg/compute/options", "ComputeOptions"},
	"scheduler":                 {cloud, "pkg/scheduler/options", "SchedulerOptions"},
	"glance":                    {cloud, "pkg/image/options", "SImageOptions"},
	"logger":                    {cloud, "pkg/logger/options", "SLoggerOptions"},
	"yunionconf":                {cloud, "pkg/yunionconf/options", "YunionConfOptions"},
	"apigateway":                {cloud, "pkg/apigateway/options", "GatewayOptions"},
	"webconsole":                {cloud, "pkg/webconsole/options", "WebConsoleOptions"},
	"notify":                    {cloud, "pkg/notify/options", "NotifyOption"},
	"scheduledtask":             {cloud, "pkg/scheduledtask/options", "SOption"},
	"apimap":                    {cloud, "pkg/apimap/options", "SOptions"},
	"monitor":                   {cloud, "pkg/monitor/options", "AlerterOptions"},
	"cloudmon":                  {cloud, "pkg/cloudmon/options", "CloudMonOptions"},
	"ansibleserver":             {cloud, "pkg/ansibleserver/options", "SAnsibleServerOptions"},
	"devtool":                   {cloud, "pkg/devtool/options", "DevToolOptions"},
	"cloudid":                   {cloud, "pkg/cloudid/options", "SCloudIdOptions"},
	"cloudevent":                {cloud, "pkg/cloudevent/options", "CloudeventOptions"},
	"cloudproxy":                {cloud, "pkg/cloudproxy/options", "Options"},
	"cloudnet":                  {cloud, "pkg/cloudnet/options", "CloudnetOptions"},
	"s3gateway":                 {cloud, "pkg/s3gateway/options", "SS3GatewayOptions"},
	"vpcagent":                  {cloud, "pkg/vpcagent/options", "Options"},
	"baremetal-agent":           {cloud, "pkg/baremetal/options", "BaremetalOptions"},
	"esxi-agent":                {cloud, "pkg/esxi/options", "EsxiOptions"},
	"mcp-server":                {cloud, "pkg/mcp-server/options", "MCPServerOptions"},
	"llm":                       {cloud, "pkg/llm/options", "LLMOptions"},
	"aiproxy":                   {cloud, "pkg/aiproxy/options", "SAiProxyOptions"},
	"host":                      {cloud, "pkg/hostman/options", "SHostBaseOptions"}, // common.conf; host.conf of the node has more
	"lbagent":                   {cloud, "pkg/lbagent", "LbagentCommonOptions"},     // common.conf too
	"kubeserver":                {"yunion.io/x/kubecomps", "pkg/kubeserver/options", "KubeServerOptions"},
	"onecloud-service-operator": {"yunion.io/x/onecloud-service-operator", "pkg/options", "OperatroOptions"},
}

const cloud = "yunion.io/x/onecloud"

// ref names a struct.
type ref struct{ module, dir, name string }

func main() {
	src := sources{}
	out := flag.String("out", "templates/services/options", "where the table lies")
	replace := flag.Bool("replace", false, "forget what the table has")
	commits := sources{}
	flag.Var(src, "src", "MODULE=DIRECTORY of sources, repeated")
	flag.Var(commits, "commit", "MODULE=COMMIT that the sources are of, repeated")
	flag.Parse()
	if err := run(src, commits, *out, *replace); err != nil {
		fmt.Fprintln(os.Stderr, "options:", err)
		os.Exit(1)
	}
}

func run(src, commits sources, out string, replace bool) error {
	for _, name := range slices.Sorted(maps.Keys(structs)) {
		r := structs[name]
		if _, have := src[r.module]; !have {
			continue
		}
		file := filepath.Join(out, name+".yaml")
		t := options.File{}
		if !replace {
			if data, err := os.ReadFile(file); err == nil {
				if t, err = options.ParseFile(data); err != nil {
					return fmt.Errorf("reading %s: %w", file, err)
				}
			}
		}
		if err := src.collect(name, r, &t); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if c := commits[r.module]; c != "" && !slices.Contains(t.Commits, c) {
			t.Commits = append(t.Commits, c)
		}
		if err := os.WriteFile(file, write(r, t), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// write is a table as people read it.
func write(r ref, t options.File) []byte {
	var b strings.Builder
	b.WriteString("# SPDX-License-Identifier: Apache-2.0\n")
	b.WriteString("# Names and types of options, collected by scripts/options. \"extra\" is kept by hand: what is known from elsewhere, and from where.\n")
	fmt.Fprintf(&b, "source: %s/%s %s\n", r.module, r.dir, r.name)
	if len(t.Commits) > 0 {
		fmt.Fprintf(&b, "commits: [%s]\n", strings.Join(t.Commits, ", "))
	}
	if len(t.Include) > 0 {
		fmt.Fprintf(&b, "include: [%s]\n", strings.Join(t.Include, ", "))
	}
	section := func(title string, list map[string]options.Option) {
		if len(list) == 0 {
			return
		}
		b.WriteString(title + ":\n")
		for _, name := range slices.Sorted(maps.Keys(list)) {
			fmt.Fprintf(&b, "  %s: %s\n", name, one(list[name]))
		}
	}
	section("options", t.Options)
	section("extra", t.Extra)
	return []byte(b.String())
}

func one(o options.Option) string {
	if len(o.Choices) == 0 && o.Alias == "" && o.Stored == "" && o.From == "" {
		return string(o.Type)
	}
	parts := []string{"type: " + string(o.Type)}
	if len(o.Choices) > 0 {
		parts = append(parts, "choices: ["+strings.Join(o.Choices, ", ")+"]")
	}
	for _, f := range []struct{ key, value string }{{"alias", o.Alias}, {"stored", o.Stored}, {"from", o.From}} {
		if f.value != "" {
			parts = append(parts, f.key+": "+f.value)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// snake is a field's name as the services write it in their files: a new word begins at the first capital, and at the last of three or
// more that a small letter follows ("DBChecksum" is "db_checksum", but "VMs" is "vms"). What is no letter or digit parts words.
func snake(name string) string {
	var words []string
	var word []rune
	capitals := 0
	all := []rune(name)
	for i, c := range all {
		begins := false
		switch {
		case unicode.IsUpper(c):
			capitals++
			small := i+1 < len(all) && (unicode.IsLower(all[i+1]) || unicode.IsDigit(all[i+1]))
			begins = capitals == 1 || capitals > 2 && small
		case unicode.IsLower(c) || unicode.IsDigit(c):
			capitals = 0
		default:
			capitals, begins = 0, true
		}
		if begins && len(word) > 0 {
			words, word = append(words, string(word)), nil
		}
		if unicode.IsLetter(c) || unicode.IsDigit(c) {
			word = append(word, unicode.ToLower(c))
		}
	}
	if len(word) > 0 {
		words = append(words, string(word))
	}
	return strings.Join(words, "_")
}
