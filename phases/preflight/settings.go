// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/kubernetes"
)

func settingsChecks() []Check {
	return []Check{{
		Name: "CloudSettings", Short: "a repeated init means the database and region that the cluster's cloud has", Codes: []string{cloud.CodeOtherSettings, "OCA-7014"},
		Applies: func(k Kind, _ *config.Config) bool { return k == Init },
		run:     checkSettings,
	}}
}

// checkSettings compares with what the first init stored in the cluster. A cluster that does not answer, as after a failure half-way,
// leaves the question open: the phases that would change the cloud's settings or install a database ask it again, and stop without an answer.
func checkSettings(ctx context.Context, m *machine) []finding.Finding {
	if !m.h.Files.Exists(kubernetes.AdminKubeconfig) || m.h.Kube == nil {
		return nil
	}
	err := cloud.SameSettings(ctx, m.h)
	if err == nil {
		return nil
	}
	if found := finding.Of(err); len(found) > 0 && found[0].Code == cloud.CodeOtherSettings {
		return found
	}
	return []finding.Finding{finding.Warn("OCA-7014", "The settings of the cluster's cloud cannot be compared yet", err.Error(),
		"nothing; they are compared again before a database is installed or settings are changed")}
}
