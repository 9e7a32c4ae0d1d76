// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

//go:embed units
var unitFiles embed.FS

// UnitsPhase is the name of Units: after it, containerd answers; after it and SoftwarePhase, the kubelet can be started.
const UnitsPhase = "node-units"

const (
	unitDir        = "/etc/systemd/system"
	containerdUnit = "containerd.service"
	kubeletUnit    = "kubelet.service"
	registriesDir  = "/etc/containerd/certs.d"
	servicePath    = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	unitMode       = 0o644
)

// Units installs and enables the systemd units of containerd and the kubelet, and starts containerd. The kubelet is started by
// kubeadm's kubelet-start.
func Units() host.Phase {
	return host.Phase{
		Name: UnitsPhase, Short: "Configure and start containerd, prepare the kubelet's service",
		Long: "Writes containerd's configuration and the systemd units of containerd and the kubelet, enables both and starts containerd.\n" +
			"Units that came with programs installed by others are used as they are.",
		After:   []string{SoftwarePhase + "/runtime"},
		Timeout: 2 * time.Minute,
		Check:   unitsDone,
		Plan:    planUnits,
		Run:     runUnits,
		Verify: func(ctx context.Context, h *host.Host) error {
			if !containerdRuns(h) {
				return nil
			}
			return runtimeAnswers(ctx, h)
		},
		Undo: undoUnits,
	}
}

// unitSet are the files that the phase writes and the units it enables.
type unitSet struct {
	files map[string][]byte
	// enable are the units; of these, those in ours have files of ours.
	enable, ours []string
}

