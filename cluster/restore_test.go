// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/secrets"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// waits is a Reporter that ends a wait for another program.
type waits struct {
	workflow.Discard
	end func()
}

func (w waits) Info(format string, _ ...any) {
	if strings.HasPrefix(format, "waiting:") {
		w.end()
	}
}

// TestOneRestoreAtATime checks that a second restore stops nothing while the first one runs, and that one that lost the lock starts nothing.
func TestOneRestoreAtATime(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	cloud := theCloud(server.Host)
	cloud.Spec.MySQL.Port, cloud.Spec.MySQL.Password = int32(server.Port), server.RootPassword
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build()
	restore := func() *restoring {
		x := &restoring{halting: halting{client: c, key: client.ObjectKeyFromObject(cloud), from: cloud.Spec.MySQL}}
		x.contents = &backup.Contents{}
		x.contents.Header.Cloud.ID = "u"
		t.Cleanup(x.close)
		return x
	}
	first, second := restore(), restore()
	require.NoError(t, first.look(t.Context(), workflow.Discard{}))
	ctx, cancel := context.WithCancel(t.Context())
	if err := second.look(ctx, waits{end: cancel}); err == nil || ctx.Err() == nil {
		t.Fatalf("the second one: %v", err)
	}
	if err := first.holds(t.Context()); err != nil {
		t.Error(err)
	}
	first.release()
	for what, do := range map[string]func(context.Context, workflow.Reporter) error{"cloud": first.bring, "start": first.start} {
		if l := finding.Of(do(t.Context(), workflow.Discard{})); len(l) != 1 || l[0].Code != "OCA-7410" {
			t.Errorf("%s without the lock: %v", what, l)
		}
	}
	if err := second.look(t.Context(), workflow.Discard{}); err != nil {
		t.Error(err)
	}
}

// TestNotWhatWasConfirmed checks that a restore or move that waited for another move touches no database.
func TestNotWhatWasConfirmed(t *testing.T) {
	key := client.ObjectKeyFromObject(theCloud(""))
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(theCloud("new.invalid")).Build()
	for name, from := range map[string]v1alpha1.DatabaseServer{"host": {Host: "old.invalid"}, "port": {Host: "new.invalid", Port: 3307}} {
		restore, move := &restoring{halting: halting{client: c, key: key, from: from}}, &moving{halting: halting{client: c, key: key, from: from}}
		for _, err := range []error{restore.look(t.Context(), workflow.Discard{}), move.look(t.Context(), workflow.Discard{})} {
			if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-7425" {
				t.Errorf("another %s: %v", name, err)
			}
		}
	}
	same := &moving{halting: halting{client: c, key: key, from: v1alpha1.DatabaseServer{Host: "new.invalid", Port: 3306}}}
	if err := same.look(t.Context(), workflow.Discard{}); err != nil || same.cloud == nil {
		t.Errorf("the same server: %v", err)
	}
	if inPlaceSteps()[0].Name != "look" || moveSteps()[0].Name != "look" {
		t.Error("something is done before")
	}
}

// TestSaveBeforeARestore checks that databases are replaced only if a file with their old content is stored.
func TestSaveBeforeARestore(t *testing.T) {
	for name, c := range map[string]struct {
		made   backup.Info
		failed error
		goesOn bool
	}{
		"stored":                  {backup.Info{Name: "a"}, nil, true},
		"stored without its note": {backup.Info{Name: "a"}, errors.New("uploading a.json"), true},
		"refused at its end":      {backup.Info{}, errors.New("uploading a"), false},
		"a new, empty server":     {backup.Info{}, fmt.Errorf("saving: %w", backup.ErrNothing), true},
	} {
		x := &restoring{out: &Restored{}}
		x.Before = func(context.Context, client.ObjectKey, workflow.Reporter) (backup.Info, error) {
			return c.made, c.failed
		}
		if err := x.save(t.Context(), workflow.Discard{}); (err == nil) != c.goesOn || x.out.Before != c.made.Name {
			t.Errorf("%s: %q, %v", name, x.out.Before, err)
		}
	}
}

// TestSameServerUnderAnotherName checks that a second cloud on the databases of a running one is refused, whatever the name of their server.
func TestSameServerUnderAnotherName(t *testing.T) {
	server, apart := mariadb.Require(t, mariadb.Options{}), mariadb.Require(t, mariadb.Options{})
	running := theCloud("localhost")
	running.Spec.MySQL.Port, running.Spec.MySQL.Password = int32(server.Port), server.RootPassword
	secret := &corev1.Secret{Data: map[string][]byte{component.CloudID: []byte("id")}}
	secret.Namespace, secret.Name = running.Namespace, secrets.CredentialsSecret(running.Name)
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(running, secret).Build()
	key := client.ObjectKey{Namespace: "second", Name: running.Name}
	for _, s := range []*mariadb.Server{server, apart} {
		same := s == server
		to := v1alpha1.DatabaseServer{Host: s.Host, Port: int32(s.Port), Password: s.RootPassword}
		a, err := archive.Connect(t.Context(), c, key.Namespace, to, backup.Cloud{ID: "id", Namespace: key.Namespace, Name: key.Name}, nil)
		require.NoError(t, err)
		defer a.Close()
		if l := finding.Of(twin(t.Context(), c, key, a, to)); same != (len(l) == 1 && l[0].Code == "OCA-7409") {
			t.Errorf("the same server %t: %v", same, l)
		}
		if same {
			continue
		}
		// A server that does not answer may be this one under another name, but only if the cloud has databases here.
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(running), running))
		running.Spec.MySQL.Port = 1
		require.NoError(t, c.Update(t.Context(), running))
		if err := twin(t.Context(), c, key, a, to); err != nil {
			t.Errorf("an empty server: %v", err)
		}
		_, err = a.EnsureDatabase(t.Context(), nil, "glance")
		require.NoError(t, err)
		if err := twin(t.Context(), c, key, a, to); !isCode(err, "OCA-7409") || !strings.Contains(err.Error(), "may use these databases") {
			t.Errorf("the other server does not answer: %v", err)
		}
	}
}

// TestAccepted checks that a restore asks the API server whether it would create the cloud.
func TestAccepted(t *testing.T) {
	kind := schema.GroupKind{Kind: v1alpha1.Kind}
	for want, refusal := range map[string]error{
		"":         apierrors.NewAlreadyExists(schema.GroupResource{}, "default"),
		"OCA-7005": &meta.NoKindMatchError{GroupKind: kind},
		"OCA-7440": apierrors.NewInvalid(kind, "default", nil),
	} {
		var in []string
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if in = append(in, o.GetNamespace()); len(in) == 1 {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, o.GetNamespace())
			}
			return refusal
		}}).Build()
		r := &Restore{Namespace: "new", contents: &backup.Contents{Objects: []backup.Object{{Kind: v1alpha1.Kind, JSON: []byte(`{"apiVersion":"onecloud.yunion.io/v1alpha1","kind":"OnecloudCluster"}`)}}}}
		if err := r.accepted(t.Context(), c); want == "" && err != nil || want != "" && !isCode(err, want) || !slices.Equal(in, []string{"new", "default"}) {
			t.Errorf("%s: %v, in %v", want, err, in)
		}
	}
}
