// SPDX-License-Identifier: Apache-2.0

package component_test

import (
	"testing"

	"yunion.io/x/ocadm/operatorctl/component"
)

func TestNewSecret(t *testing.T) {
	for key, want := range map[string]string{
		component.DatabasePassword("region"): "new password for region's database account",
		component.AccountPassword("glance"):  "new password for glance's account in the identity service",
		component.BootstrapPassword:          "new password for the administrator",
		component.MinioSecretKey:             "new secret minio.secret-key",
	} {
		if got := component.NewSecret(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
