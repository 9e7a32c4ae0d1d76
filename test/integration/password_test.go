// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/env"
)

// TestChangedAdminPasswordIsKept checks that a change of the administrator's password by users survives a restart of the identity
// service. A password written to the Secret is applied with one roll of its pods.
func TestChangedAdminPasswordIsKept(t *testing.T) {
	e := installed(t, env.Options{Workloads: env.Programs}, "keystone")
	id, snapshot := e.identity()
	ctx := e.Context()
	made := string(e.Credentials()[component.BootstrapPassword])
	const theirs, next = "Chosen-by-people-1", "Put-into-the-Secret-2"
	works := func(password string) bool {
		e.Helper()
		err := id.CheckLogin(ctx, "sysadmin", password, "system")
		if err != nil && !identity.IsUnauthorized(err) {
			e.Fatal(err)
		}
		return err == nil
	}
	cm := &corev1.ConfigMap{}
	e.Get(cm, "default-keystone")
	if got := cm.Data["reset_admin_user_password"]; got != "false" {
		e.Errorf("the identity service sets the password at every start: %q", got)
	}
	if _, _, err := id.EnsureUser(ctx, snapshot, "sysadmin", theirs); err != nil {
		e.Fatal(err)
	}
	e.rolled("default-keystone", func() { e.EditObject(cm, cm.GetName(), `{"data":{"password_minimal_length":"8"}}`) })
	if !works(theirs) || works(made) {
		e.Errorf("after a restart: theirs works %v, the generated one %v", works(theirs), works(made))
	}
	secret := &corev1.Secret{}
	e.Get(secret, cloud+"-"+v1alpha1.SecretCredentials)
	before := e.Cloud().Status.Effects["identity/password"]
	e.rolled("default-keystone", func() {
		e.EditObject(secret, secret.GetName(), `{"stringData":{"`+component.BootstrapPassword+`":"`+next+`"}}`)
	})
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr.Status.Effects["identity/password"] != before && env.IsReady(cr)
	})
	if !works(next) || works(theirs) {
		e.Errorf("after the Secret was changed: the new one works %v, theirs %v", works(next), works(theirs))
	}
	e.Until(&corev1.ConfigMap{}, "default-keystone", func(o client.Object) (bool, string) {
		cm, ok := o.(*corev1.ConfigMap)
		return ok && cm.Data["reset_admin_user_password"] == "false", "the password is taken, and would be set again"
	})
	e.Rest()
}

// rolled calls do and waits until the pods of a Deployment have been replaced, once.
func (e *cloudTest) rolled(name string, do func()) {
	e.Helper()
	d := &appsv1.Deployment{}
	e.Get(d, name)
	was := d.Generation
	passes, _ := e.Passes()
	do()
	e.UntilRolled(name, was)
	e.UntilQuiet(passes)
	e.UntilReady()
	e.Get(d, name)
	if d.Generation != was+1 {
		e.Errorf("%s was changed %d times", name, d.Generation-was)
	}
}
