// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"strings"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const changedSettings = "OCA-7012"

func settingsChecks() []Check {
	return []Check{{
		Name: "CloudSettings", Short: "a repeated init means the database and region that the cluster's cloud has", Codes: []string{changedSettings},
		Applies: func(k Kind, _ *config.Config) bool { return k == Init },
		run:     checkSettings,
	}}
}

// checkSettings compares with what the first init stored in the cluster. Without it, repeating init without --mysql-host would quietly
// install the embedded database beside the real one. A cluster that does not answer has nothing to compare with yet.
func checkSettings(ctx context.Context, m *machine) []finding.Finding {
	if !m.exists(kubernetes.AdminKubeconfig) || m.h.Kube == nil {
		return nil
	}
	c, err := m.h.Kube(ctx)
	if err != nil {
		return nil
	}
	was, err := cluster.LoadSettings(ctx, c, m.h.Config.Cloud.Namespace)
	if err != nil {
		return nil
	}
	changed := differences(was, cloud.Options(m.h.Config))
	if len(changed) == 0 {
		return nil
	}
	return []finding.Finding{failure(changedSettings, "The cluster on this machine was made with other settings of the cloud", strings.Join(changed, "; "),
		"give the earlier values again, or begin anew: ocadm reset")}
}

// differences of what a cloud cannot change once it has been made.
func differences(was, now cluster.Options) []string {
	var out []string
	if was.Database.Host == "" {
		return nil // nothing has been stored yet
	}
	for _, s := range []struct{ what, was, now string }{
		{"--mysql-host", was.Database.Host, now.Database.Host},
		{"--mysql-port", fmt.Sprint(was.Database.Port), fmt.Sprint(now.Database.Port)},
		{"--region", was.Region, now.Region},
		{"--zone", was.Zone, now.Zone},
	} {
		if s.was != s.now {
			out = append(out, fmt.Sprintf("%s was %s and is now %s", s.what, s.was, s.now))
		}
	}
	return out
}
