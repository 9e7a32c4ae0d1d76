// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/kubernetes"
)

func joinChecks() []Check {
	return []Check{{
		Name: "ControlPlane", Short: "the control plane answers and accepts the token", Timeout: 15 * time.Second,
		Codes: []string{"OCA-0302", "OCA-0303", "OCA-0304", "OCA-4101", "OCA-4102", "OCA-4103", "OCA-4104", "OCA-4105", "OCA-4106", "OCA-4107", "OCA-4109", "OCA-4111", "OCA-4112",
			"OCA-4131", "OCA-4132", "OCA-4134", "OCA-4135"},
		Applies: func(k Kind, c *config.Config) bool {
			return k == Join && c.Join.DiscoveryFile == ""
		},
		run: checkControlPlane,
	}}
}

func checkControlPlane(ctx context.Context, m *machine) []finding.Finding {
	if m.joined() {
		return nil // already joined; the discovery phase reports if it was another cluster
	}
	d, err := kubernetes.Discover(ctx, m.h.Config)
	if err != nil {
		if found := finding.Of(err); len(found) > 0 {
			return found
		}
		return []finding.Finding{finding.New("OCA-4107", "The control plane's description of the cluster cannot be used", err.Error(),
			"on a control-plane node: ocadm token create --print-join-command")}
	}
	if err := kubernetes.ProxyModeFits(m.h.Facts.Kernel, d.ProxyMode); err != nil {
		return finding.Of(err)
	}
	if m.h.Config.Join.ControlPlane {
		if err := kubernetes.CheckControlPlaneJoin(ctx, m.h, d); err != nil {
			return finding.Of(err)
		}
	}
	if s := d.Skew.Abs(); s > maxSkew {
		return []finding.Finding{finding.Warn("OCA-4111", "The clocks of this machine and of the control plane differ", s.Round(time.Second).String(),
			"timedatectl set-ntp true on both; if there is no NTP service, first: "+m.h.Facts.OS.Install("chronyd"))}
	}
	return nil
}

// maxSkew is the clock difference that is worth a warning.
const maxSkew = 30 * time.Second

func settingsChecks() []Check {
	return []Check{{
		Name: "Authorities", Short: "the certificate authorities of the cluster are not being rotated", Codes: []string{"OCA-4409"}, Applies: onControlPlane,
		run: func(_ context.Context, m *machine) []finding.Finding {
			return finding.Of(kubernetes.NoRotation(m.h, "this command"))
		},
	}, {
		Name: "CloudSettings", Short: "a repeated init or operator install has the same database, region and storage class as the cluster's cloud",
		Codes:   []string{cloud.CodeOtherSettings, "OCA-7014"},
		Applies: func(k Kind, c *config.Config) bool { return k == Init || k == Install && c.AsksForCloud() },
		run:     checkSettings,
	}}
}

// checkSettings compares the settings with those that the first init stored. If the cluster does not answer, for example after a failure half-way, the
// phases that would change the cloud's settings or install a database compare them again, and stop without an answer. KeepStored had no answer either.
func checkSettings(ctx context.Context, m *machine) []finding.Finding {
	if m.kind != Install && !m.h.Files.Exists(kubernetes.AdminKubeconfig) || m.h.Kube == nil {
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
		"give all flags of the first init: settings that you leave out get their defaults, because those of the first init cannot be read")}
}
