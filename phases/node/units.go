// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

//go:embed units
var unitFiles embed.FS

// UnitsPhase is the name of Units. After it, containerd answers; after it and SoftwarePhase, the kubelet can be started.
const UnitsPhase = "node-units"

const (
	containerdUnit = "containerd.service"
	kubeletUnit    = "kubelet.service"
	kubeletDropIn  = host.UnitDir + "/" + kubeletUnit + ".d/10-kubeadm.conf"
	registriesDir  = "/etc/containerd/certs.d"
	unitMode       = 0o644
)

// Units installs and enables the systemd units of containerd and the kubelet, and starts containerd. kubeadm's kubelet-start starts the kubelet.
func Units() host.Phase {
	return host.Phase{
		Name: UnitsPhase, Short: "Configure and start containerd, prepare the kubelet's service",
		Long: "Writes containerd's configuration and the systemd units of containerd and the kubelet, enables both and starts containerd.\n" +
			"Units that came with programs installed by others are used unchanged.",
		After:   []string{SoftwarePhase + "/runtime"},
		Timeout: 2 * time.Minute,
		Run:     runUnits,
		Verify: func(ctx context.Context, h *host.Host) error {
			if !containerdRuns(h) {
				return nil
			}
			return runtimeAnswers(ctx, h)
		},
		Undo: undoUnits,
	}.Todo(planUnits)
}

// units returns the files that the phase writes and the units that it enables. containerd's configuration is the last file.
func units(ctx context.Context, h *host.Host) (files host.FileSet, enable []string, err error) {
	fill := func(name, template string, pairs ...string) error {
		raw, err := unitFiles.ReadFile("units/" + template)
		files = append(files, host.File{Name: name, Data: []byte(strings.NewReplacer(pairs...).Replace(string(raw))), Mode: unitMode})
		return err
	}
	enable = []string{kubeletUnit}
	if containerdRuns(h) {
		if files, err = earlyHosts(h); err != nil {
			return nil, nil, err
		}
	}
	files = append(files, credentialFiles(h)...)
	if !providedUnit(ctx, h, kubelet, kubeletUnit) {
		exe := programPath(h, kubelet)
		err = errors.Join(fill(path.Join(host.UnitDir, kubeletUnit), kubeletUnit, "{kubelet}", exe, "{path}", host.LoginPath),
			fill(kubeletDropIn, "10-kubeadm.conf", "{kubelet}", exe))
	}
	if err != nil || !containerdRuns(h) {
		return files, enable, err
	}
	enable = append(enable, containerdUnit)
	if !providedUnit(ctx, h, containerd, containerdUnit) {
		err = fill(path.Join(host.UnitDir, containerdUnit), containerdUnit, "{containerd}", programPath(h, containerd), "{path}", host.LoginPath)
	}
	files = append(files, proxyFiles(h)...)
	if err != nil || configOf(h) != configOurs {
		return files, enable, err
	}
	config, err := renderConfig(h)
	return append(files, host.File{Name: containerdConfig, Data: config, Mode: unitMode}), enable, err
}

func renderConfig(h *host.Host) ([]byte, error) {
	pause, err := pauseImage(h)
	if err != nil {
		return nil, err
	}
	earlier := !h.Config.Gives("node.restrictOOMScoreAdj") && strings.Contains(h.Files.Text(containerdConfig), "restrict_oom_score_adj = true")
	raw, err := unitFiles.ReadFile("units/config.toml")
	return []byte(strings.NewReplacer("{pause}", pause, "{runc}", programPath(h, runc),
		"{restrictOOM}", strconv.FormatBool(earlier || h.Config.Node.ContainerdRestrictOOM), "{unpacks}", strconv.Itoa(max(1, min(4, runtime.NumCPU()))),
	).Replace(string(raw))), err
}

// providedUnit reports whether a program that was already on the machine came with its own unit.
func providedUnit(ctx context.Context, h *host.Host, name, unit string) bool {
	if _, ok := theirs(h, name); !ok || h.Ledger.Has(host.KindFile, path.Join(host.UnitDir, unit)) {
		return false
	}
	res, err := h.Systemctl(ctx, "cat", unit)
	return err == nil && res.Stdout != ""
}

// pauseImage returns the image of every pod's sandbox, under kubeadm's name for it.
func pauseImage(h *host.Host) (string, error) {
	images, err := kubernetes.WorkerImages(h.Config)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(images, func(n string) bool { return strings.HasPrefix(path.Base(n), "pause:") })
	if i < 0 {
		return "", fmt.Errorf("finding the pause image: kubeadm's list is %v", images)
	}
	return images[i], nil
}

func planUnits(ctx context.Context, h *host.Host) ([]string, error) {
	files, enable, err := units(ctx, h)
	if err != nil {
		return nil, err
	}
	lines := files.Todo(h)
	lines = append(lines, lists.Pick(enable, func(name string) (string, bool) { return "enable " + name, !h.Enabled(ctx, name) })...)
	if h.Ledger.Has(host.KindRestart, kubeletUnit) {
		lines = append(lines, "let systemd read "+kubeletUnit)
	}
	if containerdRuns(h) && (len(lines) > 0 || h.Ledger.Has(host.KindRestart, containerdUnit) || h.Outdated(ctx, containerdUnit) || runtimeAnswers(ctx, h) != nil) {
		lines = append(lines, "start "+containerdUnit)
	}
	return lines, nil
}

