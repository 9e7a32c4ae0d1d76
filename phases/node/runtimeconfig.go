// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
)

const (
	containerdConfig = "/etc/containerd/config.toml"
	// containerdExtras is imported by that file: other runtimes, such as nvidia's and kata's, are configured there.
	containerdExtras = "/etc/containerd/conf.d"
)

// configKind says whose containerd's configuration is.
type configKind int

const (
	configOurs    configKind = iota // not there yet, or as ocadm wrote it
	configEdited                    // ocadm's, which a person has edited
	configForeign                   // of a containerd that was there before
)

// configOf says whose the configuration is. The ledger has the digest of what ocadm wrote last; where it is of the first release and has
// none, the file is compared with the template.
func configOf(h *host.Host) configKind {
	raw, err := h.Files.ReadFile(containerdConfig)
	if err != nil {
		return configOurs
	}
	if !h.Ledger.Has(host.KindFile, containerdConfig) {
		if _, ok := theirs(h, containerd); ok {
			return configForeign
		}
		return configOurs
	}
	if e, ok := h.Ledger.Get(host.KindContent, containerdConfig); ok {
		if got, err := h.Files.Digest(containerdConfig); err == nil && got != e.Detail {
			return configEdited
		}
		return configOurs
	}
	if !fromTemplate(string(raw)) {
		return configEdited
	}
	return configOurs
}

// fromTemplate reports whether a configuration is ocadm's template with any values, in this release's form or the first one's, which
// had no imports.
func fromTemplate(text string) bool {
	raw, err := unitFiles.ReadFile("units/config.toml")
	if err != nil {
		return false
	}
	var pattern strings.Builder
	for line := range strings.Lines(string(raw)) {
		p := placeholder.ReplaceAllString(regexp.QuoteMeta(line), `[^'\n]*`)
		if strings.HasPrefix(line, "imports = ") {
			p = "(" + p + ")?"
		}
		pattern.WriteString(p)
	}
	ok, err := regexp.MatchString("^"+pattern.String()+"$", text)
	return ok && err == nil
}

// placeholder is one of the template's, in a pattern that was quoted.
var placeholder = regexp.MustCompile(`\\\{[a-zA-Z]+\\\}`)

// noteConfig notes what ocadm wrote, so that an edit is told from it.
func noteConfig(h *host.Host) error {
	digest, err := h.Files.Digest(containerdConfig)
	if err != nil {
		return fmt.Errorf("noting containerd's configuration: %w", err)
	}
	if e, ok := h.Ledger.Get(host.KindContent, containerdConfig); ok && e.Detail == digest {
		return nil
	}
	if err := h.Ledger.Forget(host.KindContent, containerdConfig); err != nil {
		return fmt.Errorf("noting containerd's configuration: %w", err)
	}
	err = h.Ledger.Record(host.Entry{Kind: host.KindContent, Name: containerdConfig, Op: host.Found, Detail: digest})
	if err != nil {
		return fmt.Errorf("noting containerd's configuration: %w", err)
	}
	return nil
}

// takeOurs is the command after which ocadm writes its own configuration.
func takeOurs() string { return fmt.Sprintf("mv %s %s.mine", containerdConfig, containerdConfig) }

// tellEdits says that a person's edits are kept.
func tellEdits(h *host.Host, r workflow.Reporter) {
	if configOf(h) == configEdited {
		r.Info("%s was edited and is kept as it is; additions have a place in %s; to take ocadm's: %s, and repeat the command", containerdConfig,
			path.Join(containerdExtras, "*.toml"), takeOurs())
	}
}

// configDiff are the lines in which the configuration differs from the one that ocadm would write.
func configDiff(h *host.Host) []string {
	want, err := renderConfig(h)
	if err != nil {
		return nil
	}
	got, err := h.Files.ReadFile(containerdConfig)
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(diff.Diff("ocadm's", want, containerdConfig, got))) {
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			out = append(out, strings.TrimRight(line, "\n"))
		}
	}
	return out
}
