// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

// Usage errors are reported before a cluster is contacted: there is none here.
func TestClusterUsage(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	for line, want := range map[string]struct {
		status int
		says   string
	}{
		"cluster nonsense":                                        {4, "no command"},
		"cluster stauts":                                          {4, "ocadm cluster status"},
		"cluster create extra":                                    {4, "unknown command"},
		"cluster create --edition xx":                             {4, "must be one of ce, ce/support, ee"},
		"cluster create --vesion v1":                              {4, "did you mean --version?"},
		"cluster update --kubeconfig " + nowhere:                  {42, nowhere},
		"cluster update --operator-only":                          {4, "needs a change of the operator"},
		"cluster update --operator-only --version v1.2.3":         {4, "needs a change of the operator"},
		"cluster update --version v1.2.3 --timeout 0s":            {4, "--timeout"},
		"cluster update --at-once --no-backup":                    {4, "cannot be combined with --at-once"},
		"cluster update --at-once --dry-run":                      {4, "leave out --at-once"},
		"cluster update --rehearse --no-backup":                   {4, "works on copies"},
		"cluster update --waves --kubeconfig " + nowhere:          {42, nowhere},
		"cluster status -o xml":                                   {4, "table, json, yaml"},
		"cluster status --timeout soon":                           {4, "--timeout"},
		"cluster status --kubeconfig " + nowhere:                  {42, nowhere},
		"cluster rcadmin --kubeconfig " + nowhere:                 {42, nowhere},
		"cluster options":                                         {4, "accepts 1 arg"},
		"cluster options regoin":                                  {4, "did you mean region?"},
		"cluster options web":                                     {4, "not a component with options"},
		"cluster options region -o xml":                           {4, "table, json, yaml"},
		"cluster options region --kubeconfig " + nowhere:          {42, nowhere},
		"cluster delete":                                          {4, "--yes"},
		"cluster backup schedule --off --at @daily":               {4, "[at off] were all set"},
		"why --list --fix":                                        {4, "[fix list] were all set"},
		"component options get region":                            {4, "ocadm component options list COMPONENT"},
		"operation lst":                                           {4, "ocadm operation list"},
		"operation show":                                          {4, "accepts 1 arg"},
		"operation logs a -o xml":                                 {4, "text, jsonl"},
		"operation cancel a --kubeconfig " + nowhere:              {42, nowhere},
		"operation check --timeout 0s":                            {4, "--timeout"},
		"node enable-host-agent":                                  {4, "no node was named"},
		"node enable-host-agnet":                                  {4, "ocadm node enable-host-agent"},
		"node disable-onecloud-controller --node":                 {4, "--node"},
		"node enable-host-agent --node a --kubeconfig " + nowhere: {42, nowhere},
	} {
		var out, story bytes.Buffer
		status := Execute(t.Context(), Streams{In: strings.NewReader(""), Out: &out, Err: &story}, strings.Fields(line))
		if status != want.status || !strings.Contains(story.String(), want.says) {
			t.Errorf("%s: status %d, want %d; said %q, want %q", line, status, want.status, story.String(), want.says)
		}
		if out.Len() > 0 {
			t.Errorf("%s: wrote %q to standard output", line, out.String())
		}
	}
}

// A profile in the environment or the configuration file, which is that of init, prevents neither a dry run nor a rehearsal; one on the command line does.
// An update of the operator alone refuses a version of the cloud.
func TestUpdateSeparatesFlagsFromSettings(t *testing.T) {
	t.Setenv("OCADM_PROFILE", "ha")
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	for flags, want := range map[string]int{"--dry-run": 42, "--rehearse": 42, "--dry-run --profile ha": 4, "--operator-only --operator-version v1": 4} {
		var story bytes.Buffer
		line := "cluster update --version v4.0.4 --kubeconfig " + nowhere + " " + flags
		if status := Execute(t.Context(), Streams{In: strings.NewReader(""), Out: io.Discard, Err: &story}, strings.Fields(line)); status != want {
			t.Errorf("%s: status %d, want %d: %s", flags, status, want, story.String())
		}
	}
}

func TestStatusTable(t *testing.T) {
	now := time.Unix(1e9, 0)
	var out page
	statusTable(&out, cluster.Status{
		Name: "default", Namespace: "onecloud", Version: "v4.0.4", Message: "region waits",
		Components: []v1alpha1.ComponentStatus{
			{Name: "keystone", State: v1alpha1.Available, Version: "v4.0.4", Message: "not shown", Since: metav1.NewTime(now.Add(-90 * time.Second))},
			{Name: "region", State: v1alpha1.Waiting, BlockedBy: []string{"keystone"}},
			{Name: "glance", State: v1alpha1.Available, Outdated: true, BlockedBy: []string{"keystone"}, Message: "waiting for keystone to update"},
			{Name: "lbagent", State: v1alpha1.Idle, Message: "no node has label onecloud.yunion.io/lbagent=enable"},
		},
		Blocked:         "the release in force, 5, is lost",
		NodesNotReady:   "1 of 2 nodes are not Ready: n2 (Kubelet stopped posting node status)",
		UpdateAvailable: "operator v2 has changes", NodeCertificates: "apiserver of node n1 expired 2001-09-08",
		Certificates: v1alpha1.CertificatesStatus{
			NotAfter: metav1.NewTime(now.Add(48 * time.Hour)), CANotAfter: metav1.NewTime(now.Add(96 * time.Hour)), RenewAt: metav1.NewTime(now.Add(24 * time.Hour)),
		},
	}, now)
	const want = `cloud onecloud/default, version v4.0.4: not ready: region waits
2 of 3 components are available, 1 idle
blocked: the release in force, 5, is lost
1 of 2 nodes are not Ready: n2 (Kubelet stopped posting node status)
certificates of nodes: apiserver of node n1 expired 2001-09-08
update available: operator v2 has changes
certificates expire 2001-09-11, their CA 2001-09-13; renewal 2001-09-10

COMPONENT   STATE       VERSION   SINCE   WHY
keystone    Available   v4.0.4    1m30s   
region      Waiting     -         -       waits for keystone
glance      Available   -         -       waiting for keystone to update
lbagent     Idle        -         -       no node has label onecloud.yunion.io/lbagent=enable
`
	if out.String() != want {
		t.Error(out.String())
	}
}

// A copy of large databases ends with the error of the request that was cut off, which does not say what limited it.
func TestExpiredTimeoutIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n"+
		"clusters: [{name: c, cluster: {server: https://127.0.0.1:1}}]\n"), 0o600))
	f := cloudFlags{kubeconfig: file}
	err := f.within(t.Context(), time.Millisecond, func(ctx context.Context, _ client.WithWatch) error {
		<-ctx.Done()
		return fmt.Errorf("saving database glance: %w", ctx.Err())
	})
	if err == nil || !strings.HasPrefix(err.Error(), "--timeout 1ms is over: saving database glance: ") || finding.ExitStatus(err) != finding.ExitTimeout {
		t.Errorf("%v", err)
	}
}
