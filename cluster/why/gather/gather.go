// SPDX-License-Identifier: Apache-2.0

// Package gather takes snapshots for package why: it reads the API server, and through it the logs of containers and the statistics of the kubelets.
// It changes nothing, reads no more than it needs, and removes every secret from the result.
package gather

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
)

// Namespaces are read in addition to the cloud's, if they exist: they hold what every pod depends on.
var Namespaces = []string{"kube-system", "kube-node-lease", "kube-flannel", "local-path-storage", "traefik", "ingress-nginx", cluster.DefaultNamespace}

// parallel is the number of concurrent requests.
const parallel = 8

// Options controls what to read.
type Options struct {
	Cloud client.ObjectKey
	// Everything reads the logs of all containers, with more lines: for a support bundle.
	Everything bool
	// Log reads the log of a container; nil reads none.
	Log cluster.ReadLog
	// Kubelet reads a path of the kubelet of a node; nil reads none.
	Kubelet func(ctx context.Context, node, path string) ([]byte, error)
	// Journal reads the end of the journal of a unit of a node through its kubelet; nil reads none.
	Journal func(ctx context.Context, node, unit string) ([]byte, error)
	// Now is the time of the snapshot, Program the version of ocadm, Host this machine.
	Now           time.Time
	Program, Host string
	// Silent explains why the endpoint of the cluster is not used.
	Silent string
	// Machines holds the machines inspected from within, Disks theirs.
	Machines []why.Machine
	Disks    []why.Disk
}

// Snapshot takes a snapshot. It does not fail: what cannot be read is listed in Missing, an unreadable cluster or cloud in Refused.
func Snapshot(ctx context.Context, c client.Reader, o Options) *why.Snapshot {
	s := &why.Snapshot{Format: why.Format, Time: o.Now.UTC(), Program: o.Program, Host: o.Host, Namespace: o.Cloud.Namespace, Name: o.Cloud.Name,
		Silent: o.Silent, Machines: o.Machines, Disks: o.Disks}
	g := &gathering{c: c, o: o, s: s, limit: make(chan struct{}, parallel)}
	g.cloud(ctx)
	if s.Refused == nil || !slices.Contains([]string{"OCA-4203", "OCA-4204", "OCA-4205"}, s.Refused.Code) {
		g.objects(ctx)
		if o.Everything && len(g.secretsOf) < len(g.secretive()) {
			g.keepQuiet()
		}
		g.inside(ctx)
	} else if o.Everything {
		s.Missing = append(s.Missing, withoutValues)
	}
	strip(s)
	return Scrub(s, g.secrets)
}

// withoutValues is the warning in a support bundle if no Secret could be read.
const withoutValues = "Secrets: the cluster could not be read, so only what looks like a password was removed from journals and logs"

// Refuse returns the snapshot of an unreachable cluster.
func Refuse(o Options, err error) *why.Snapshot {
	s := &why.Snapshot{Format: why.Format, Time: o.Now.UTC(), Program: o.Program, Host: o.Host, Namespace: o.Cloud.Namespace, Name: o.Cloud.Name,
		Machines: o.Machines, Disks: o.Disks, Refused: refusal(err)}
	if slices.Contains(why.NotAsked, s.Refused.Code) {
		s.Missing = append(s.Missing, "the cluster: it was not queried, because "+s.Refused.Cause)
	}
	if o.Everything {
		s.Missing = append(s.Missing, withoutValues)
	}
	return Scrub(s, nil)
}

type gathering struct {
	c       client.Reader
	o       Options
	s       *why.Snapshot
	limit   chan struct{}
	mu      sync.Mutex
	secrets []corev1.Secret
	// secretsOf lists the namespaces whose Secrets were listed.
	secretsOf []string
	// share is the number of bytes read of each log. hanging holds the nodes that timed out.
	share   int
	hanging sync.Map
}

// secretive returns the namespaces whose pods know secrets of clouds. The operator's may be that of another cloud.
func (g *gathering) secretive() []string {
	return slices.Compact(slices.Sorted(slices.Values([]string{g.o.Cloud.Namespace, cluster.DefaultNamespace})))
}

// keepQuiet leaves the output of programs out of a support bundle, because unknown Secrets cannot be removed from it.
func (g *gathering) keepQuiet() {
	g.o.Log, g.o.Journal = nil, nil
	g.s.Machines = slices.Clone(g.s.Machines)
	for i := range g.s.Machines {
		m := &g.s.Machines[i]
		m.Journals, m.StaticPods, m.Findings = nil, nil, slices.Clone(m.Findings)
		for k := range m.Findings {
			m.Findings[k].Evidence = nil // log lines
		}
	}
	for i := range g.s.Pods {
		p := &g.s.Pods[i].Status
		for _, list := range [][]corev1.ContainerStatus{p.InitContainerStatuses, p.ContainerStatuses, p.EphemeralContainerStatuses} {
			for _, c := range list {
				for _, t := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
					if t != nil {
						t.Message = ""
					}
				}
			}
		}
	}
	g.missing("container logs, journals and termination messages", errors.New("left out, because the Secrets whose values are removed from them cannot be listed"))
}

// missing records what could not be read.
func (g *gathering) missing(what string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.s.Missing = append(g.s.Missing, what+": "+err.Error())
}

