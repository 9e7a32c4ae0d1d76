// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// The constants are those of the installer, which the package must not import.
func TestConstants(t *testing.T) {
	if bootstrap.DepotPort != config.DepotPort || bootstrap.Ledger != host.LedgerFile || bootstrap.SettingsName != cluster.SettingsName {
		t.Error("the installer has another port of the depot, another ledger, or other settings")
	}
	objs, err := cluster.Settings(cluster.Options{ImageRepository: "registry.example.org/you"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if text, _, _ := unstructured.NestedString(objs[1].Object, "data", bootstrap.SettingsKey); !strings.Contains(text, "imageRepository: registry.example.org/you\n") {
		t.Errorf("the settings are %q", text)
	}
}
