// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
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

// later are the lines of the template that the first release did not have.
var later = regexp.MustCompile(`^(imports = |  # containerd reads |  stats_collect_period = )`)

// fromTemplate reports whether a configuration is ocadm's template with any values, in this release's form or the first one's.
func fromTemplate(text string) bool {
	raw, err := unitFiles.ReadFile("units/config.toml")
	if err != nil {
		return false
	}
	var pattern strings.Builder
	for line := range strings.Lines(string(raw)) {
		p := placeholder.ReplaceAllString(regexp.QuoteMeta(line), `[^'\n]*`)
		if later.MatchString(line) {
			p = "(" + p + ")?"
		}
		pattern.WriteString(p)
	}
	ok, err := regexp.MatchString("^"+pattern.String()+"$", text)
	return ok && err == nil
}

// placeholder is one of the template's, in a pattern that was quoted.
var placeholder = regexp.MustCompile(`\\\{[a-zA-Z]+\\\}`)

// noteConfig notes what ocadm wrote, so that a later edit is recognised.
func noteConfig(h *host.Host) error {
	digest, err := h.Files.Digest(containerdConfig)
	if err != nil {
		return fmt.Errorf("noting containerd's configuration: %w", err)
	}
	if e, ok := h.Ledger.Get(host.KindContent, containerdConfig); ok && e.Detail == digest {
		return nil
	}
	return h.Ledger.Replace(host.Entry{Kind: host.KindContent, Name: containerdConfig, Op: host.Found, Detail: digest})
}

// takeOurs is the command after which ocadm writes its own configuration.
func takeOurs() string { return fmt.Sprintf("mv %s %s.mine", containerdConfig, containerdConfig) }

// reportEdits says that a person's edits are kept.
func reportEdits(h *host.Host, r workflow.Reporter) {
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

// RuntimeConfig is a finding when the configuration of a containerd that another program or a person configured does not fit Kubernetes: its part for
// Kubernetes is off, it does not leave cgroups to systemd, or it does not look for CNI plugins where they are installed.
func RuntimeConfig(ctx context.Context, h *host.Host) error {
	kind := configOf(h)
	if kind == configOurs || !containerdRuns(h) {
		return nil
	}
	dump, err := runtimeConfig(ctx, h)
	if err != nil {
		return err
	}
	for line := range strings.Lines(dump) {
		line = strings.TrimSpace(line)
		off := strings.HasPrefix(line, "disabled_plugins") && strings.Contains(line, "cri")
		// bin_dir = '/opt/cni/bin' up to 2.0, bin_dirs = ['/opt/cni/bin'] since
		noPlugins := strings.HasPrefix(line, "bin_dir") && strings.Contains(line, "/") && !strings.Contains(line, cniDir)
		if off || noPlugins || strings.HasPrefix(line, "SystemdCgroup") && strings.HasSuffix(line, "false") {
			f := finding.New(CodeRuntimeUnusable, "The containerd that was on this machine is not configured for Kubernetes",
				containerdConfig+" has "+line,
				fmt.Sprintf("keep yours: enable the CRI plugin with SystemdCgroup = true and bin_dirs = ['/opt/cni/bin'] in it, then "+
					"systemctl restart containerd; take ocadm's: %s; then repeat the command",
					takeOurs()))
			if kind == configEdited {
				f.What, f.Evidence = "The configuration of containerd was edited and is not suitable for Kubernetes", configDiff(h)
			}
			return f
		}
	}
	return nil
}

func runtimeConfig(ctx context.Context, h *host.Host) (string, error) {
	res, err := h.Exec.Run(ctx, exec.Command{Path: programPath(h, containerd), Args: []string{"config", "dump"}})
	if err != nil {
		return "", fmt.Errorf("reading containerd's configuration: %w", err)
	}
	return res.Stdout, nil
}

// sandboxSetting is the image of pods' sandboxes: pinned_images.sandbox since containerd 2.0, sandbox_image before.
var sandboxSetting = regexp.MustCompile(`(?m)^\s*sandbox(?:_image)? = ['"]([^'"]+)['"]`)

// PauseImage is a finding when a containerd that ocadm did not configure starts pods with another pause image than kubeadm's: it is in no
// bundle, and kubeadm does not keep it from being removed.
func PauseImage(ctx context.Context, h *host.Host) error {
	if configOf(h) == configOurs || !containerdRuns(h) {
		return nil
	}
	dump, err := runtimeConfig(ctx, h)
	if err != nil {
		return err
	}
	want, err := pauseImage(h)
	m := sandboxSetting.FindStringSubmatch(dump)
	if err != nil || m == nil || m[1] == want {
		return err
	}
	return finding.Warn(CodePauseImage, "The containerd that was on this machine uses another pause image than kubeadm",
		fmt.Sprintf("its configuration names %s, and kubeadm %s; without the internet no pod starts if the first is not on the machine", m[1], want),
		fmt.Sprintf("set sandbox = '%s' under [plugins.'io.containerd.cri.v1.images'.pinned_images] in %s, and: systemctl restart containerd", want, containerdConfig))
}

// registrySection is the part of containerd's configuration that says where the files of registries are.
var registrySection = regexp.MustCompile(`(?m)^\s*\[plugins\.['"](io\.containerd\.(?:cri\.v1\.images|grpc\.v1\.cri))['"]\.registry\]\n((?:[^\[\n]*\n)*)`)

// Hosts is a finding when a containerd that ocadm did not configure does not read the files that send it to the depot and to mirrors. With
// --offline it is an error.
func Hosts(ctx context.Context, h *host.Host) error {
	if configOf(h) == configOurs || !containerdRuns(h) || len(DepotAddresses(h.Config))+len(h.Config.Node.RegistryMirrors) == 0 {
		return nil
	}
	dump, err := runtimeConfig(ctx, h)
	if err != nil {
		return err
	}
	m := registrySection.FindStringSubmatch(dump)
	if m == nil || strings.Contains(m[2], registriesDir) {
		return nil
	}
	f := finding.Warn(CodeNoMirrors, "The containerd that was on this machine would not ask the depot or mirrors for images",
		"its registry.config_path does not name "+registriesDir, fmt.Sprintf("add these lines to %s, or change config_path there, and: systemctl restart containerd\n"+
			"[plugins.'%s'.registry]\n  config_path = '%s'", containerdConfig, m[1], registriesDir))
	if h.Config.Node.Offline {
		f.Severity = finding.Error
	}
	return f
}
