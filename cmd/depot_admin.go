// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/internal/ui"
	depotphase "yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/kubernetes"
)

func openDepot(directory string) (*depot.Store, error) {
	if _, err := os.Stat(directory); err != nil {
		return nil, noDepot(err)
	}
	return depot.Open(directory, depotphase.Reserve)
}

func noDepot(err error) error {
	return finding.Errorf("OCA-2317", "This machine has no depot", "run the command as root on a control-plane node that ocadm init set up", "%w", err)
}

func newDepotStatus(a *app) *cobra.Command {
	var directory string
	c := shows(a, &cobra.Command{
		Use: "status", Short: "Show what the depot of this node holds",
		Long: "Shows the roots of the depot, their sizes, and the free space of the disk. A root is the content of one bundle, one ocadm or this node,\n" +
			"or an image that nodes have pulled; roots share what they have in common. ocadm init phase depot repairs an incomplete root. Then it\n" +
			"lists the images that wait to be copied from their registries, with the last error.",
		Example: "  ocadm depot status\n  ocadm depot status -o json | jq .free",
	}, "table", func(c *cobra.Command, _ []string) (depot.Status, error) {
		s, err := openDepot(directory)
		if err != nil {
			return depot.Status{}, err
		}
		return s.Status(c.Context())
	}, depotTable)
	c.Flags().StringVar(&directory, "directory", depot.DefaultDir, "directory of the depot")
	return c
}

func depotTable(p *page, st depot.Status) {
	table(p, []string{"ROOT OR IMAGE", "SINCE", "IMAGES", "FILES", "SIZE", "COMPLETE"}, st.Roots, func(r depot.RootStatus) []string {
		return []string{cmp.Or(r.Image, r.Name), r.Since.UTC().Format(time.RFC3339), strconv.Itoa(r.Images), strconv.Itoa(r.Files), ui.Bytes(r.Size), yesNo(r.Complete)}
	})
	for i, want := range st.Wanted {
		if i == 0 {
			p.line("\nto be copied:")
		}
		p.line("  %s  %s", want.Image, cmp.Or(strings.ReplaceAll(want.Why, "\n", "; "), "soon"))
	}
	p.line("\n%s uses %s; %s of the disk are free, of which the depot reserves %s", st.Directory, ui.Bytes(st.Used), ui.Bytes(st.Free), ui.Bytes(st.Reserve))
}

// fillGrace protects what an interrupted fill has stored so far.
const fillGrace = 2 * time.Hour

// pruned is the output of "depot prune -o json". Freed is in bytes.
type pruned struct {
	Removed []string `json:"removed"`
	Kept    []string `json:"kept"`
	Freed   int64    `json:"freed"`
}

func newDepotPrune(a *app) *cobra.Command {
	var directory, kubeconfig string
	var dryRun bool
	c := shows(a, &cobra.Command{
		Use: "prune", Short: "Remove what no workload of the cluster uses",
		Long: "Removes the roots that provide no image for a workload of the cluster or for a kept release of a cloud, and the content that no\n" +
			"other root needs. If several roots contain an image, the latest counts. Prune always keeps the latest bundle and the latest ocadm, and\n" +
			"keeps a copied image for a week after a node requested it. It removes the content of nodes that are no longer in the cluster, unless\n" +
			"this is its only source. The depots of other control-plane nodes follow. Prune is refused until every update, rollback, restore, check\n" +
			"and rehearsal of a cloud has ended.",
		Example: "  ocadm depot prune --dry-run\n  ocadm depot prune -o json",
	}, "text", func(c *cobra.Command, _ []string) (done pruned, err error) {
		s, err := openDepot(directory)
		if err != nil {
			return done, err
		}
		_, k, err := administrator(c.Context(), kubeconfig)
		if err != nil {
			return done, err
		}
		if err := quiet(c.Context(), k); err != nil && !dryRun {
			return done, err
		}
		used, err := imagesInUse(c.Context(), k)
		if err != nil {
			return done, noCluster(err)
		}
		nodes, err := nodeNames(c.Context(), k)
		if err != nil {
			return done, noCluster(err)
		}
		of := depot.Cluster{Uses: func(image string) bool { return used[image] }, Left: func(node string) bool { return !nodes[node] }}
		if dryRun {
			done.Removed, done.Kept, err = s.Unused(c.Context(), of)
		} else {
			done.Removed, done.Kept, done.Freed, err = s.Prune(c.Context(), of, fillGrace)
		}
		return done, err
	}, func(p *page, done pruned) {
		p.lines(map[bool]string{true: "would remove ", false: "removed "}[dryRun], done.Removed...)
		p.line("kept %s; freed %s", strings.Join(done.Kept, ", "), ui.Bytes(done.Freed))
	})
	c.Flags().StringVar(&directory, "directory", depot.DefaultDir, "directory of the depot")
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of an administrator (default: "+kubernetes.AdminKubeconfig+")")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "remove nothing")
	return c
}

