// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/require"
)

// Backups go to a claim, to a directory of a node, or to a bucket, in which case the pod has neither. If both are set, the bucket wins.
func TestPlacesOfBackups(t *testing.T) {
	const s3 = "s3: {endpoint: s3.example.com, bucket: b, secret: keys}"
	for _, c := range []struct {
		name, spec     string
		claims, mounts int
		dir, place     string
	}{
		{"a claim", "{disable: false}", 1, 1, "", "claim default-backup"},
		{"a directory", "{disable: false, hostPath: /srv/backups}", 0, 1, "/srv/backups", "$(OCADM_NODE):/srv/backups"},
		{"a bucket", "{disable: false, " + s3 + "}", 0, 0, "", ""},
		{"both", "{disable: false, hostPath: /srv/backups, " + s3 + "}", 0, 0, "", ""},
	} {
		cluster := cloud(t, "{mysql: {host: 10.0.0.5}, version: v4.0.4, backup: "+c.spec+"}", "ce", "FullStack")
		o, err := render.Component(cluster.Components["backup"], component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)})
		require.NoError(t, err)
		pod, dir := podOf(o.Workload), ""
		for _, v := range pod.Volumes {
			if v.HostPath != nil && v.Name == "dumps" {
				dir = v.HostPath.Path
			}
		}
		mounts := slices.DeleteFunc(slices.Clone(pod.Containers[0].VolumeMounts), func(m corev1.VolumeMount) bool { return m.MountPath != "/backup" })
		place := ""
		for _, arg := range pod.Containers[0].Args {
			if value, is := strings.CutPrefix(arg, "--place="); is {
				place = value
			}
		}
		if len(o.PVCs) != c.claims || len(mounts) != c.mounts || dir != c.dir || place != c.place {
			t.Errorf("%s: %d claims, %d mounts, directory %q, place %q; want %+v", c.name, len(o.PVCs), len(mounts), dir, place, c)
		}
	}
}

// The backup pod reads its node's etcd snapshots, and prefers nodes that have some. This holds for each place; a user's choice of nodes wins.
func TestSnapshotsOfBackups(t *testing.T) {
	for spec, preferred := range map[string]int{
		"{disable: false}": 1, "{disable: false, hostPath: /srv/backups}": 1, "{disable: false, s3: {endpoint: s3.example.com, bucket: b, secret: keys}}": 1,
		"{disable: false, affinity: {podAntiAffinity: {}}}": 1,
		"{disable: false, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}}": 0,
	} {
		cluster := cloud(t, "{mysql: {host: 10.0.0.5}, version: v4.0.4, backup: "+spec+"}", "ce", "FullStack")
		o, err := render.Component(cluster.Components["backup"], component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)})
		require.NoError(t, err)
		pod := podOf(o.Workload)
		c := pod.Containers[0]
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "etcd-snapshots" && m.MountPath == catalog.EtcdSnapshots && m.ReadOnly
		})
		there := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == "etcd-snapshots" && v.HostPath != nil && v.HostPath.Path == catalog.EtcdSnapshots
		})
		named := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == "OCADM_NODE" && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
		})
		named = named && slices.Contains(c.Args, "--node=$(OCADM_NODE)")
		if !mounted || !there || !named || !slices.Contains(c.Args, "--etcd-snapshots="+catalog.EtcdSnapshots) {
			t.Errorf("%s: mounted %v, volume %v, node %v, %q", spec, mounted, there, named, c.Args)
		}
		nodes := pod.Affinity.NodeAffinity
		if len(nodes.PreferredDuringSchedulingIgnoredDuringExecution) != preferred || (nodes.RequiredDuringSchedulingIgnoredDuringExecution == nil) != (preferred == 1) {
			t.Errorf("%s: %+v", spec, nodes)
		}
	}
}
