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
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const (
	containerdConfig = "/etc/containerd/config.toml"
	// containerdExtras is imported by that file and holds the configuration of other runtimes, such as nvidia's and kata's.
	containerdExtras = "/etc/containerd/conf.d"
)

// configKind says who made containerd's configuration.
type configKind int

const (
	configOurs    configKind = iota // missing, or as ocadm wrote it
	configEdited                    // ocadm's, edited by a person
	configForeign                   // of a containerd that was already there
)

// configOf returns who made the configuration. The ledger has the digest of what ocadm last wrote. The first release recorded none, so its file is compared
// with the template.
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

// later matches the lines of the template that the first release lacked.
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

// placeholder matches a placeholder of the template in a quoted pattern.
var placeholder = regexp.MustCompile(`\\\{[a-zA-Z]+\\\}`)

// noteConfig records what ocadm wrote, so that a later edit is recognized.
func noteConfig(h *host.Host) error {
	digest, err := h.Files.Digest(containerdConfig)
	if err != nil {
		return fmt.Errorf("recording containerd's configuration: %w", err)
	}
	if e, ok := h.Ledger.Get(host.KindContent, containerdConfig); ok && e.Detail == digest {
		return nil
	}
	return h.Ledger.Replace(host.Entry{Kind: host.KindContent, Name: containerdConfig, Op: host.Found, Detail: digest})
}

// takeOurs returns the command after which ocadm writes its own configuration.
func takeOurs() string { return fmt.Sprintf("mv %s %s.mine", containerdConfig, containerdConfig) }

// reportEdits reports that a person's edits are kept.
func reportEdits(h *host.Host, r workflow.Reporter) {
	if configOf(h) == configEdited {
		r.Info("%s was edited and is not changed; put additions into %s; to use ocadm's version: %s, and run the command again", containerdConfig,
			path.Join(containerdExtras, "*.toml"), takeOurs())
	}
}

// configDiff returns the lines in which the configuration differs from ocadm's.
func configDiff(h *host.Host) []string {
	want, err := renderConfig(h)
	if err != nil {
		return nil
	}
	got, err := h.Files.ReadFile(containerdConfig)
	if err != nil {
		return nil
	}
	lines := strings.Split(string(diff.Diff("ocadm's", want, containerdConfig, got)), "\n")
	return lists.Filter(lines, func(l string) bool { return strings.HasPrefix(l, "+") || strings.HasPrefix(l, "-") })
}

// RuntimeConfig returns a finding if the configuration of a containerd that ocadm did not configure does not suit Kubernetes: its CRI plugin is disabled, it
// does not use systemd cgroups, or it does not look for CNI plugins where they are installed.
func RuntimeConfig(ctx context.Context, h *host.Host) error {
	config, err := othersConfig(ctx, h)
	for line := range strings.Lines(config) {
		line = strings.TrimSpace(line)
		off := strings.HasPrefix(line, "disabled_plugins") && strings.Contains(line, "cri")
		// bin_dir = '/opt/cni/bin' up to 2.0, then bin_dirs = ['/opt/cni/bin']
		noPlugins := strings.HasPrefix(line, "bin_dir") && strings.Contains(line, "/") && !strings.Contains(line, cniDir)
		if off || noPlugins || strings.HasPrefix(line, "SystemdCgroup") && strings.HasSuffix(line, "false") {
			f := finding.New(CodeRuntimeUnusable, "The containerd that was on this machine is not configured for Kubernetes",
				containerdConfig+" has "+line,
				fmt.Sprintf("to keep yours: enable the CRI plugin with SystemdCgroup = true and bin_dirs = ['/opt/cni/bin'] in it, then "+
					"systemctl restart containerd; to use ocadm's: %s; then run the command again",
					takeOurs()))
			if configOf(h) == configEdited {
				f.What, f.Evidence = "The configuration of containerd was edited and is not suitable for Kubernetes", configDiff(h)
			}
			return f
		}
	}
	return err
}

// othersConfig returns the configuration that containerd uses if ocadm did not make it, otherwise "".
func othersConfig(ctx context.Context, h *host.Host) (string, error) {
	if configOf(h) == configOurs || !containerdRuns(h) {
		return "", nil
	}
	res, err := h.Exec.Run(ctx, exec.Command{Path: programPath(h, containerd), Args: []string{"config", "dump"}})
	if err != nil {
		return "", fmt.Errorf("reading containerd's configuration: %w", err)
	}
	return res.Stdout, nil
}

// sandboxSetting matches the image of pod sandboxes: pinned_images.sandbox since containerd 2.0, sandbox_image before.
var sandboxSetting = regexp.MustCompile(`(?m)^\s*sandbox(?:_image)? = ['"]([^'"]+)['"]`)

// PauseImage returns a finding if a containerd that ocadm did not configure uses another pause image than kubeadm's: no bundle has it, and kubeadm does not
// protect it from being removed.
func PauseImage(ctx context.Context, h *host.Host) error {
	config, err := othersConfig(ctx, h)
	m := sandboxSetting.FindStringSubmatch(config)
	if err != nil || m == nil {
		return err
	}
	want, err := pauseImage(h)
	if err != nil || m[1] == want {
		return err
	}
	return finding.Warn(CodePauseImage, "The containerd that was on this machine uses a different pause image than kubeadm",
		fmt.Sprintf("its configuration names %s, and kubeadm uses %s; without internet access, no pod starts if the former is not on the machine", m[1], want),
		fmt.Sprintf("set sandbox = '%s' under [plugins.'io.containerd.cri.v1.images'.pinned_images] in %s, and: systemctl restart containerd", want, containerdConfig))
}

// registrySection matches the part of containerd's configuration with the directory of the registries' files.
var registrySection = regexp.MustCompile(`(?m)^\s*\[plugins\.['"](io\.containerd\.(?:cri\.v1\.images|grpc\.v1\.cri))['"]\.registry\]\n((?:[^\[\n]*\n)*)`)

// Hosts returns a finding if a containerd that ocadm did not configure does not read the files that point it to the depot and mirrors. With --offline the
// finding is an error.
func Hosts(ctx context.Context, h *host.Host) error {
	if len(DepotAddresses(h.Config))+len(h.Config.Node.RegistryMirrors) == 0 {
		return nil
	}
	config, err := othersConfig(ctx, h)
	m := registrySection.FindStringSubmatch(config)
	if err != nil || m == nil || strings.Contains(m[2], registriesDir) {
		return err
	}
	f := finding.Warn(CodeNoMirrors, "The containerd that was on this machine would not pull images from the depot or mirrors",
		"its registry.config_path does not name "+registriesDir, fmt.Sprintf("add these lines to %s, or change config_path there, and: systemctl restart containerd\n"+
			"[plugins.'%s'.registry]\n  config_path = '%s'", containerdConfig, m[1], registriesDir))
	if h.Config.Node.Offline {
		f.Severity = finding.Error
	}
	return f
}
