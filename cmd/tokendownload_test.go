// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// Without a depot, no command that downloads from it is printed, and no token is created for it.
func TestDownloadWithoutDepot(t *testing.T) {
	cfg := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	if err != nil {
		t.Fatal(err)
	}
	k := fake.NewClientBuilder().Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return k, nil }
	var out strings.Builder
	c := newTokenCreate(&app{Streams: Streams{Out: &out, Err: &out}}, func(ctx context.Context) (*host.Host, client.Client, error) {
		k, err := h.Kube(ctx)
		return h, k, err
	})
	c.SetArgs([]string{"--print-join-command", "--with-download"})
	c.SilenceUsage, c.SilenceErrors = true, true
	err = c.ExecuteContext(t.Context())
	if list := finding.Of(err); len(list) != 1 || list[0].Code != "OCA-2317" || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
	var secrets corev1.SecretList
	if err := k.List(t.Context(), &secrets); err != nil || len(secrets.Items) > 0 {
		t.Errorf("%d tokens, %v", len(secrets.Items), err)
	}
}