func (u unitSet) names() []string {
	var names []string
	for n := range u.files {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func units(ctx context.Context, h *host.Host) (unitSet, error) {
	u := unitSet{files: map[string][]byte{}, enable: []string{kubeletUnit}}
	fill := func(file, to string, pairs ...string) error {
		raw, err := unitFiles.ReadFile("units/" + file)
		u.files[to] = []byte(strings.NewReplacer(pairs...).Replace(string(raw)))
		return err
	}
	if !providedUnit(ctx, h, kubelet, kubeletUnit) {
		u.ours = append(u.ours, kubeletUnit)
		exe := programPath(h, kubelet)
		if err := fill(kubeletUnit, path.Join(unitDir, kubeletUnit), "{kubelet}", exe, "{path}", servicePath); err != nil {
			return u, err
		}
		if err := fill("10-kubeadm.conf", path.Join(unitDir, kubeletUnit+".d/10-kubeadm.conf"), "{kubelet}", exe); err != nil {
			return u, err
		}
	}
	if !containerdRuns(h) {
		return u, nil
	}
	u.enable = append(u.enable, containerdUnit)
	if !providedUnit(ctx, h, containerd, containerdUnit) {
		u.ours = append(u.ours, containerdUnit)
		err := fill(containerdUnit, path.Join(unitDir, containerdUnit), "{containerd}", programPath(h, containerd), "{path}", servicePath)
		if err != nil {
			return u, err
		}
	}
	maps.Copy(u.files, proxyFiles(h))
	if configOf(h) != configOurs {
		return u, nil
	}
	config, err := renderConfig(h)
	u.files[containerdConfig] = config
	return u, err
}

func renderConfig(h *host.Host) ([]byte, error) {
	pause, err := pauseImage(h)
	if err != nil {
		return nil, err
	}
	raw, err := unitFiles.ReadFile("units/config.toml")
	return []byte(strings.NewReplacer("{pause}", pause, "{runc}", programPath(h, runc),
		"{restrictOOM}", strconv.FormatBool(h.Config.Node.ContainerdRestrictOOM), "{unpacks}", strconv.Itoa(max(1, min(4, runtime.NumCPU()))),
	).Replace(string(raw))), err
}

// providedUnit reports whether a program that was there before came with a unit of its own.
func providedUnit(ctx context.Context, h *host.Host, name, unit string) bool {
	if _, ok := theirs(h, name); !ok || h.Ledger.Has(host.KindFile, path.Join(unitDir, unit)) {
		return false
	}
	res, err := systemctl(ctx, h, "cat", unit)
	return err == nil && res.Stdout != ""
}

// pauseImage is the image of every pod's sandbox, under the name that kubeadm has for it.
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

func systemctl(ctx context.Context, h *host.Host, args ...string) (exec.Result, error) {
	return h.Exec.Run(ctx, exec.Command{Path: "systemctl", Args: args})
}

func unitsDone(ctx context.Context, h *host.Host) (bool, error) {
	u, err := units(ctx, h)
	if err != nil {
		return false, err
	}
	for n, data := range u.files {
		if describe(h, n, data, modeOf(n)) != "" {
			return false, nil
		}
	}
	for _, name := range u.enable {
		if _, err := systemctl(ctx, h, "is-enabled", name); err != nil {
			return false, nil //nolint:nilerr // not enabled: there is work
		}
	}
	return !containerdRuns(h) || !Outdated(ctx, h, containerdUnit) && runtimeAnswers(ctx, h) == nil, nil
}

func planUnits(ctx context.Context, h *host.Host) ([]string, error) {
	u, err := units(ctx, h)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, n := range u.names() {
		if line := describe(h, n, u.files[n], modeOf(n)); line != "" {
			lines = append(lines, line)
		}
	}
	for _, name := range u.enable {
		if _, err := systemctl(ctx, h, "is-enabled", name); err != nil {
			lines = append(lines, "enable "+name)
		}
	}
	if containerdRuns(h) && (len(lines) > 0 || runtimeAnswers(ctx, h) != nil) {
		lines = append(lines, "start "+containerdUnit)
	}
	return lines, nil
}

func runUnits(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	u, err := units(ctx, h)
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
	restart, reload := containerdRuns(h) && Outdated(ctx, h, containerdUnit), false
	for _, n := range u.names() {
		changed, err := h.Files.Write(n, u.files[n], modeOf(n))
		if err != nil {
			return err
		}
		if n == containerdConfig {
			if err := noteConfig(h); err != nil {
				return err
			}
		}
		if changed {
			r.Changed("wrote %s", n)
			reload = reload || strings.HasPrefix(n, unitDir)
			restart = restart || slices.Contains([]string{containerdConfig, proxyFile, proxyDropIn}, n) || path.Base(n) == containerdUnit
		}
	}
	if reload {
		if _, err := systemctl(ctx, h, "daemon-reload"); err != nil {
			return err
		}
	}
	if err := enable(ctx, h, r, u.enable); err != nil {
		return err
	}
	if !containerdRuns(h) {
		return nil
	}
	verb := "start"
	if restart {
		verb = "restart"
	}
	if _, err := systemctl(ctx, h, verb, containerdUnit); err != nil {
		if canceled(ctx) {
			return err
		}
		return runtimeDown(ctx, h, err)
	}
	r.Changed("%sed %s", verb, containerdUnit)
	return nil
}

// enable makes the units start with the machine. Those that were not enabled before are disabled again by reset.
func enable(ctx context.Context, h *host.Host, r workflow.Reporter, names []string) error {
	var todo []string
	for _, n := range names {
		if _, err := systemctl(ctx, h, "is-enabled", n); err == nil {
			continue
		}
		if err := h.Ledger.Record(host.Entry{Kind: host.KindUnit, Name: n, Op: host.Created}); err != nil {
			return err
		}
		todo = append(todo, n)
	}
	if len(todo) == 0 {
		return nil
	}
	if _, err := systemctl(ctx, h, append([]string{"enable"}, todo...)...); err != nil {
		return err
	}
	r.Changed("enabled %s", strings.Join(todo, ", "))
	return nil
}

// Outdated reports whether a unit's main process runs from a file that was replaced since.
func Outdated(ctx context.Context, h *host.Host, unit string) bool {
	res, err := systemctl(ctx, h, "show", unit, "--property=MainPID", "--value")
	pid := strings.TrimSpace(res.Stdout)
	if err != nil || pid == "" || pid == "0" {
		return false
	}
	exe, err := os.Readlink(h.Files.Path(path.Join("/proc", pid, "exe")))
	return err == nil && strings.HasSuffix(exe, " (deleted)")
}

// runtimeAnswers asks containerd for its version and makes sure that its part for Kubernetes is on.
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

// undoUnits stops what runs, disables the units that ocadm enabled and removes their files.
func undoUnits(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if err := stopContainers(ctx, h, r); err != nil {
		return err
	}
	for _, name := range []string{kubeletUnit, containerdUnit} {
		ours := h.Ledger.Has(host.KindFile, path.Join(unitDir, name))
		if !ours && !h.Ledger.Has(host.KindUnit, name) {
			continue
		}
		if res, err := systemctl(ctx, h, "disable", "--now", name); err != nil && !strings.Contains(res.Stderr, "does not exist") {
			return err
		}
		if err := h.Ledger.Forget(host.KindUnit, name); err != nil {
			return err
		}
		r.Changed("stopped and disabled %s", name)
	}
	undone, err := undo(h, path.Join(unitDir, containerdUnit), path.Join(unitDir, kubeletUnit), path.Join(unitDir, kubeletUnit+".d/10-kubeadm.conf"),
		containerdConfig, proxyDropIn, proxyFile)
	for _, n := range undone {
		r.Changed("removed %s", n)
	}
	err = errors.Join(err, h.Ledger.Forget(host.KindContent, containerdConfig))
	if err != nil || len(undone) == 0 {
		return err
	}
	_, err = systemctl(ctx, h, "daemon-reload")
	if err != nil {
		return err
	}
	// A unit that is gone leaves its failed state behind; there is nothing to do where it leaves none.
	_, _ = systemctl(ctx, h, "reset-failed", containerdUnit, kubeletUnit)
	return nil
}
