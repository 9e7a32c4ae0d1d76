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
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
)

const (
	// fewLines and manyLines are the lines read from the end of a log, for an answer and for a support bundle.
	fewLines, manyLines = 80, 1000
	// leastLines is read whatever the length.
	leastLines = 8
	// logsBytes bounds all logs: removing the secrets from 30 MB takes ten seconds. Each log gets an equal share, within logLeast and logMost.
	logsBytes, logLeast, logMost = 32 << 20, 16 << 10, 512 << 10
	// hostLogs is how many logs of host agents that are ready are read: a large cloud has hundreds.
	hostLogs = 50
	// logTimeout bounds a request for a log: a kubelet that was just lost would hold it for half a minute.
	logTimeout = 10 * time.Second
)

// inside reads statistics, journals and logs from the kubelets, starting with the logs of unhealthy pods.
func (g *gathering) inside(ctx context.Context) {
	var all sync.WaitGroup
	each := func(do func()) {
		g.limit <- struct{}{} // here, so that they begin in order
		all.Go(func() {
			defer func() { <-g.limit }()
			do()
		})
	}
	disks := make([][]why.Disk, len(g.s.Nodes))
	for i, n := range g.s.Nodes {
		if g.o.Kubelet != nil && nodeReports(n) {
			each(func() { disks[i] = g.disks(ctx, n.Name) })
		}
	}
	machines := make([]why.Machine, len(g.s.Nodes))
	for i, n := range g.s.Nodes {
		if g.o.Journal != nil && nodeReports(n) && (g.o.Everything || !kube.NodeReady(&n)) && !g.lookedAt(n.Name) {
			each(func() { machines[i] = g.machine(ctx, n.Name) })
		}
	}
	logs := make([][]why.Log, len(g.s.Pods))
	wanted := g.podsToRead()
	g.share = min(logMost, max(logLeast, logsBytes/max(1, g.logsOf(wanted))))
	for _, i := range wanted {
		each(func() { logs[i] = g.logs(ctx, &g.s.Pods[i]) })
	}
	all.Wait()
	g.s.Machines = append(g.s.Machines, lists.Filter(machines, func(m why.Machine) bool { return len(m.Journals) > 0 })...)
	g.s.Logs = append(g.s.Logs, slices.Concat(logs...)...)
	g.s.Disks = append(g.s.Disks, slices.Concat(disks...)...)
	slices.Sort(g.s.Missing)
}

// podsToRead returns the indices of the pods whose logs are read, unhealthy ones first. It skips nodes that do not report, as their logs are
// unreachable.
func (g *gathering) podsToRead() []int {
	if g.o.Log == nil {
		return nil
	}
	silent, unread := map[string]bool{}, map[string]int{}
	for _, n := range g.s.Nodes {
		silent[n.Name] = !nodeReports(n)
	}
	var ill, well []int
	hosts := 0
	for i := range g.s.Pods {
		p := &g.s.Pods[i]
		unwell := why.PodUnwell(p, g.s.Time)
		switch {
		case !g.o.Everything && !unwell && !why.OfKeepalived(p) && (!why.OfHostAgent(p) || hosts == hostLogs):
		case silent[p.Spec.NodeName]:
			unread[p.Spec.NodeName]++
		case unwell:
			ill = append(ill, i)
		default:
			if why.OfHostAgent(p) {
				hosts++
			}
			well = append(well, i)
		}
	}
	for node, pods := range unread {
		g.missing(fmt.Sprintf("logs of %d pods on node %s", pods, node), errors.New("the node does not report"))
	}
	return append(ill, well...)
}

func (g *gathering) logsOf(pods []int) int {
	return lists.Sum(pods, func(i int) int { return len(starts(&g.s.Pods[i])) })
}

// starts returns the logs that the containers of a pod have: those of the current and of the previous run.
func starts(p *corev1.Pod) []why.Log {
	var out []why.Log
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		for _, previous := range []bool{true, false} {
			if previous && s.RestartCount > 0 || !previous && (s.State.Running != nil || s.State.Terminated != nil) {
				out = append(out, why.Log{Namespace: p.Namespace, Pod: p.Name, Container: s.Name, Previous: previous})
			}
		}
	}
	return out
}

// lookedAt reports whether a machine was inspected from within, which shows more.
func (g *gathering) lookedAt(node string) bool {
	return slices.ContainsFunc(g.o.Machines, func(m why.Machine) bool { return m.Node == node })
}

// machine returns a node as seen through its kubelet: the journals of its units. A kubelet that may not read journals sends a list of files, or
// refuses.
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
			return m // the other one would fail, too
		}
		if text != "" && text != noEntries {
			m.Journals[unit] = strings.Split(text, "\n")
		}
	}
	return m
}

// noEntries is the output of journalctl for a unit without log entries.
const noEntries = "-- No entries --"

// nodeReports reports whether the kubelet of a node can be queried; one that is lost answers after half a minute at best.
func nodeReports(n corev1.Node) bool {
	return kube.ReadyCondition(&n).Status != corev1.ConditionUnknown
}

func (g *gathering) logs(ctx context.Context, p *corev1.Pod) []why.Log {
	var out []why.Log
	for _, l := range starts(p) {
		what := fmt.Sprintf("log of container %s of pod %s/%s", l.Container, p.Namespace, p.Name)
		if _, hangs := g.hanging.Load(p.Spec.NodeName); hangs {
			g.missing(what, errors.New("node "+p.Spec.NodeName+" did not return another log"))
			continue
		}
		var err error
		if l.Lines, err = g.log(ctx, l); err != nil {
			g.missing(what, err)
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				g.hanging.Store(p.Spec.NodeName, true)
			}
			continue
		}
		if len(l.Lines) > 0 {
			out = append(out, l)
		}
	}
	return out
}

func (g *gathering) log(ctx context.Context, l why.Log) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	lines, limit := int64(fewLines), int64(logMost)
	if g.o.Everything {
		lines = manyLines
	}
	var raw []byte
	var err error
	for ; ; lines /= 8 {
		raw, err = g.o.Log(ctx, l.Namespace, l.Pod, &corev1.PodLogOptions{Container: l.Container, Previous: l.Previous, TailLines: &lines, LimitBytes: &limit})
		if err != nil || int64(len(raw)) < limit || lines < leastLines {
			break // otherwise it was cut at its end, which matters most
		}
	}
	if apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
		return nil, nil // the container restarted, or its pod ended, since it was listed
	}
	if err != nil {
		return nil, err
	}
	raw = raw[max(0, len(raw)-g.share):]
	text := strings.TrimRight(string(raw), "\n")
	if text == "" {
		return nil, nil
	}
	return strings.Split(text, "\n"), nil
}

// summary holds the fields used from a kubelet's /stats/summary (k8s.io/kubelet/pkg/apis/stats/v1alpha1).
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
