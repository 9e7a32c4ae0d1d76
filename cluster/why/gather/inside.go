// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"yunion.io/x/ocadm/cluster/why"
)

const (
	// fewLines and manyLines are how much of the end of a log is read, for an answer and for a support bundle.
	fewLines, manyLines = 80, 1000
	logBytes            = 512 << 10
)

// inside reads what the kubelets know: logs and statistics.
func (g *gathering) inside(ctx context.Context) {
	var all sync.WaitGroup
	each := func(do func()) {
		all.Go(func() {
			g.limit <- struct{}{}
			defer func() { <-g.limit }()
			do()
		})
	}
	logs := make([][]why.Log, len(g.s.Pods))
	for i := range g.s.Pods {
		p := &g.s.Pods[i]
		if g.o.Log != nil && (g.o.Everything || why.PodUnwell(p, g.s.Time) || why.OfKeepalived(p)) {
			each(func() { logs[i] = g.logs(ctx, p) })
		}
	}
	disks := make([][]why.Disk, len(g.s.Nodes))
	for i, n := range g.s.Nodes {
		if g.o.Kubelet != nil && nodeReports(n) {
			each(func() { disks[i] = g.disks(ctx, n.Name) })
		}
	}
	machines := make([]why.Machine, len(g.s.Nodes))
	for i, n := range g.s.Nodes {
		if g.o.Journal != nil && nodeReports(n) && (g.o.Everything || why.NodeReady(&n).Status != corev1.ConditionTrue) && !g.lookedAt(n.Name) {
			each(func() { machines[i] = g.machine(ctx, n.Name) })
		}
	}
	all.Wait()
	for _, m := range machines {
		if len(m.Journals) > 0 {
			g.s.Machines = append(g.s.Machines, m)
		}
	}
	g.s.Logs = append(g.s.Logs, slices.Concat(logs...)...)
	g.s.Disks = append(g.s.Disks, slices.Concat(disks...)...)
	slices.Sort(g.s.Missing)
}

// lookedAt reports whether a machine was looked at from within, which shows more.
func (g *gathering) lookedAt(node string) bool {
	return slices.ContainsFunc(g.o.Machines, func(m why.Machine) bool { return m.Node == node })
}

// machine is a node as its kubelet shows it: the journals of its units. A kubelet that may not read journals sends a list of files, or refuses.
func (g *gathering) machine(ctx context.Context, node string) why.Machine {
	m := why.Machine{Node: node, Journals: map[string][]string{}}
	for _, unit := range why.Units {
		raw, err := g.o.Journal(ctx, node, unit)
		text := strings.TrimSpace(string(raw))
		if err == nil && strings.HasPrefix(text, "<") {
			err = errors.New("its kubelet has enableSystemLogQuery off")
		}
		if err != nil {
			g.missing("journal of "+unit+" of node "+node, err)
			return m // the other one would say the same
		}
		if text != "" && text != noEntries {
			m.Journals[unit] = strings.Split(text, "\n")
		}
	}
	return m
}

// noEntries is what journalctl prints of a unit that has logged nothing.
const noEntries = "-- No entries --"

// nodeReports reports whether the kubelet of a node can be asked; one that is lost answers after half a minute at best.
func nodeReports(n corev1.Node) bool {
	return why.NodeReady(&n).Status != corev1.ConditionUnknown
}

func (g *gathering) logs(ctx context.Context, p *corev1.Pod) []why.Log {
	var out []why.Log
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		for _, previous := range []bool{true, false} {
			if previous && s.RestartCount == 0 || !previous && s.State.Running == nil && s.State.Terminated == nil {
				continue
			}
			l := why.Log{Namespace: p.Namespace, Pod: p.Name, Container: s.Name, Previous: previous}
			var err error
			if l.Lines, err = g.log(ctx, l); err != nil {
				g.missing(fmt.Sprintf("log of container %s of pod %s/%s", s.Name, p.Namespace, p.Name), err)
				continue
			}
			if len(l.Lines) > 0 {
				out = append(out, l)
			}
		}
	}
	return out
}

func (g *gathering) log(ctx context.Context, l why.Log) ([]string, error) {
	lines, limit := int64(fewLines), int64(logBytes)
	if g.o.Everything {
		lines = manyLines
	}
	raw, err := g.o.Log(ctx, l.Namespace, l.Pod, &corev1.PodLogOptions{Container: l.Container, Previous: l.Previous, TailLines: &lines, LimitBytes: &limit})
	if apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
		return nil, nil // the container started anew, or its pod ended, since it was listed
	}
	if err != nil {
		return nil, err
	}
	text := strings.TrimRight(string(raw), "\n")
	if text == "" {
		return nil, nil
	}
	return strings.Split(text, "\n"), nil
}

// summary is what is read of a kubelet's /stats/summary (k8s.io/kubelet/pkg/apis/stats/v1alpha1).
type summary struct {
	Node struct {
		FS      *usage `json:"fs"`
		Runtime struct {
			ImageFS *usage `json:"imageFs"`
		} `json:"runtime"`
	} `json:"node"`
}

type usage struct {
	Available  uint64 `json:"availableBytes"`
	Capacity   uint64 `json:"capacityBytes"`
	InodesFree uint64 `json:"inodesFree"`
	Inodes     uint64 `json:"inodes"`
}

func (g *gathering) disks(ctx context.Context, node string) []why.Disk {
	var s summary
	if err := g.kubelet(ctx, node, "stats/summary", &s); err != nil {
		g.missing("statistics of node "+node, err)
		return nil
	}
	var settings struct {
		Kubelet kubeletv1beta1.KubeletConfiguration `json:"kubeletconfig"`
	}
	if err := g.kubelet(ctx, node, "configz", &settings); err != nil {
		g.missing("settings of the kubelet of node "+node, err)
	}
	var out []why.Disk
	for what, u := range map[string]*usage{"nodefs": s.Node.FS, "imagefs": s.Node.Runtime.ImageFS} {
		if u != nil && u.Capacity > 0 {
			d := why.Disk{Node: node, What: what, Capacity: u.Capacity, Free: u.Available, Inodes: u.Inodes, InodesFree: u.InodesFree}
			out = append(out, d.Under(settings.Kubelet))
		}
	}
	slices.SortFunc(out, func(a, b why.Disk) int { return strings.Compare(a.What, b.What) })
	return out
}

func (g *gathering) kubelet(ctx context.Context, node, path string, into any) error {
	raw, err := g.o.Kubelet(ctx, node, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
