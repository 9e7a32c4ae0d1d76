// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"slices"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// DefaultImagePath is where disks of virtual machines are unless --host-local-image-path says otherwise.
const DefaultImagePath = "/opt/cloud/workspace/disks"

// directories must exist before the pods of the agents start: Kubernetes does not make them, and the agents do not make them on the node.
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

// directoriesPhase makes the directories that the agents share with the node. Undoing files removes those that are empty.
func directoriesPhase() host.Phase {
	return host.Phase{
		Name: "directories", Short: "Make the directories that the agents share with the node",
		Run: func(_ context.Context, h *host.Host, r workflow.Reporter) error {
			for _, d := range missingDirectories(h) {
				if err := h.Files.Mkdir(d, 0o755); err != nil {
					return err
				}
				r.Changed("made %s", d)
			}
			return nil
		},
	}.Todo(func(_ context.Context, h *host.Host) ([]string, error) {
		var lines []string
		for _, d := range missingDirectories(h) {
			lines = append(lines, "make "+d)
		}
		return lines, nil
	})
}
