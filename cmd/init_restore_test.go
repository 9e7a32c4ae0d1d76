// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

const savedCloud = `{"apiVersion":"onecloud.yunion.io/v1alpha1","kind":"OnecloudCluster","metadata":{"name":"mine","annotations":{"onecloud.yunion.io/edition":"ee"}},
	"spec":{"version":"v4.0.3","region":"north","zone":"north-1","loadBalancerEndpoint":"10.0.0.1","storageClassName":"ceph","ingressClassName":"old",
	"web":{"hostPorts":true,"replicas":2},"imagePullSecrets":[{"name":"old"}],"backup":{"hostPath":"/srv","nodeSelector":{"kubernetes.io/hostname":"lost"}},
	"mysql":{"host":"10.0.0.2","port":3307,"passwordSecretRef":{"name":"old","key":"pw"},"tls":{"mode":"verify-ca","ca":"of the old server"}}}}`

// restorable returns a backup without databases, and the files with its key and with another one.
func restorable(t *testing.T) (file, key, other string) {
	t.Helper()
	dir := t.TempDir()
	var ids []*age.X25519Identity
	for _, name := range []string{"key", "other"} {
		id, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		ids = append(ids, id)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(id.String()+"\n"), 0o600))
	}
	var out bytes.Buffer
	header := backup.Header{Cloud: backup.Cloud{Namespace: "here", Name: "mine", ID: "id-1"}, Time: time.Now(), Version: "v4.0.3"}
	w, err := backup.NewWriter(&out, header, ids[0].Recipient())
	require.NoError(t, err)
	require.NoError(t, w.Object(backup.Object{Kind: v1alpha1.Kind, Name: "mine", JSON: []byte(savedCloud)}))
	require.NoError(t, w.Close(backup.Manifest{}))
	file = filepath.Join(dir, "mine"+backup.Suffix)
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
	return file, filepath.Join(dir, "key"), filepath.Join(dir, "other")
}

func fresh() *host.Host {
	c := config.Default()
	config.Complete(&c, config.Machine{Hostname: "spare1", Address: "192.0.2.7"})
	return &host.Host{Config: &c}
}

// TestRestoreFromMeansTheCloudOfTheBackup: what belongs to the cloud comes from the backup, what belongs to the place from the configuration.
func TestRestoreFromMeansTheCloudOfTheBackup(t *testing.T) {
	file, key, _ := restorable(t)
	h := fresh()
	f := restoreFlags{file: file, keys: keyFlags{identityFiles: []string{key}}}
	require.NoError(t, f.prepare(t.Context(), newApp(Streams{Out: io.Discard, Err: io.Discard}), h))
	if c := h.Config.Cloud; c.Name != "mine" || c.Namespace != "here" || c.Version != "v4.0.3" || c.Region != "north" || c.Zone != "north-1" || c.Edition != "ee" {
		t.Errorf("%+v", c)
	}
	if len(h.Config.Cloud.Images) == 0 {
		t.Error("preflight has no images to look for")
	}
	cr, err := h.Restore.Cloud()
	require.NoError(t, err)
	spec := cr.Object["spec"].(map[string]any)
	mysql, web := spec["mysql"].(map[string]any), spec["web"].(map[string]any)
	if spec["loadBalancerEndpoint"] != "192.0.2.7" || spec["storageClassName"] != nil || spec["ingressClassName"] != nil || spec["imagePullSecrets"] != nil {
		t.Errorf("%v", spec)
	}
	if b := spec["backup"].(map[string]any); b["nodeSelector"] != nil || b["hostPath"] != "/srv" { // backups on a lost node would never run
		t.Errorf("%v", b)
	}
	if web["hostPorts"] != nil || web["replicas"] != float64(2) {
		t.Errorf("%v", web)
	}
	ref := mysql["passwordSecretRef"].(map[string]any)
	if mysql["host"] != "ocadm-mysql.here.svc" || mysql["port"] != int64(3306) || ref["name"] != "ocadm-mysql" || mysql["tls"].(map[string]any)["mode"] != "preferred" {
		t.Errorf("%v", mysql)
	}
}

// TestRestoreFromRefusesBeforeAnythingChanges: a wrong key, a truncated file, another version or name, and no file.
func TestRestoreFromRefusesBeforeAnythingChanges(t *testing.T) {
	file, key, other := restorable(t)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	short := filepath.Join(t.TempDir(), "short"+backup.Suffix)
	require.NoError(t, os.WriteFile(short, whole[:len(whole)-10], 0o600))
	for name, c := range map[string]struct{ file, key, version, name, code, says string }{
		"another key":     {file, other, "", "", "OCA-7404", "--identity"},
		"cut off":         {short, key, "", "", "OCA-7405", "damaged"},
		"another version": {file, key, "v4.0.4", "mine", "OCA-7148", "v4.0.3"},
		"another name":    {file, key, "v4.0.3", "yours", "OCA-7148", "omit --cloud-name"},
		"no file":         {file + "x", key, "", "", "OCA-0401", "is not a file"},
		"no key file":     {file, key + "x", "", "", "OCA-0401", "age-keygen"},
	} {
		h := fresh()
		h.Config.Cloud.Version, h.Config.Cloud.Name, h.Config.Given = c.version, c.name, []string{"cloud.version", "cloud.name"}
		f := restoreFlags{file: c.file, keys: keyFlags{identityFiles: []string{c.key}}}
		err := f.prepare(t.Context(), newApp(Streams{Out: io.Discard, Err: io.Discard}), h)
		list := finding.Of(err)
		if len(list) != 1 || list[0].Code != c.code || h.Restore != nil || !strings.Contains(err.Error()+list[0].Remedy, c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := restoreFlags{}
	if err := f.confirm("This replaces them"); len(finding.Of(err)) != 1 {
		t.Errorf("databases are replaced without --yes: %v", err)
	}
	f.yes = true
	if err := f.confirm("This replaces them"); err != nil {
		t.Error(err)
	}
}

// A restored cloud keeps its name: another one in --name would be that of a cloud which the user does not expect to be replaced.
func TestBackupRestoreUnderAnotherName(t *testing.T) {
	file, key, _ := restorable(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte("{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}],\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u}], current-context: c}"), 0o600))
	for name, says := range map[string]string{"staging": "the backup is of cloud mine", "mine": "127.0.0.1:1"} {
		var story bytes.Buffer
		status := Execute(t.Context(), Streams{In: strings.NewReader(""), Out: io.Discard, Err: &story},
			[]string{"cluster", "backup", "restore", file, "--identity", key, "--kubeconfig", kubeconfig, "--yes", "--name", name})
		if status == 0 || !strings.Contains(story.String(), says) {
			t.Errorf("--name %s: status %d, %s", name, status, story.String())
		}
	}
}
