// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// Backups have one place: a bucket replaces a directory, and a directory a bucket. A repeated setting changes nothing.
func TestPlaceOfScheduledBackups(t *testing.T) {
	scheme := kube.Scheme()
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Namespace, cloud.Name = "onecloud", "default"
	node := &corev1.Node{}
	node.Name = "node1"
	k := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cloud, node).Build()
	key := client.ObjectKeyFromObject(cloud)
	for _, c := range []struct {
		schedule Schedule
		dir, s3  string
		changes  []string
	}{
		{Schedule{Dir: "/srv/backups", Node: "node1", Unencrypted: true}, "/srv/backups", "", []string{"spec.backup.disable: (none) → false", "spec.backup.hostPath: (none) → /srv/backups",
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
		require.NoError(t, k.Get(t.Context(), key, got))
		bucket := ""
		if got.Spec.Backup.S3 != nil {
			bucket = got.Spec.Backup.S3.Bucket
		}
		if b := got.Spec.Backup; b.HostPath != c.dir || bucket != c.s3 || b.NodeSelector["kubernetes.io/hostname"] != "node1" {
			t.Errorf("%+v: %+v", c.schedule, b)
		}
	}
}

// A schedule that the operator could not carry out, and one that would begin to store passwords in clear text, change nothing.
func TestScheduleIsChecked(t *testing.T) {
	const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	k := func(change func(*v1alpha1.OnecloudCluster)) client.Client {
		cloud := &v1alpha1.OnecloudCluster{}
		cloud.Namespace, cloud.Name = "onecloud", "default"
		change(cloud)
		return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "CronJob"}, o.GetName(), nil)
			},
		}).Build()
	}
	runs := func(c *v1alpha1.OnecloudCluster) { c.Spec.Backup.Disable = new(bool) }
	for name, c := range map[string]struct {
		before   func(*v1alpha1.OnecloudCluster)
		schedule Schedule
		code     string
	}{
		"no recipient":            {func(*v1alpha1.OnecloudCluster) {}, Schedule{}, "OCA-7406"},
		"a recipient":             {func(*v1alpha1.OnecloudCluster) {}, Schedule{Recipients: []string{recipient}}, ""},
		"a recipient in the spec": {func(c *v1alpha1.OnecloudCluster) { c.Spec.Backup.Recipients = []string{recipient} }, Schedule{}, ""},
		"asked for":               {func(*v1alpha1.OnecloudCluster) {}, Schedule{Unencrypted: true}, ""},
		"it runs without":         {runs, Schedule{}, ""},
		"off":                     {func(*v1alpha1.OnecloudCluster) {}, Schedule{Off: true}, ""},
		"no such time":            {runs, Schedule{At: "61 2 * * *"}, "OCA-7438"},
		"no such node":            {runs, Schedule{Dir: "/srv", Node: "nosuchnode"}, "OCA-7438"},
	} {
		c.schedule.Key = client.ObjectKey{Namespace: "onecloud", Name: "default"}
		lines, err := c.schedule.Apply(t.Context(), k(c.before))
		if isCode(err, c.code) != (c.code != "") || c.code == "" && err != nil || c.code != "" && len(lines) > 0 {
			t.Errorf("%s: %q, %v", name, lines, err)
		}
	}
}
