// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

// createTokenHere runs "token create" on a control-plane node without a depot.
func createTokenHere(t *testing.T, args ...string) (string, []corev1.Secret, error) {
	t.Helper()
	cfg := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	k := fake.NewClientBuilder().Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return k, nil }
	var out strings.Builder
	c := newTokenCreate(&app{Streams: Streams{Out: &out, Err: &out}}, func(ctx context.Context) (*host.Host, client.Client, error) {
		k, err := h.Kube(ctx)
		return h, k, err
	})
	c.SetArgs(args)
	c.SilenceUsage, c.SilenceErrors = true, true
	err = c.ExecuteContext(t.Context())
	var secrets corev1.SecretList
	require.NoError(t, k.List(t.Context(), &secrets))
	return out.String(), secrets.Items, err
}

// Without a depot, no command that downloads from it is printed, and no token is created for it.
func TestDownloadWithoutDepot(t *testing.T) {
	out, secrets, err := createTokenHere(t, "--print-join-command", "--with-download")
	if list := finding.Of(err); len(list) != 1 || list[0].Code != "OCA-2317" || out != "" || len(secrets) > 0 {
		t.Errorf("%q, %d tokens, %v", out, len(secrets), err)
	}
}

// A dry run checks the token, prints the requested format, and creates nothing.
func TestTokenDryRun(t *testing.T) {
	out, secrets, err := createTokenHere(t, "--dry-run", "-o", "json", "--ttl", "0")
	if err != nil || strings.Join(strings.Fields(out), "") != `{"token":"","dryRun":true}` || len(secrets) > 0 {
		t.Errorf("%q, %d tokens, %v", out, len(secrets), err)
	}
	if _, _, err := createTokenHere(t, "--dry-run", "--usages", "sign"); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-0301" {
		t.Errorf("an unknown usage: %v", err)
	}
	if _, secrets, err := createTokenHere(t, "--usages", "signing", "--print-join-command"); err == nil || len(secrets) > 0 {
		t.Errorf("a join command with a token with which no machine joins: %v", err)
	}
}

// An API server that does not answer is named, rather than etcd, which it lists, or the kubeconfig.
func TestSilentAPIServer(t *testing.T) {
	silent := fmt.Errorf("listing: %w", &url.Error{Op: "Get", URL: "https://192.0.2.1:6443/api", Err: context.DeadlineExceeded})
	for want, list := range map[string][]error{
		"OCA-4203": {noCluster(silent), kubernetes.EtcdUnwell(silent)}, "OCA-4206": {noCluster(errors.New("no such file"))},
		"OCA-4136": {kubernetes.EtcdUnwell(errors.New("etcdserver: no leader"))},
	} {
		for _, err := range list {
			if l := finding.Of(err); len(l) != 1 || l[0].Code != want {
				t.Errorf("%v is not %s", l, want)
			}
		}
	}
}

// An answer of the API server, and Ctrl-C, do not mean that no cluster is accessible.
func TestNoClusterKeepsAnswers(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "kubeadm-config")
	for err, want := range map[error]int{
		fmt.Errorf("reading the configuration of the cluster: %w", missing): finding.ExitOther,
		fmt.Errorf("listing nodes: %w", context.Canceled):                   finding.ExitInterrupted,
		errors.New("open /etc/kubernetes/admin.conf: permission denied"):    finding.ExitCode("OCA-4206"),
	} {
		if got := finding.ExitStatus(noCluster(err)); got != want {
			t.Errorf("%v: status %d, want %d", err, got, want)
		}
	}
}
