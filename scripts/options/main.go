// SPDX-License-Identifier: Apache-2.0

// Command options writes the table of options that the cloud's services support, templates/services/options, from the sources of the services: only names,
// types, defaults and choices. It reads struct definitions and runs nothing. Options that are in the table but not in the sources stay, because the
// operator runs releases from several years. -replace starts from an empty table.
//
//	go run ./scripts/options -src yunion.io/x/onecloud=../cloudpods -src yunion.io/x/structarg=../structarg \
//	    -src yunion.io/x/cloudmux=../cloudmux
//
// Run it by hand for a new release of the cloud; tests only read the table.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/catalog"
)

// structs maps each table to the struct that it is generated from. A struct that has its own table is included by reference.
type structs map[string]ref

// known reads the source struct of each table, and adds the services of the catalogue that have no table yet.
func known(src sources, out string) (structs, error) {
	all := structs{}
	err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		name, isTable := strings.CutSuffix(path, ".yaml")
		if err != nil || !isTable {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		t, err := options.ParseFile(data)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		if name, err = filepath.Rel(out, name); err != nil {
			return err
		}
		if at, object, ok := strings.Cut(t.Source, " "); ok {
			module, dir := split(at)
			all[filepath.ToSlash(name)] = ref{module, dir, object}
		}
		return nil
	})
	for _, c := range catalog.All() {
		if _, have := all[c.Name]; have || c.Config == nil || len(c.Config.Groups) == 0 {
			continue
		}
		if r, found := src.ordinary(c.Name); found {
			all[c.Name] = r
		}
	}
	return all, err
}

const cloud = "yunion.io/x/onecloud"

type ref struct{ module, dir, name string }

func main() {
	src := sources{}
	out := flag.String("out", "templates/services/options", "directory of the table")
	replace := flag.Bool("replace", false, "replace the content of the table")
	commits := sources{}
	flag.Var(src, "src", "MODULE=DIRECTORY of sources, repeated")
	flag.Var(commits, "commit", "MODULE=COMMIT of the sources, repeated")
	flag.Parse()
	if err := run(src, commits, *out, *replace); err != nil {
		fmt.Fprintln(os.Stderr, "options:", err)
		os.Exit(1)
	}
}

func run(src, commits sources, out string, replace bool) error {
	all, err := known(src, out)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
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
		err := src.collect(all, name, r, &t)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoStruct) {
			fmt.Fprintf(os.Stderr, "options: %s is not changed: %v\n", name, err)
			continue
		} else if err != nil {
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

// write formats a table for readers.
func write(r ref, t options.File) []byte {
	var b strings.Builder
	b.WriteString("# SPDX-License-Identifier: Apache-2.0\n")
	b.WriteString("# Names, types and defaults of options, collected by scripts/options. \"extra\" is kept by hand: options known from elsewhere, and from where.\n")
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
	if len(o.Choices) == 0 && o.Default == "" && o.Alias == "" && o.Stored == "" && o.From == "" {
		return string(o.Type)
	}
	parts := []string{"type: " + string(o.Type)}
	if len(o.Choices) > 0 {
		parts = append(parts, "choices: ["+strings.Join(o.Choices, ", ")+"]")
	}
	if o.Default != "" {
		parts = append(parts, "default: "+strconv.Quote(o.Default))
	}
	for _, f := range []struct{ key, value string }{{"alias", o.Alias}, {"stored", o.Stored}, {"from", o.From}} {
		if f.value != "" {
			parts = append(parts, f.key+": "+f.value)
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// snake returns the name that the services use for a field in their files: a new word begins at the first capital, and at the last of three or more
// capitals if a lower-case letter follows ("DBChecksum" is "db_checksum", but "VMs" is "vms"). Other characters separate words.
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
