// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/machine"
)

// The Secrets that commands create for passwords of databases and keys of object stores are not machine logins. They have no labels.
func TestSecretsOfCommandsAreNoLogins(t *testing.T) {
	cloud := v1alpha1.OnecloudCluster{}
	cloud.Name = "default"
	for _, name := range []string{DatabaseSecret, "default" + movedSecret, "default" + movedSecret + "-2", "default" + s3Secret} {
		if machine.NoLogin(name, &corev1.Secret{}, []v1alpha1.OnecloudCluster{cloud}) == "" {
			t.Errorf("Secret %s may be used for a login", name)
		}
	}
	if why := machine.NoLogin("w-login", &corev1.Secret{}, []v1alpha1.OnecloudCluster{cloud}); why != "" {
		t.Error(why)
	}
}