// quiet returns a finding for an operation that has not ended and pulls images: no release and no workload may name them yet.
func quiet(ctx context.Context, k client.Client) error {
	all, err := cluster.Operations(ctx, k, "", "")
	if err != nil && len(finding.Of(err)) == 0 { // the finding is that the cluster defines none
		return noCluster(err)
	}
	moves := []string{v1alpha1.ActionUpdate, v1alpha1.ActionRollback, v1alpha1.ActionRestore, v1alpha1.ActionCheck, v1alpha1.ActionRehearse}
	for _, o := range all {
		if !o.Status.Phase.Final() && slices.Contains(moves, o.Spec.Action) {
			return finding.New("OCA-2330", "An operation still needs images of the depot", fmt.Sprintf("operation %s of cloud %s/%s is %s", o.Name, o.Namespace, o.Spec.Cloud,
				cmp.Or(o.Status.Phase, v1alpha1.OperationPending)), "wait until it has ended, or resume or cancel it: ocadm operation show "+o.Name)
		}
	}
	return nil
}

// imagesInUse returns the images of all workloads, and those that a rollback would bring back: their full names, or their digests if given.
func imagesInUse(ctx context.Context, k client.Client) (map[string]bool, error) {
	objs, err := cluster.Released(ctx, k)
	if err != nil {
		return nil, err
	}
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "PodList"}, {Group: "apps", Version: "v1", Kind: "DeploymentList"}, {Group: "apps", Version: "v1", Kind: "ReplicaSetList"},
		{Group: "apps", Version: "v1", Kind: "DaemonSetList"}, {Group: "apps", Version: "v1", Kind: "StatefulSetList"},
		{Group: "apps", Version: "v1", Kind: "ControllerRevisionList"},
		{Group: "batch", Version: "v1", Kind: "JobList"}, {Group: "batch", Version: "v1", Kind: "CronJobList"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := k.List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing the cluster's workloads: %w", err)
		}
		objs = append(objs, lists.Map(list.Items, func(o unstructured.Unstructured) map[string]any { return o.Object })...)
	}
	used := map[string]bool{}
	for _, o := range objs {
		for _, image := range imagesIn(o) {
			if tag, err := name.NewTag(image); err == nil {
				used[ownimage.FullName(tag)] = true
			} else if digest, err := name.NewDigest(image); err == nil { // a tag beside it does not count
				used[digest.DigestStr()] = true
			}
		}
	}
	return used, nil
}

func nodeNames(ctx context.Context, k client.Client) (map[string]bool, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := k.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	return lists.Set(list.Items, func(n metav1.PartialObjectMetadata) string { return n.Name }), nil
}

// podImages returns the images of a node's pods, by full name. A kubelet may read those, so the depot needs no further permission. While the API
// server does not answer, the last list is returned.
func podImages(k client.Client, node string) func(context.Context) ([]string, error) {
	var mu sync.Mutex
	var last []string
	return func(ctx context.Context) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		var pods corev1.PodList
		err := k.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			return last, fmt.Errorf("listing the pods of this node: %w", err)
		}
		var out []string
		for _, p := range pods.Items {
			for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
				if tag, err := name.NewTag(c.Image); err == nil {
					out = append(out, ownimage.FullName(tag))
				}
			}
		}
		last = lists.Distinct(out)
		return last, nil
	}
}

// apiTimeout bounds a request to an API server that may be down.
const apiTimeout = 10 * time.Second

// otherDepots finds the depots of other control-plane nodes by the addresses of their API servers, with the permissions of this node.
func otherDepots(k client.Client, connect func(address string) *depot.Client, port string) func(context.Context) ([]*depot.Client, error) {
	return func(ctx context.Context) ([]*depot.Client, error) {
		ctx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		var endpoints corev1.Endpoints //nolint:staticcheck // nodes may not read EndpointSlices
		if err := k.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, &endpoints); err != nil {
			return nil, fmt.Errorf("listing the control-plane nodes: %w", err)
		}
		own, err := net.InterfaceAddrs()
		if err != nil {
			return nil, fmt.Errorf("listing the addresses of this node: %w", err)
		}
		var out []*depot.Client
		for _, subset := range endpoints.Subsets {
			for _, at := range subset.Addresses {
				if !slices.ContainsFunc(own, func(a net.Addr) bool { return strings.HasPrefix(a.String(), at.IP+"/") }) {
					out = append(out, connect(net.JoinHostPort(at.IP, port)))
				}
			}
		}
		return out, nil
	}
}
