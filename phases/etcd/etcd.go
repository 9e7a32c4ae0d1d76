// SPDX-License-Identifier: Apache-2.0

// Package etcd maintains the etcd of a control-plane node: it shows its status, saves and restores snapshots, and replaces the data of a member. It
// runs on the member's machine and needs no API server.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/etcdlog"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Dir is the snapshot directory of a control-plane node. Snapshots contain every Secret of the cluster: mode 0600.
const Dir = host.StateDir + "/etcd"

// DefaultKeep is the retention of snapshots on a control-plane node.
var DefaultKeep = snapshot.Keep{Last: 12, Days: 7}

// Status is the state of etcd, seen from one of its members.
type Status struct {
	// Member is the name of this machine's member.
	Member  string          `json:"member"`
	Members []etcd.Observed `json:"members"`
	// Tolerates is the number of further members that may be lost.
	Tolerates int       `json:"tolerates"`
	Snapshots Snapshots `json:"snapshots"`
	Problems  []string  `json:"problems,omitempty"`
}

// Snapshots describes the snapshots on this machine.
type Snapshots struct {
	Directory string         `json:"directory"`
	Count     int            `json:"count"`
	Bytes     int64          `json:"bytes"`
	Last      *snapshot.Info `json:"last,omitempty"`
}

// Look asks the members for their status. If etcd does not answer, it returns a finding that says what this machine can restore it from.
func Look(ctx context.Context, h *host.Host) (Status, error) {
	m, err := kubernetes.OwnEtcd(h)
	if err != nil {
		return Status{}, err
	}
	out := Status{Member: m.Name, Snapshots: Snapshots{Directory: Dir}}
	list, err := snapshot.List(h.Files.Path(Dir))
	if err != nil {
		return out, err
	}
	out.Snapshots.Count, out.Snapshots.Bytes = len(list), lists.Sum(list, func(s snapshot.Info) int64 { return s.Size })
	if len(list) > 0 {
		out.Snapshots.Last = &list[0]
	}
	c, err := kubernetes.OpenOwnEtcd(ctx, h, true)
	if err != nil {
		return out, Diagnose(h, m, err)
	}
	defer c.Close()
	if out.Members, err = c.Observe(ctx); err != nil {
		return out, Diagnose(h, m, err)
	}
	slices.SortFunc(out.Members, func(a, b etcd.Observed) int { return cmp.Compare(a.Name, b.Name) })
	out.judge(time.Now())
	if slices.ContainsFunc(out.Members, func(o etcd.Observed) bool { return o.Answers }) {
		return out, nil
	}
	return out, finding.New("OCA-4147", "etcd has no majority", "it works while more than half of its voting members answer",
		"start the machines of the others; if those machines are lost for good, on this one: ocadm etcd restore --from-data").With(seen(out.Members)...)
}

// seen returns a line for each member that says whether it answers.
func seen(all []etcd.Observed) []string {
	return lists.Map(all, func(o etcd.Observed) string {
		return fmt.Sprintf("%s at %s: %s", o.Name, o.Peer, cmp.Or(o.Problem, "answers"))
	})
}

// cluster asks the members of the cluster, which it finds through the API server of any control-plane node.
func cluster(ctx context.Context, h *host.Host) ([]etcd.Observed, error) {
	k, err := h.Kube(ctx)
	if err != nil {
		return nil, err
	}
	c, err := kubernetes.OpenEtcd(ctx, h, k)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Observe(ctx)
}

