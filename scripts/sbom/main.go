// SPDX-License-Identifier: Apache-2.0

// Sbom prints the software bill of materials of a Go program from its build information: the Go release and every module.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/spdx"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION SECONDS-SINCE-1970")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, program, version, created string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("reading what the linker recorded in %s: %w", program, err)
	}
	seconds, err := strconv.ParseInt(created, 10, 64)
	if err != nil {
		return fmt.Errorf("reading the time: %w", err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	d := spdx.Document{
		Namespace: "https://" + info.Main.Path + "/spdx/" + sum, Tool: "ocadm-sbom", Created: time.Unix(seconds, 0),
		Whole: spdx.Package{Name: "ocadm", Version: version, SHA256: sum, URL: goURL(info.Main.Path, version)},
		Parts: []spdx.Package{{Name: "std", Version: info.GoVersion, URL: goURL("std", strings.TrimPrefix(info.GoVersion, "go"))}},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.Parts = append(d.Parts, spdx.Package{Name: m.Path, Version: m.Version, URL: goURL(m.Path, m.Version)})
	}
	return spdx.Write(w, d)
}

// goURL returns the package URL of a Go module.
func goURL(path, version string) string { return "pkg:golang/" + path + "@" + url.QueryEscape(version) }
