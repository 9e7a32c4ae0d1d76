// SPDX-License-Identifier: Apache-2.0

package integration

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/component"
)

// password: what people make of the administrator's password outlives a restart of the identity service. A password that is put into the
// Secret is taken, with one roll of its pods.
func (r *rig) password() {
	id, snapshot := r.identity()
	ctx := r.t.Context()
	made := string(r.credentials()[component.BootstrapPassword])
	const theirs, next = "Chosen-by-people-1", "Put-into-the-Secret-2"
	works := func(password string) bool {
		r.t.Helper()
		err := id.CheckLogin(ctx, "sysadmin", password, "system")
		if err != nil && !identity.IsUnauthorized(err) {
			r.t.Fatal(err)
		}
		return err == nil
	}
	cm := &corev1.ConfigMap{}
	r.get(cm, "default-keystone")
	if got := cm.Data["reset_admin_user_password"]; got != "false" {
		r.t.Errorf("the identity service sets the password at every start: %q", got)
	}
	if _, _, err := id.EnsureUser(ctx, snapshot, identity.Account{Name: "sysadmin", Password: theirs, System: true, WebConsole: true}); err != nil {
		r.t.Fatal(err)
	}
	r.rolled("default-keystone", func() { r.edit(cm, `{"data":{"password_minimal_length":"8"}}`) })
	if !works(theirs) || works(made) {
		r.t.Errorf("after a restart: theirs works %v, the generated one %v", works(theirs), works(made))
	}
	secret := &corev1.Secret{}
	r.get(secret, cloud+"-"+v1alpha1.SecretCredentials)
	before := r.cloud().Status.Effects["identity/password"]
	r.rolled("default-keystone", func() { r.edit(secret, `{"stringData":{"`+component.BootstrapPassword+`":"`+next+`"}}`) })
	r.until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		return ok && cr.Status.Effects["identity/password"] != before && isReady(cr), states(cr)
	})
	if !works(next) || works(theirs) {
		r.t.Errorf("after the Secret was changed: the new one works %v, theirs %v", works(next), works(theirs))
	}
	r.until(&corev1.ConfigMap{}, "default-keystone", func(o client.Object) (bool, string) {
		cm, ok := o.(*corev1.ConfigMap)
		return ok && cm.Data["reset_admin_user_password"] == "false", "the password is taken, and would be set again"
	})
	passes, _ := r.passes()
	r.untilQuiet(passes - 1)
}

// rolled does something and waits until the pods of a Deployment were exchanged for it, once.
func (r *rig) rolled(name string, do func()) {
	r.t.Helper()
	d := &appsv1.Deployment{}
	r.get(d, name)
	was := d.Generation
	passes, _ := r.passes()
	do()
	r.until(&appsv1.Deployment{}, name, func(o client.Object) (bool, string) {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Generation > was && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == d.Status.Replicas &&
			d.Status.AvailableReplicas == d.Status.Replicas, "the pods have not followed"
	})
	r.untilQuiet(passes)
	r.untilReady()
	r.get(d, name)
	if d.Generation != was+1 {
		r.t.Errorf("%s was changed %d times", name, d.Generation-was)
	}
}
