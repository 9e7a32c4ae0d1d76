// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/removal"
)

// stake is what the cluster loses with this machine, according to the cluster.
type stake struct {
	node string
	// last is true for the only control-plane node: the cluster and its clouds are lost.
	last   bool
	clouds []string
	// volumes are on the disks of this node. The cluster survives without them.
	volumes []removal.Volume
	// worker is set if only the kubelet's credentials were available: other claims may have volumes here, too.
	worker bool
	// unknown explains why the cluster could not be queried.
	unknown error
}

// stakeOf queries the cluster, once and for a few seconds only: reset must work if it does not answer. The only control-plane node takes the whole
// cluster with it, so volumes do not matter.
func stakeOf(ctx context.Context, h *host.Host) stake {
	s := stake{node: h.Config.Node.Name}
	ctx, cancel := context.WithTimeout(ctx, resetAskTimeout)
	defer cancel()
	switch {
	case h.Files.Exists(kube.AdminKubeconfig):
		s.unknown = s.askAsAdministrator(ctx, h)
	case h.Files.Exists(kubernetes.KubeletKubeconfig):
		s.worker = true
		k, err := kubernetes.NodeClient(h)
		if err == nil {
			s.volumes, err = removal.VolumesInUse(ctx, k, s.node)
		}
		s.unknown = err
	}
	return s
}

func (s *stake) askAsAdministrator(ctx context.Context, h *host.Host) error {
	k, err := h.Kube(ctx)
	if err != nil {
		return err
	}
	nodes, err := kubernetes.ControlPlanes(ctx, k)
	if err != nil {
		return err
	}
	s.last = true
	for _, n := range nodes {
		s.last = s.last && n.Name == s.node
	}
	list, err := cluster.All(ctx, k)
	if err != nil {
		return err
	}
	s.clouds = lists.Map(list, func(cr v1alpha1.OnecloudCluster) string { return cr.Name })
	if s.last {
		return nil
	}
	s.volumes, err = removal.VolumesOn(ctx, k, s.node)
	return err
}

// show prints the volumes that the cluster loses, the consequences, and the commands that avoid them.
func (s *stake) show(w io.Writer) {
	say := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) } // only the display can fail
	if s.unknown != nil {
		say("warning: it is unknown which volumes are on this node, and whether the database of the cloud is among them: the cluster does not answer: %v", s.unknown)
	}
	if len(s.volumes) == 0 {
		return
	}
	say("These volumes are on this node. Their data stays on its disk, and their pods wait until a machine named %s joins again:", s.node)
	for _, v := range s.volumes {
		line := fmt.Sprintf("%s, %s, %s", cmp.Or(v.Claim, v.Name+" (no claim)"), v.Size, v.Path)
		if v.Database {
			line += ": " + s.databaseLost(v)
		}
		say("  %s", line)
	}
	if s.worker {
		say("A worker sees only the volumes of its pods. To list all of them, on a control-plane node: ocadm node remove %s --dry-run", s.node)
	}
	for _, next := range s.before() {
		say("Before you reset this node: %s", next)
	}
	say("To delete the volumes after the reset, on a control-plane node: ocadm node remove %s --delete-volumes", s.node)
}

// databaseLost describes what a volume of the embedded database means for the cloud.
func (s *stake) databaseLost(v removal.Volume) string {
	switch {
	case s.worker:
		return "a server of the cloud's database; without another one, the cloud stops"
	case v.OtherDatabase == dbpair.RolePrimary:
		return "the replica of the cloud's database; the primary on the other node continues alone"
	case v.OtherDatabase == dbpair.RoleReplica:
		return "the primary of the cloud's database"
	}
	return "the only copy of the cloud's database: the cloud stops"
}

// before returns the commands that keep a cloud's database in service.
func (s *stake) before() []string {
	var out []string
	for _, v := range s.volumes {
		if !v.Database || v.OtherDatabase == dbpair.RolePrimary {
			continue
		}
		namespace, _, _ := strings.Cut(v.Claim, "/")
		add, promote := "ocadm cluster database add-replica -n "+namespace, "ocadm cluster database promote -n "+namespace
		line := add + ", then " + promote
		switch {
		case s.worker:
			line = "on a control-plane node: ocadm cluster database status -n " + namespace + "; if this is the only copy: " + line + "; if it is the primary: " + promote
		case v.OtherDatabase == dbpair.RoleReplica:
			line = promote
		}
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// claims lists the volumes in one line.
func (s *stake) claims() string {
	out := lists.Map(s.volumes, func(v removal.Volume) string { return cmp.Or(v.Claim, v.Name) })
	return strings.Join(out, ", ")
}
