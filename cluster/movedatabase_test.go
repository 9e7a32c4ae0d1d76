// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// TestSwitchWithoutAnAnswer checks that a switch whose answer was lost counts, and that the finding names the server of a cloud that uses a third one.
func TestSwitchWithoutAnAnswer(t *testing.T) {
	lost := errors.New("connection reset")
	for used, want := range map[string]string{"new": "", "third": "OCA-7411"} {
		api := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(theCloud("old")).Build()
		c := interceptor.NewClient(api, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if o.GetObjectKind().GroupVersionKind().Kind != v1alpha1.Kind {
					return c.Patch(ctx, o, p, opts...)
				}
				now := theCloud("")
				if err := c.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
					return err
				}
				now.Spec.MySQL.Host = used
				return errors.Join(lost, c.Update(ctx, now))
			},
		})
		u, err := get(t.Context(), c, client.ObjectKeyFromObject(theCloud("")))
		require.NoError(t, err)
		key := client.ObjectKeyFromObject(u)
		x := &moving{MoveDatabase: MoveDatabase{Key: key, To: v1alpha1.DatabaseServer{Host: "new", Password: "p"}}, halting: halting{client: c, key: key, operation: &Operation{}},
			cloud: u, out: Moved{From: "old:3306", To: "new:3306"}}
		err = x.change(t.Context(), workflow.Discard{})
		code := ""
		for _, f := range finding.Of(err) {
			code = f.Code
		}
		if code != want || (err == nil) != (want == "") || x.out.Changed != (want == "") {
			t.Errorf("%s: %v, changed %t", used, err, x.out.Changed)
		}
		if want != "" && (!errors.Is(err, lost) || !strings.Contains(err.Error(), "uses third:3306 now")) {
			t.Errorf("%s: %v", used, err)
		}
	}
}

// TestMoveThatIsComplete checks that a move to the server in use starts only services that an interrupted move has stopped.
func TestMoveThatIsComplete(t *testing.T) {
	for left, started := range map[string]bool{"": false, "old": true} {
		cloud := theCloud("new")
		cloud.Spec.MySQL.MovedFrom = left
		cloud.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: ""}
		c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build()
		key := client.ObjectKeyFromObject(cloud)
		if _, err := (MoveDatabase{Key: key, To: v1alpha1.DatabaseServer{Host: "new", Password: "p"}}).Apply(t.Context(), c); err != nil {
			t.Errorf("%q: %v", left, err)
		}
		if err := c.Get(t.Context(), key, cloud); err != nil || (cloud.Annotations[v1alpha1.AnnotationPaused] == "") != started || cloud.Spec.MySQL.MovedFrom != "" {
			t.Errorf("%q: %v %+v %v", left, cloud.Annotations, cloud.Spec.MySQL, err)
		}
	}
}

// TestMoveReplaces checks that the question names databases of the cloud on the new server: those of an earlier move, or of a second site.
func TestMoveReplaces(t *testing.T) {
	from, to := mariadb.Require(t, mariadb.Options{}), mariadb.Require(t, mariadb.Options{})
	cloud := theCloud(from.Host)
	cloud.Spec.MySQL.Port, cloud.Spec.MySQL.Password = int32(from.Port), from.RootPassword
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build()
	target := v1alpha1.DatabaseServer{Host: to.Host, Port: int32(to.Port), Password: to.RootPassword}
	for _, replaces := range []bool{false, true} {
		var asked string
		no := errors.New("no")
		m := MoveDatabase{Key: client.ObjectKeyFromObject(cloud), To: target, Confirm: func(question string) error { asked = question; return no }}
		if _, err := m.Apply(t.Context(), c); !errors.Is(err, no) || strings.Contains(asked, "; it replaces the 1 database ") != replaces {
			t.Errorf("%v: %q", err, asked)
		}
		a, err := openDatabases(t.Context(), c, cloud, target, "u")
		require.NoError(t, err)
		if _, err := a.EnsureDatabase(t.Context(), nil, "glance"); err != nil {
			t.Fatal(err)
		}
		a.Close()
	}
}