func refusal(err error) *finding.Finding {
	if l := finding.Of(kube.Explain(err)); len(l) > 0 {
		f := l[0]
		f.Err = nil
		return &f
	}
	f := finding.New("OCA-4203", "The API server does not answer", err.Error(), "kubectl get --raw /livez; on a control-plane node: journalctl -u kubelet -n 50; ls /var/log/pods")
	return &f
}

func (g *gathering) cloud(ctx context.Context) {
	var cr v1alpha1.OnecloudCluster
	err := g.c.Get(ctx, g.o.Cloud, &cr)
	switch {
	case err == nil:
		g.s.Cloud = &cr
	case meta.IsNoMatchError(err):
		f := finding.New("OCA-7005", "The operator is not installed in this cluster", "the cluster does not have the resource OnecloudCluster", finding.InstallOperator)
		if err := g.reads(ctx); err != nil {
			f = *refusal(err)
		}
		g.s.Refused = &f
	case apierrors.IsNotFound(err):
		f := finding.New("OCA-7002", fmt.Sprintf("Cloud %s not found", g.o.Cloud), "no OnecloudCluster has this name in this namespace",
			"kubectl get oc -A; ocadm cluster create --version VERSION")
		g.s.Refused = &f
	default:
		g.s.Refused = refusal(err)
	}
}

// readTimeout bounds one read from an API server that has already answered.
const readTimeout = 10 * time.Second

// reads returns an error if the API server cannot read from etcd. It then still answers discovery requests, but without the CRDs.
func (g *gathering) reads(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := g.c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// objects lists all kinds concurrently.
func (g *gathering) objects(ctx context.Context) {
	var all sync.WaitGroup
	list := func(what string, l client.ObjectList, take func(), opts ...client.ListOption) {
		all.Go(func() {
			g.limit <- struct{}{}
			defer func() { <-g.limit }()
			err := g.c.List(ctx, l, opts...)
			if meta.IsNoMatchError(err) {
				return
			}
			if err != nil {
				g.missing(what, err)
				return
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			take()
		})
	}
	s := g.s
	nodes, classes, volumes := &corev1.NodeList{}, &storagev1.StorageClassList{}, &corev1.PersistentVolumeList{}
	list("nodes", nodes, func() { s.Nodes = nodes.Items })
	list("storage classes", classes, func() { s.Classes = classes.Items })
	list("volumes", volumes, func() { s.Volumes = volumes.Items })
	operators := &appsv1.DeploymentList{}
	list("deployments", operators, func() { s.Deployments = append(s.Deployments, operators.Items...) }, client.MatchingFields{"metadata.name": cluster.OperatorName})
	for _, ns := range slices.Compact(slices.Sorted(slices.Values(append([]string{g.o.Cloud.Namespace}, Namespaces...)))) {
		in := client.InNamespace(ns)
		pods, events, leases, claims := &corev1.PodList{}, &corev1.EventList{}, &coordinationv1.LeaseList{}, &corev1.PersistentVolumeClaimList{}
		deployments, stateful, daemons := &appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &appsv1.DaemonSetList{}
		list("leases of "+ns, leases, func() { s.Leases = append(s.Leases, leases.Items...) }, in)
		list("pods of "+ns, pods, func() { s.Pods = append(s.Pods, pods.Items...) }, in)
		list("events of "+ns, events, func() { s.Events = append(s.Events, events.Items...) }, in)
		list("claims of "+ns, claims, func() { s.Claims = append(s.Claims, claims.Items...) }, in)
		list("deployments of "+ns, deployments, func() { s.Deployments = append(s.Deployments, deployments.Items...) }, in)
		list("stateful sets of "+ns, stateful, func() { s.StatefulSets = append(s.StatefulSets, stateful.Items...) }, in)
		list("daemon sets of "+ns, daemons, func() { s.DaemonSets = append(s.DaemonSets, daemons.Items...) }, in)
	}
	operations := &v1alpha1.OnecloudOperationList{}
	list("operations", operations, func() { s.Operations = operations.Items }, client.InNamespace(g.o.Cloud.Namespace))
	for _, ns := range g.secretive() {
		secrets := &corev1.SecretList{}
		list("secrets of "+ns+" (to remove them from logs)", secrets, func() {
			g.secrets, g.secretsOf = append(g.secrets, secrets.Items...), append(g.secretsOf, ns)
		}, client.InNamespace(ns))
	}
	all.Wait()
	g.sort()
}

// sort makes snapshots of the same cluster equal, whichever list came first.
func (g *gathering) sort() {
	s := g.s
	sortByName(s.Pods)
	sortByName(s.Events)
	sortByName(s.Leases)
	sortByName(s.Claims)
	sortByName(s.StatefulSets)
	sortByName(s.DaemonSets)
	sortByName(s.Deployments)
	s.Deployments = slices.CompactFunc(s.Deployments, func(a, b appsv1.Deployment) bool { return a.Namespace == b.Namespace && a.Name == b.Name })
	slices.Sort(s.Missing)
}

func sortByName[T any, P object[T]](list []T) {
	slices.SortStableFunc(list, func(a, b T) int {
		x, y := P(&a), P(&b)
		return slices.Compare([]string{x.GetNamespace(), x.GetName()}, []string{y.GetNamespace(), y.GetName()})
	})
}
