// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/status"
)

type facts struct {
	cloud *v1alpha1.OnecloudCluster
	// update holds the requested changes, or nil if the operation only checks.
	update *v1alpha1.UpdateParameters
	// images reports whether most pods get another image.
	images bool
	now    time.Time
	// server describes the database server; nil for a cloud without one.
	server *server
	// nodes are the cloud's nodes; nil if the operator may not read nodes.
	nodes []status.Node
	// local lists the components with volumes on the disk of a node, by node.
	local map[string][]string
}

// findingsOf gathers the facts and runs all checks.
func findingsOf(ctx context.Context, r *Run) finding.List {
	update := r.Operation.Spec.Update
	f := facts{update: update, images: update != nil && update.Version+update.ImageRepository != "", now: time.Now()}
	if err := f.read(ctx, r); err != nil {
		return finding.List{finding.Errorf("OCA-7050", "The cloud cannot be read", "ocadm cluster status", "%w", err)}
	}
	f.server = serverOf(ctx, r, f.cloud)
	var out finding.List
	for _, judge := range []func(facts) finding.List{unpaused, health, certificates, nodes, pressure, cordoned, way, unsaved, databases, space} {
		out = append(out, judge(f)...)
	}
	return out
}

// read reads the cloud, its nodes, and its volumes on their disks.
func (f *facts) read(ctx context.Context, r *Run) (err error) {
	if f.cloud, err = r.Cloud(ctx); err != nil {
		return err
	}
	if f.nodes, err = nodesOf(ctx, r.Direct, r.Client, f.cloud); err != nil {
		return err
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.Client.List(ctx, &claims, client.InNamespace(f.cloud.Namespace)); err != nil {
		return fmt.Errorf("listing claims: %w", err)
	}
	f.local = localVolumes(f.cloud, claims.Items)
	return nil
}

// unsaved judges an update without database copies.
func unsaved(f facts) finding.List {
	if f.update == nil || !f.update.NoBackup {
		return nil
	}
	was, to := f.cloud.Status.Release.Version, f.update.Version
	if f.update.AllowDowngrade || to != "" && changesTables(was, to) {
		return finding.List{finding.New("OCA-7064", "An update that changes tables needs copies of the databases", fmt.Sprintf("from %s to %s", was, to),
			"omit --no-backup")}
	}
	return finding.List{finding.Warn("OCA-7065", "The databases are not copied", "--no-backup was given",
		"omit --no-backup; otherwise a failed update reverts the services, but not their changes to the databases")}
}

// unpaused refuses a cloud that a user has paused: the reconciler would not follow, and the first wave would fail after minutes.
func unpaused(f facts) finding.List {
	if all, _ := v1alpha1.Paused(f.cloud.Annotations[v1alpha1.AnnotationPaused]); !all {
		return nil
	}
	return finding.List{finding.New("OCA-7022", "The cloud is paused", "annotation "+v1alpha1.AnnotationPaused+" is true, so nothing would be changed",
		"ocadm cluster start")} // without the annotation alone, a cloud that was stopped would stay so
}

// health finds components that do not serve.
func health(f facts) (out finding.List) {
	bad := lists.Pick(f.cloud.Status.Components, func(c v1alpha1.ComponentStatus) (string, bool) {
		return fmt.Sprintf("%s is %s: %s", c.Name, c.State, c.Message), !c.State.Settled()
	})
	if len(bad) == 0 {
		return nil
	}
	return finding.List{finding.New("OCA-7051", "Components of the cloud are not available", strings.Join(bad, "; "),
		"ocadm cluster status; repair them first").With(bad...)}
}

// certificateMargin is how long certificates must still be valid. They must not expire during an update, or in the days in which its outcome shows.
const certificateMargin = 7 * 24 * time.Hour

// certificates finds certificates that have expired or soon will. The operator renews its own long before. If it did not, or users provide theirs, there
// is work to do first.
func certificates(f facts) (out finding.List) {
	c := f.cloud.Status.Certificates
	for _, one := range []struct {
		what string
		end  time.Time
	}{{"the certificate of the services", c.NotAfter.Time}, {"the CA", c.CANotAfter.Time}} {
		if one.end.IsZero() || one.end.After(f.now.Add(certificateMargin)) {
			continue
		}
		out = append(out, finding.New("OCA-7052", "A certificate of the cloud expires too soon", fmt.Sprintf("%s expires %s", one.what, one.end.UTC().Format(time.RFC3339)),
			"ocadm cluster status shows why it was not renewed; to provide your own: docs/configure.md, Certificates of your own"))
	}
	return out
}

// nodesOf returns the nodes of the cloud, or nil if the operator may not read nodes.
func nodesOf(ctx context.Context, direct, cached client.Reader, cloud *v1alpha1.OnecloudCluster) ([]status.Node, error) {
	var list corev1.NodeList
	var pods corev1.PodList
	if err := direct.List(ctx, &list); apierrors.IsForbidden(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	if err := cached.List(ctx, &pods, client.InNamespace(cloud.Namespace)); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return status.OfCloud(lists.Map(list.Items, func(n corev1.Node) status.Node { return status.NodeOf(&n) }), pods.Items), nil
}

// pressure finds nodes under pressure. Short of disk space or process IDs, they accept no new pods, so a wave would end there. Short of memory, they still
// accept pods that request some, and may evict others.
func pressure(f facts) (out finding.List) {
	var hard, soft []string
	for _, n := range f.nodes {
		if !n.Ready || len(n.Pressure) == 0 {
			continue
		}
		text := n.Name + " has " + strings.Join(n.Pressure, ", ")
		if slices.Equal(n.Pressure, []string{string(corev1.NodeMemoryPressure)}) {
			soft = append(soft, text)
			continue
		}
		hard = append(hard, text)
	}
	const what, remedy = "Nodes of the cloud are under pressure", "kubectl describe node NAME shows the reason; run ocadm node doctor on it; then try again"
	if len(hard) > 0 {
		out = append(out, finding.New("OCA-7072", what, strings.Join(hard, "; "), remedy))
	}
	if len(soft) > 0 {
		out = append(out, finding.Warn("OCA-7072", what, strings.Join(soft, "; "), remedy))
	}
	return out
}

// localVolumes returns the enabled components with volumes of the local-path provisioner, by node.
func localVolumes(cloud *v1alpha1.OnecloudCluster, claims []corev1.PersistentVolumeClaim) map[string][]string {
	out := map[string][]string{}
	for i := range claims {
		p := &claims[i]
		name, node := component.NameOf(p), p.Annotations[volume.AnnSelectedNode]
		runs := slices.ContainsFunc(cloud.Status.Components, func(c v1alpha1.ComponentStatus) bool { return c.Name == name && c.State != v1alpha1.Disabled })
		mine := component.OfCloud(p, cloud.Name) || component.OfCloud(p, "data-"+cloud.Name) // the latter of StatefulSets
		if runs && mine && p.Annotations[volume.AnnStorageProvisioner] == "rancher.io/local-path" && !slices.Contains(out[node], name) {
			out[node] = append(out[node], name)
		}
	}
	return out
}

// cordoned refuses other images while a node accepts no new pods and has volumes of the cloud: a new pod could run nowhere, nor could the earlier one again
// when the update reverts. Without other images, most pods stay.
func cordoned(f facts) (out finding.List) {
	for _, n := range f.nodes {
		if names := f.local[n.Name]; n.Cordoned && len(names) > 0 {
			slices.Sort(names)
			one := finding.New("OCA-3106", "A node accepts no new pods", n.Name+" is cordoned, and volumes of "+strings.Join(names, ", ")+
				" are on its disk: their new pods could not start", "kubectl uncordon "+n.Name+"; then try again")
			if !f.images {
				one.Severity = finding.Warning
			}
			out = append(out, one)
		}
	}
	return out
}

// nodes finds the cloud's nodes that are not Ready. The others can be updated without them.
func nodes(f facts) finding.List {
	c := meta.FindStatusCondition(f.cloud.Status.Conditions, v1alpha1.ConditionNodesReady)
	if c == nil || c.Status == "True" {
		return nil
	}
	return finding.List{finding.Warn("OCA-7053", "Nodes of the cloud are not Ready", c.Message, "kubectl get nodes; the other nodes are updated without them")}
}

// way judges the update from the current version to the requested one.
func way(f facts) finding.List {
	if f.update == nil || f.update.Version == "" {
		return nil
	}
	return path(f.cloud.Status.Release.Version, f.update.Version, f.update.AllowDowngrade)
}

var numbers = regexp.MustCompile(`^v?([0-9]+\.[0-9]+)\.([0-9]+)`)

// Codes of the findings that reject a version.
const codeUnknown, codeSkipped, codeBack = "OCA-7059", "OCA-7060", "OCA-7061"

// releaseOf returns the index of a version's minor release, and its patch number. An update goes from one minor release to the next. known is false for
// anything but the version of a release, such as the tag of a custom build.
func releaseOf(tag string) (minor, patch int, known bool) {
	n := numbers.FindStringSubmatch(tag)
	if n == nil {
		return 0, 0, false
	}
	minor = slices.Index(version.CloudReleases(), "v"+n[1])
	patch, _ = strconv.Atoi(n[2])
	return minor, patch, minor >= 0
}

const noSuchVersion = "The cloud has no such version"

// unknown rejects mistyped versions, and versions of releases that this operator does not know.
func unknown(to string) finding.List {
	if hint := version.CloudHint(to); hint != "" {
		return finding.List{finding.New(codeUnknown, noSuchVersion, fmt.Sprintf("%q is not the version of a release", to), hint)}
	}
	if version.UnknownRelease(to) {
		return finding.List{UnknownRelease("operator", "the operator", to)}
	}
	return nil
}

// UnknownRelease returns the finding about a version of a release that this build does not know. who and name are what to call the build, with and
// without its version.
func UnknownRelease(who, name, to string) finding.Finding {
	return finding.New(codeUnknown, noSuchVersion, fmt.Sprintf("%s %s does not know the release of %s; it knows %s", who, version.Version, to,
		strings.Join(version.CloudReleases(), ", ")), "correct the version; if it is newer than "+name+", update ocadm and the operator first: docs/upgrade.md")
}

// path judges an update between two versions. Tags that are not versions, such as those of other builds, are not judged.
func path(from, to string, allowDowngrade bool) finding.List {
	if list := unknown(to); len(list) > 0 {
		return list
	}
	was, _, known := releaseOf(from)
	is, _, too := releaseOf(to)
	switch {
	case !known || !too:
		return nil
	case is > was+1:
		return finding.List{finding.New(codeSkipped, "The update skips a release", fmt.Sprintf("from %s to %s", from, to),
			"update to the last release of "+version.CloudReleases()[was+1]+" first")}
	case earlier(from, to) && !allowDowngrade:
		return finding.List{finding.New(codeBack, "The update goes back to an earlier release",
			fmt.Sprintf("from %s to %s: its services revert database changes and may lose data", from, to),
			"to go back to a release that the cloud ran, choose it in ocadm cluster history: ocadm cluster rollback --to REVISION --restore-databases; or, if you accept "+
				"the loss, ocadm cluster update --version "+to+" --allow-downgrade")}
	case earlier(from, to):
		return finding.List{finding.Warn("OCA-7062", "The update goes back to an earlier release", fmt.Sprintf("from %s to %s", from, to),
			"its services revert database changes and may lose data; to restore the earlier databases instead: ocadm cluster rollback --restore-databases")}
	}
	return nil
}

// earlier reports whether to is an earlier version than from. A lower patch also changes tables back: v4.0.2 empties columns of v4.0.3.
func earlier(from, to string) bool {
	was, wasPatch, known := releaseOf(from)
	is, isPatch, too := releaseOf(to)
	return known && too && (is < was || is == was && isPatch < wasPatch)
}

// changesTables reports whether services of one version are certain to change the tables of another.
func changesTables(from, to string) bool { return minorOf(from) != minorOf(to) || earlier(from, to) }

// minorOf returns the minor release of a version, or the version itself if it has none.
func minorOf(version string) string {
	if n := numbers.FindStringSubmatch(version); n != nil {
		return n[1]
	}
	return version
}