// judge fills in Problems.
func (s *Status) judge(now time.Time) {
	problem := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	voters, up := 0, 0
	for _, m := range s.Members {
		name := m.Node()
		if !m.Learner {
			voters++
		}
		switch {
		case !m.Answers:
			problem("member %s does not answer: %s", name, m.Problem)
		case !m.Learner:
			up++
		}
		if m.Learner {
			problem("member %s is a learner: its join is not complete; if its machine is lost: ocadm node remove %s", name, name)
		}
		for _, a := range m.Alarms {
			problem("member %s reports %s", name, a)
		}
		if m.Quota > 0 && m.Size > m.Quota*4/5 {
			do := "run ocadm etcd defrag"
			if m.InUse > m.Quota*4/5 { // a defragmentation would free next to nothing
				do = "find what fills it with kubectl get --raw /metrics | grep apiserver_resource_objects, delete objects that are no longer needed, then run ocadm etcd defrag"
			}
			problem("the database of member %s uses %d of %d MiB: %s", name, m.Size>>20, m.Quota>>20, do)
		}
	}
	s.Tolerates = max(0, up-(voters/2+1))
	switch last := s.Snapshots.Last; {
	case last == nil:
		problem("this machine has no snapshot: run ocadm etcd snapshot")
	case snapshot.Future(last.Time, now):
		problem("the last snapshot on this machine is from %s, which is in the future: the clock was ahead then or is behind now: check it with timedatectl",
			last.Time.Format(time.RFC3339))
	case now.Sub(last.Time) > why.StaleSnapshot:
		problem("the last snapshot on this machine is %s old: kubectl -n kube-system logs %s-%s", now.Sub(last.Time).Round(time.Minute), Pod, s.Member)
	}
}

// Damaged returns what is wrong with the database of this machine's member. It returns "" if nothing is wrong, or if etcd has the file open.
func Damaged(h *host.Host) string {
	m, err := kubernetes.OwnEtcd(h)
	if err != nil {
		return "" // not a member
	}
	_, err = snapshot.LastRevision(h.Files.Path(snapshot.Database(m.DataDir)))
	if err == nil || !etcdlog.Damage.MatchString(err.Error()) {
		return ""
	}
	return err.Error()
}

// Diagnose explains why this machine's member does not answer, and what a restore would lose.
func Diagnose(h *host.Host, m kubernetes.EtcdMember, cause error) error {
	lines := logLines(h)
	seen := lists.Pick(lines, func(l string) (string, bool) { return l[:min(len(l), 300)], etcdlog.Damage.MatchString(l) })
	revision, derr := snapshot.LastRevision(h.Files.Path(snapshot.Database(m.DataDir)))
	if derr != nil && (etcdlog.Damage.MatchString(derr.Error()) || errors.Is(derr, fs.ErrNotExist)) {
		seen = append(seen, derr.Error())
	}
	f := finding.Errorf("OCA-4147", "The member of etcd on this machine does not answer",
		"tail -n 30 /var/log/pods/kube-system_etcd-*/etcd/*.log; systemctl status kubelet; ocadm why", "%w", cause)
	f.Evidence = lines[max(0, len(lines)-5):]
	if len(seen) == 0 {
		return f
	}
	f.Code, f.What, f.Evidence = "OCA-4014", "The data of etcd on this machine is damaged", seen[max(0, len(seen)-5):]
	f.Remedy = "if other control-plane nodes work, on this machine: ocadm etcd rejoin"
	good, broken, err := snapshot.LastGood(h.Files.Path(Dir))
	f.Evidence = append(f.Evidence, broken...)
	switch {
	case err != nil || good == nil:
		f.Remedy += "; if this is the only one: find a snapshot elsewhere, then ocadm etcd restore FILE"
	default:
		f.Remedy += fmt.Sprintf("; if this is the only one: ocadm etcd restore %s, which loses %s", good.File, Lost(*good, revision, time.Now()))
	}
	return f
}

// Lost describes what a restore loses; revision is the last known one, 0 if unknown.
func Lost(s snapshot.Info, revision int64, now time.Time) string {
	out := "every change since " + s.Time.Format(time.RFC3339)
	if age := now.Sub(s.Time); age >= 0 { // otherwise a clock was wrong
		out += fmt.Sprintf(", %s ago", age.Round(time.Second))
	}
	if n := revision - s.Revision; n >= 0 && n < snapshot.RevisionBump { // a larger difference does not count changes: that etcd was restored since
		out += " (" + lists.Counted(n, "revision") + ")"
	}
	return out
}

// logLines returns the end of etcd's last log.
func logLines(h *host.Host) []string {
	file, _ := kubernetes.NewestLog(h, "kube-system_etcd-*", "etcd")
	lines := strings.FieldsFunc(h.Files.Text(file), func(r rune) bool { return r == '\n' })
	return lines[max(0, len(lines)-60):]
}

