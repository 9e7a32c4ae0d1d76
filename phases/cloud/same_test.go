// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func TestDifferencesOfTheCloud(t *testing.T) {
	was := cluster.Options{Region: "region0", Zone: "zone0", Database: cluster.Database{Host: "10.0.0.5", Port: 3306}}
	if got := differences(was, was); got != nil {
		t.Errorf("the same settings differ: %q", got)
	}
	now := was
	now.Database.Host = "ocadm-mysql.onecloud.svc"
	now.Version = "v4.0.5" // may change
	want := []string{"--mysql-host was 10.0.0.5 and is now ocadm-mysql.onecloud.svc"}
	if got := differences(was, now); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := differences(cluster.Options{}, now); got != nil {
		t.Errorf("nothing is known of the earlier settings, and yet they differ: %q", got)
	}
}

// A forgotten --mysql-host must not install an embedded database next to the external one, even if the cluster does not answer.
func TestGuarded(t *testing.T) {
	external := config.Default()
	external.Database.Host, external.Database.Password = "10.0.0.5", "x"
	config.Complete(&external, config.Machine{Hostname: "n1", Address: "192.0.2.7"})
	forgotten := external
	forgotten.Database.Host = ""
	objs, err := settings(&external)
	require.NoError(t, err)
	s := kube.Scheme()
	stored := fake.NewClientBuilder().WithScheme(s).Build()
	for _, o := range objs {
		require.NoError(t, stored.Create(t.Context(), o))
	}
	empty := fake.NewClientBuilder().WithScheme(s).Build()
	for name, tt := range map[string]struct {
		c    client.WithWatch
		cfg  *config.Config
		runs bool
		code string
	}{
		"first run":        {empty, &forgotten, true, ""},
		"same again":       {stored, &external, true, ""},
		"forgotten":        {stored, &forgotten, false, CodeOtherSettings},
		"nobody answers":   {nil, &forgotten, false, ""},
		"nobody, the same": {nil, &external, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host.Host{Config: tt.cfg, Kube: func(context.Context) (client.WithWatch, error) {
				if tt.c == nil {
					return nil, errors.New("connection refused")
				}
				return tt.c, nil
			}}
			ran := false
			p := Guarded(host.Phase{Run: func(context.Context, *host.Host, workflow.Reporter) error { ran = true; return nil }})
			err := p.Run(t.Context(), h, nil)
			if ran != tt.runs || (err == nil) != tt.runs {
				t.Errorf("ran %t, %v", ran, err)
			}
			if l := finding.Of(err); tt.code != "" && (len(l) != 1 || l[0].Code != tt.code) {
				t.Errorf("got %v, want %s", err, tt.code)
			}
		})
	}
}
