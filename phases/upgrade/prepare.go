// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const (
	// soon is the minimum remaining validity of a certificate.
	soon = 30 * 24 * time.Hour
	// reserve is the space to keep free on the disk of /var/lib, and the space that an upgrade without a bundle needs.
	reserve = 2 << 30
)

// NotControlPlane returns the finding for a machine that supports only "upgrade node".
func NotControlPlane() error {
	return finding.New("OCA-4512", "This machine is not a control-plane node", "it has no static pods of Kubernetes",
		"run the command on a control-plane node; on a worker, after all control-plane nodes: ocadm upgrade node")
}

// GatherFacts collects what only this machine knows. It changes nothing.
func GatherFacts(ctx context.Context, h *host.Host, t Target) (Facts, error) {
	f := Facts{CutOff: cutOff(h)}
	var err error
	if f.Etcd, err = members(ctx, h); err != nil {
		f.EtcdProblem = err.Error()
	}
	list, err := snapshot.List(h.Files.Path(etcd.Dir))
	if err != nil {
		return f, err
	}
	if len(list) > 0 {
		f.Snapshot = list[0].Time
	}
	certificates, err := kubernetes.Certificates(h, time.Now(), soon)
	if err != nil {
		return f, err
	}
	f.Certificates = kubernetes.Expiry(certificates, h.Config.Node.Name)
	if f.Free, err = disk.Free(h.Files.Path("/var/lib")); err != nil {
		return f, err
	}
	f.Needed, err = needed(ctx, h)
	f.ForeignKubelet = foreignKubelet(h, t.Version)
	return f, err
}

// needed estimates the bytes that an upgrade takes: images packed and unpacked, programs, and the bundle once more in the depot.
func needed(ctx context.Context, h *host.Host) (int64, error) {
	if h.Bundle == nil {
		return reserve, nil
	}
	images, err := kubernetes.Images(h.Config)
	if err != nil {
		return 0, err
	}
	n := reserve + 3*h.Bundle.ImagesSize(images) + lists.Sum(h.Bundle.Contents().Files, func(f bundle.FileInfo) int64 { return f.Size })
	if !depot.Has(h) {
		return n, nil
	}
	todo, err := depot.Lacking(ctx, h)
	if err != nil || len(todo) == 0 {
		return n, err
	}
	if st, err := os.Stat(h.Config.Node.Bundle); err == nil {
		n += st.Size()
	}
	return n, nil
}

// foreignKubelet returns the path of a kubelet that ocadm did not install and that has another version, or "".
func foreignKubelet(h *host.Host, version string) string {
	if p, ok := h.Facts.Programs["kubelet"]; !ok || p.Version == version || ownKubelet(h) {
		return ""
	}
	return kubeletPath(h)
}

// kubeletPath returns the path of the kubelet that this machine runs.
func kubeletPath(h *host.Host) string {
	if p, ok := h.Facts.Programs["kubelet"]; ok {
		return p.Path
	}
	return kubeletFile
}

// ownKubelet reports whether ocadm installs the kubelet of this machine.
func ownKubelet(h *host.Host) bool {
	_, ok := h.Facts.Programs["kubelet"]
	return !ok || kubeletPath(h) == kubeletFile && h.Ledger.Has(host.KindFile, kubeletFile)
}