func runUnits(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	files, enable, err := units(ctx, h)
	if err != nil {
		return err
	}
	if containerdRuns(h) {
		for _, d := range []string{registriesDir, containerdExtras} {
			if err := h.Files.Mkdir(d, 0o755); err != nil {
				return err
			}
		}
		reportEdits(h, r)
	}
	if err := noteRestart(h, files); err != nil {
		return err
	}
	_, err = files.Write(h, r)
	if slices.ContainsFunc(files, func(f host.File) bool { return f.Name == containerdConfig }) {
		err = errors.Join(err, noteConfig(h))
	}
	if err != nil {
		return err
	}
	due := h.Ledger.Has(host.KindRestart, containerdUnit)
	if due || h.Ledger.Has(host.KindRestart, kubeletUnit) {
		if _, err := h.Systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
	}
	if err := h.Ledger.Forget(host.KindRestart, kubeletUnit); err != nil { // later phases start it
		return err
	}
	if err := h.Enable(ctx, r, enable...); err != nil || !containerdRuns(h) {
		return err
	}
	if err := h.Start(ctx, r, containerdUnit, due || h.Outdated(ctx, containerdUnit)); err != nil {
		if canceled(ctx) {
			return err
		}
		return runtimeDown(ctx, h, err)
	}
	return h.Ledger.Forget(host.KindRestart, containerdUnit)
}

// noteRestart records, before the files are written, which units read them only at their start: an interrupted run would find them written.
func noteRestart(h *host.Host, files host.FileSet) error {
	readers := map[string]host.FileSet{}
	for _, f := range files {
		unit := containerdUnit
		if strings.HasPrefix(f.Name, path.Join(host.UnitDir, kubeletUnit)) {
			unit = kubeletUnit
		}
		if f.Name != kubeletCredentials && !strings.HasPrefix(f.Name, registriesDir) { // these are read on each pull
			readers[unit] = append(readers[unit], f)
		}
	}
	for unit, read := range readers {
		if len(read.Todo(h)) == 0 {
			continue
		}
		if err := h.Ledger.Record(host.Entry{Kind: host.KindRestart, Name: unit, Op: host.Found}); err != nil {
			return err
		}
	}
	return nil
}

// runtimeAnswers asks containerd for its version and checks that its CRI plugin is enabled.
func runtimeAnswers(ctx context.Context, h *host.Host) error {
	if _, err := h.Exec.Run(ctx, exec.Command{Path: programPath(h, ctr), Args: []string{"version"}}); err != nil {
		if canceled(ctx) {
			return err
		}
		return runtimeDown(ctx, h, err)
	}
	return RuntimeConfig(ctx, h)
}

const journalLines = "20"

func runtimeDown(ctx context.Context, h *host.Host, cause error) error {
	f := finding.Errorf(CodeRuntimeDown, "containerd does not answer", "journalctl -u containerd -n 50", "%w", cause)
	res, err := h.Exec.Run(ctx, exec.Command{Path: "journalctl", Args: []string{"-u", containerdUnit, "-n", journalLines, "--no-pager", "-o", "cat"}})
	if err == nil {
		f.Evidence = strings.Split(strings.TrimSpace(res.Stdout), "\n")
	}
	return f
}

// undoUnits stops what is running, disables the units that ocadm enabled and removes their files.
func undoUnits(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if err := stopContainers(ctx, h, r); err != nil {
		return err
	}
	for _, name := range []string{kubeletUnit, containerdUnit} {
		if err := h.Disable(ctx, r, name); err != nil {
			return err
		}
	}
	undone, err := h.Undo(r, path.Join(host.UnitDir, containerdUnit), path.Join(host.UnitDir, kubeletUnit), kubeletDropIn, containerdConfig, proxyDropIn, ProxyFile,
		kubeletCredentials)
	err = errors.Join(err, h.Ledger.Forget(host.KindContent, containerdConfig))
	if err != nil || len(undone) == 0 {
		return err
	}
	if _, err = h.Systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	// A removed unit leaves its failed state behind; this may find none.
	_, _ = h.Systemctl(ctx, "reset-failed", containerdUnit, kubeletUnit)
	return nil
}

const (
	proxyDropIn = host.UnitDir + "/" + containerdUnit + ".d/http-proxy.conf"
	// ProxyFile holds the variables, because a proxy's address may contain a password, and every user can read a unit.
	ProxyFile = "/etc/containerd/proxy.env"
)

// proxyFiles make containerd pull images through the configured proxies; there are none without a proxy.
func proxyFiles(h *host.Host) host.FileSet {
	n := h.Config.Node
	if n.HTTPProxy == "" && n.HTTPSProxy == "" {
		return nil
	}
	var lines strings.Builder
	for _, v := range []struct{ name, value string }{{"HTTP_PROXY", n.HTTPProxy}, {"HTTPS_PROXY", n.HTTPSProxy}, {"NO_PROXY", strings.Join(n.NoProxy, ",")}} {
		if v.value != "" {
			fmt.Fprintf(&lines, "%s=%s\n", v.name, environmentValue(v.value))
		}
	}
	dropIn := "# Written by ocadm from --http-proxy and --https-proxy, or the environment of init or join.\n[Service]\nEnvironmentFile=-" + ProxyFile + "\n"
	return host.FileSet{{Name: ProxyFile, Data: []byte(lines.String()), Mode: 0o600}, {Name: proxyDropIn, Data: []byte(dropIn), Mode: unitMode}}
}

// credentialFiles give the kubelet, and so every pod of the node, the configured credentials; there are none without credentials.
func credentialFiles(h *host.Host) host.FileSet {
	if h.Config.Node.RegistryAuth == "" {
		return nil
	}
	return host.FileSet{{Name: kubeletCredentials, Data: []byte(h.Config.Node.RegistryAuth), Mode: 0o600}}
}

// environmentValue quotes a value for an environment file of systemd.
func environmentValue(v string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(v) + `"`
}
