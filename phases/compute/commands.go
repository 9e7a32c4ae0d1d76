// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	_ "embed"
	"path"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

const wrapperDir = "/usr/local/bin"

// wrapper is a script that runs an Open vSwitch command in the cloud's own image.
//
//go:embed files/ovs.sh
var wrapper string

// wrapperPaths returns the paths of the commands that scripts of virtual machines call on the node. The daemons run in pods.
func wrapperPaths() []string {
	return []string{wrapperDir + "/ovs-appctl", wrapperDir + "/ovs-ofctl", wrapperDir + "/ovs-vsctl"}
}

// wrappers returns the wrapper scripts for the commands that the node lacks.
func wrappers(h *host.Host) host.FileSet {
	return lists.Pick(wrapperPaths(), func(p string) (host.File, bool) {
		found, ok := host.LookPath(h.Files, path.Base(p))
		return host.File{Name: p, Data: []byte(wrapper), Mode: programMode}, !ok || found == p && h.Ledger.Has(host.KindFile, p)
	})
}

// commandsPhase installs the Open vSwitch commands that the node lacks.
func commandsPhase() host.Phase {
	return host.Writes(host.Phase{
		Name: "commands", Short: "Provide the Open vSwitch commands on the node",
		Long: "Writes ovs-vsctl, ovs-ofctl and ovs-appctl to /usr/local/bin unless the node has them. Each runs the program of that name in a\n" +
			"short-lived container of the image that the Open vSwitch pods of this node use.",
		Undo: func(_ context.Context, h *host.Host, r workflow.Reporter) error {
			_, err := h.Undo(r, wrapperPaths()...)
			return err
		},
	}, func(h *host.Host) (host.FileSet, error) { return wrappers(h), nil })
}

// switchUnits are the systemd services that run Open vSwitch on the various distributions.
var switchUnits = []string{"openvswitch-switch.service", "openvswitch.service", "ovs-vswitchd.service", "ovsdb-server.service"}

// SwitchService returns a finding if the distribution's Open vSwitch runs or is enabled at boot: two switches cannot share the kernel module and /var/run/openvswitch.
func SwitchService(ctx context.Context, h *host.Host) []finding.Finding {
	var found []string
	for _, u := range switchUnits {
		_, active := h.Systemctl(ctx, "is-active", "--quiet", u)
		res, enabled := h.Systemctl(ctx, "is-enabled", u)
		// Static units are started by other units, which are in the list as well.
		if active == nil || enabled == nil && strings.TrimSpace(res.Stdout) == "enabled" {
			found = append(found, strings.TrimSuffix(u, ".service"))
		}
	}
	if len(found) == 0 {
		return nil
	}
	cause := "the cloud runs Open vSwitch in pods on this node, and both would use /var/run/openvswitch"
	if slices.ContainsFunc(h.Facts.Interfaces, func(i host.Interface) bool {
		return i.Kind == kindSwitch && (i.Name == h.Facts.Interface || len(globals(i)) > 0)
	}) {
		cause += "; an address of this machine is on a bridge of the running service: move it to a network interface first, otherwise the machine is cut off"
	}
	units := strings.Join(found, " ")
	return []finding.Finding{finding.New(CodeSwitchService, "The distribution's Open vSwitch service conflicts with the cloud's", cause,
		"systemctl disable --now "+units+" && systemctl mask "+units).With(found...)}
}

// DefaultImagePath is the directory of virtual machine disks without --host-local-image-path.
const DefaultImagePath = "/opt/cloud/workspace/disks"

// directories returns the directories that must exist before the agents' pods start. Neither Kubernetes nor the agents create them on the node.
func directories(c *config.Config) []string {
	dirs := []string{"/etc/yunion", "/opt/cloud", "/opt/cloud/workspace", "/opt/cloud/workspace/servers"}
	if len(c.Node.HostLocalImagePath) == 0 {
		dirs = append(dirs, DefaultImagePath)
	}
	return dirs
}

func missingDirectories(h *host.Host) []string {
	return slices.DeleteFunc(directories(h.Config), func(d string) bool { return h.Files.Exists(d) })
}

// directoriesPhase creates the directories that the agents share with the node. Undo removes the empty ones.
func directoriesPhase() host.Phase {
	return host.Phase{
		Name: "directories", Short: "Create the directories that the agents share with the node",
		Run: func(_ context.Context, h *host.Host, r workflow.Reporter) error {
			for _, d := range missingDirectories(h) {
				if err := h.Files.Mkdir(d, 0o755); err != nil {
					return err
				}
				r.Changed("created %s", d)
			}
			return nil
		},
	}.Todo(func(_ context.Context, h *host.Host) ([]string, error) {
		return workflow.Lines("create ", missingDirectories(h)), nil
	})
}
