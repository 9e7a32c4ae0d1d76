// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
)

// Backups go to a claim, to a directory of a node, or to a bucket, and then the pod has neither. Two places at once are one: the bucket.
func TestPlacesOfBackups(t *testing.T) {
	const s3 = "s3: {endpoint: s3.example.com, bucket: b, secret: keys}"
	for _, c := range []struct {
		name, spec     string
		claims, mounts int
		dir, place     string
	}{
		{"a claim", "{disable: false}", 1, 1, "", "claim default-backup"},
		{"a directory", "{disable: false, hostPath: /srv/backups}", 0, 1, "/srv/backups", "$(NODE):/srv/backups"},
		{"a bucket", "{disable: false, " + s3 + "}", 0, 0, "", ""},
		{"both", "{disable: false, hostPath: /srv/backups, " + s3 + "}", 0, 0, "", ""},
	} {
		cluster := cloud(t, "{mysql: {host: 10.0.0.5}, version: v4.0.4, backup: "+c.spec+"}", "ce", "FullStack")
		o, err := render.Component(cluster.Components["backup"], component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)})
		if err != nil {
			t.Fatal(err)
		}
		pod, dir := podOf(o.Workload), ""
		for _, v := range pod.Volumes {
			if v.HostPath != nil {
				dir = v.HostPath.Path
			}
		}
		mounts := slices.DeleteFunc(slices.Clone(pod.Containers[0].VolumeMounts), func(m corev1.VolumeMount) bool { return m.MountPath != "/backup" })
		place := ""
		for _, e := range pod.Containers[0].Env {
			if e.Name == "OCADM_PLACE" {
				place = e.Value
			}
		}
		if len(o.PVCs) != c.claims || len(mounts) != c.mounts || dir != c.dir || place != c.place {
			t.Errorf("%s: %d claims, %d mounts, directory %q, place %q; want %+v", c.name, len(o.PVCs), len(mounts), dir, place, c)
		}
	}
}
