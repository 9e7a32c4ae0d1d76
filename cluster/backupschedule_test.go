// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
)

// Backups have one place: a bucket replaces a directory, and a directory a bucket. A repeated setting changes nothing.
func TestPlaceOfScheduledBackups(t *testing.T) {
	scheme := kube.Scheme()
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Namespace, cloud.Name = "onecloud", "default"
	k := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cloud).Build()
	key := client.ObjectKeyFromObject(cloud)
	for _, c := range []struct {
		schedule Schedule
		dir, s3  string
		changes  []string
	}{
		{Schedule{Dir: "/srv/backups", Node: "node1"}, "/srv/backups", "", []string{"spec.backup.disable: (none) → false", "spec.backup.hostPath: (none) → /srv/backups",
			`spec.backup.nodeSelector: (none) → {"kubernetes.io/hostname":"node1"}`}},
		{Schedule{}, "/srv/backups", "", nil},
		{Schedule{S3: &v1alpha1.BackupS3{Endpoint: "s3", Bucket: "b"}, AccessKey: "k"}, "", "b", []string{"spec.backup.hostPath: /srv/backups → (none)",
			`spec.backup.s3: (none) → {"bucket":"b","ca":"","endpoint":"s3","plain":false,"prefix":"","region":"","secret":"default-backup-s3"}`}},
		{Schedule{Dir: "/srv/backups", Node: "node1"}, "/srv/backups", "", []string{"spec.backup.hostPath: (none) → /srv/backups",
			`spec.backup.s3: {"bucket":"b","endpoint":"s3","secret":"default-backup-s3"} → (none)`}},
	} {
		c.schedule.Key = key
		lines, err := c.schedule.Apply(t.Context(), k)
		if err != nil || !slices.Equal(lines, c.changes) {
			t.Errorf("%+v: %q, %v; want %q", c.schedule, lines, err, c.changes)
		}
		got := &v1alpha1.OnecloudCluster{}
		if err := k.Get(t.Context(), key, got); err != nil {
			t.Fatal(err)
		}
		bucket := ""
		if got.Spec.Backup.S3 != nil {
			bucket = got.Spec.Backup.S3.Bucket
		}
		if b := got.Spec.Backup; b.HostPath != c.dir || bucket != c.s3 || b.NodeSelector["kubernetes.io/hostname"] != "node1" {
			t.Errorf("%+v: %+v", c.schedule, b)
		}
	}
}