// Begin decides what this machine does for a version: start an upgrade, or continue one. An unfinished upgrade may continue to a newer version, as
// the cluster does, but not to an older one, unless it has changed nothing. A version older than the cluster's is always refused.
func Begin(ctx context.Context, u *Upgrade, cluster, version string) error {
	if err := goesBack(cluster, version); err != nil {
		return err
	}
	before, err := Unfinished(u.Host)
	if err != nil {
		return err
	}
	if u.ControlPlane {
		planes, err := kubernetes.ControlPlanes(ctx, u.K)
		if err != nil {
			return err
		}
		u.Alone = len(planes) < 2
	}
	if before != nil && before.To == version {
		u.Record = *before
		u.Record.Reconfigure = before.Reconfigure || u.Reconfigure
		if u.Reconfigure && before.Committed { // its static pods are not compared again
			return finding.New("OCA-4514", "Another upgrade of this machine is not complete", "it was started at "+before.Begun.Format(time.RFC3339),
				"ocadm upgrade node, which completes it; then run the same command again")
		}
		return nil
	}
	switch {
	case before == nil || before.nothingDone(u.Host):
	case semver.Compare(version, before.To) > 0:
		u.Record = before.supersede(version)
		u.Record.Reconfigure = u.Reconfigure
		return nil
	default:
		return finding.New("OCA-4514", "Another upgrade of this machine is not complete", fmt.Sprintf("its target is Kubernetes %s, and %s is older", before.To, version),
			"on a control-plane node, such as this machine if it is one: ocadm upgrade apply, with the bundle of "+before.To+" or of a newer version; it continues")
	}
	var n corev1.Node
	if err := u.K.Get(ctx, client.ObjectKey{Name: u.Host.Config.Node.Name}, &n); err != nil {
		return fmt.Errorf("reading this node: %w", err)
	}
	u.Record = Record{From: n.Status.NodeInfo.KubeletVersion, To: version, Begun: time.Now().UTC(), Reconfigure: u.Reconfigure}
	return nil
}

// Done reports whether nothing is left to do on this machine.
func (u *Upgrade) Done(ctx context.Context) bool {
	if before, err := Unfinished(u.Host); err != nil || before != nil || u.Record.Reconfigure || kubeletIs(ctx, u, u.Record.To) != "" {
		return false
	}
	if !u.ControlPlane {
		return true
	}
	own := kubernetes.StaticVersions(u.Host)
	return !slices.ContainsFunc(kubernetes.StaticPods()[1:], func(name string) bool { return own[name] != u.Record.To }) && !u.addonsLeft(ctx)
}

// addonsLeft reports whether CoreDNS and kube-proxy have yet to follow the control plane: its last node with the former version may have been
// replaced. If that is unknown, it returns false.
func (u *Upgrade) addonsLeft(ctx context.Context) bool {
	list, err := addonsOf(ctx, u.K)
	if err != nil || !proxyBehind(list, u.Record.To) {
		return false
	}
	behind, err := planesBehind(ctx, u)
	return err == nil && len(behind) == 0
}

// MayFollow returns a finding if it is not this node's turn yet: the first control-plane node comes first, then the others, then the workers.
func MayFollow(ctx context.Context, u *Upgrade) error {
	if f := foreignKubelet(u.Host, u.Record.To); f != "" {
		return ForeignKubelet(f)
	}
	own := ThisOcadm(u.Record.To)
	if own != nil || u.ControlPlane {
		return own
	}
	versions, err := kubernetes.APIServers(ctx, u.Host, u.K)
	if err != nil {
		return err
	}
	behind := lists.Pick(slices.Sorted(maps.Keys(versions)), func(at string) (string, bool) {
		return at + " runs " + versions[at], semver.Compare(versions[at], u.Record.To) < 0
	})
	if len(behind) == 0 {
		return nil
	}
	return finding.New("OCA-4504", "Control-plane nodes come before workers", strings.Join(behind, "; "),
		"on those control-plane nodes: ocadm upgrade node; then run the same command again").With(behind...)
}

// ThisOcadm returns a finding if this program does not support a version of Kubernetes.
func ThisOcadm(version string) error {
	if why := kubernetes.Skew(version, version, nil); why != "" {
		return finding.New("OCA-4501", "This ocadm cannot upgrade a node to Kubernetes "+version, why,
			"use the release of ocadm that the first control-plane node was upgraded with (there: ocadm version), for "+runtime.GOARCH+
				": copy it from there (command -v ocadm) if that machine has this architecture; otherwise get it from that release")
	}
	return nil
}