// Take saves a snapshot of this machine's member and deletes those beyond the retention.
func Take(ctx context.Context, files host.Files, endpoint, dir string, keep snapshot.Keep) (snapshot.Info, error) {
	tls, err := kubernetes.EtcdTLS(files)
	if err != nil {
		return snapshot.Info{}, err
	}
	c, err := etcd.Open(ctx, etcd.Config{Members: []etcd.Member{{ClientURL: endpoint}}, TLS: tls})
	if err != nil {
		return snapshot.Info{}, kubernetes.EtcdUnwell(err)
	}
	size, err := c.Size(ctx, endpoint)
	c.Close()
	if err != nil {
		return snapshot.Info{}, kubernetes.EtcdUnwell(err)
	}
	info, err := snapshot.Save(ctx, endpoint, tls, dir, size, time.Now())
	if err != nil {
		return info, unsaved(dir, err)
	}
	_, err = keep.Prune(dir)
	return info, err
}

// unsaved explains a snapshot that was not saved because of its directory.
func unsaved(dir string, err error) error {
	_, local := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, snapshot.ErrNoSpace):
		return finding.Errorf("OCA-4148", "There is no space for a snapshot of etcd",
			"free space on the disk of "+dir+", or name another: ocadm etcd snapshot DIRECTORY", "%w", err)
	case local:
		return finding.Errorf("OCA-4148", "A snapshot of etcd cannot be stored in "+dir, "name a directory that can be written to: ocadm etcd snapshot DIRECTORY", "%w", err)
	}
	return err
}

// otherControlPlanes returns the addresses of other control-plane nodes that this machine knows without an API server.
func otherControlPlanes(h *host.Host, m kubernetes.EtcdMember, peers []string) []string {
	out := m.Others()
	for _, p := range peers {
		if u, err := url.Parse(p); err == nil && p != m.PeerURL {
			out = append(out, u.Hostname())
		}
	}
	out = append(out, groupPeers(h)...)
	own, err := url.Parse(m.PeerURL)
	return slices.DeleteFunc(lists.Distinct(out), func(a string) bool { return err == nil && a == own.Hostname() })
}

// groupPeers returns the addresses of the nodes that share the virtual address; none without one, or if the file is damaged.
func groupPeers(h *host.Host) []string {
	var data map[string]string
	if yaml.Unmarshal([]byte(h.Files.Text(vip.SettingsFile)), &data) != nil || data["peers"] == "" {
		return nil
	}
	return strings.Split(data["peers"], ",")
}

// known returns the addresses of other control-plane nodes, and whether the list is complete. Its sources are, in this order: this machine's member;
// its database, if the member does not run; and the cluster, which answers only if another control-plane node runs. Without any of them, a snapshot
// may name some, and only a cluster whose endpoint is this machine has no others.
func known(ctx context.Context, h *host.Host, m kubernetes.EtcdMember) (addresses []string, sure bool) {
	peers, err := kubernetes.EtcdMembers(ctx, h)
	addresses = otherControlPlanes(h, m, peers)
	if err == nil || len(groupPeers(h)) > 0 { // each node of a virtual address knows all others
		return addresses, true
	}
	for range endpointTries {
		if nodes, err := kubernetes.ControlPlaneAddresses(ctx, h); err == nil {
			own, _ := url.Parse(m.PeerURL) // OwnEtcd has parsed it
			return append(addresses, slices.DeleteFunc(nodes, func(a string) bool { return a == own.Hostname() })...), true
		}
	}
	if good, _, err := snapshot.LastGood(h.Files.Path(Dir)); err == nil && good != nil { // from a time when there may have been fewer
		if peers, err = snapshot.Peers(good.File); err == nil {
			addresses = otherControlPlanes(h, m, peers)
		}
	}
	return addresses, kubernetes.EndpointIsHere(h)
}

// endpointTries is the number of attempts to ask the cluster: a load balancer that only checks ports sends one request in three to an API server without etcd.
const endpointTries = 3

// running returns those addresses at which an API server or etcd listens. It assumes that all API servers of a cluster use the same port.
func running(ctx context.Context, addresses []string, apiPort int) []string {
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool {
		for _, port := range []string{"2379", strconv.Itoa(apiPort)} {
			conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(a, port))
			if err == nil {
				_ = conn.Close() // nothing was sent
				return false
			}
		}
		return true
	})
}
