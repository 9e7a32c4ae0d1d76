// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/phases/host"
)

// hostportTable is the table of the portmap plugin's nftables back end, one for each family. The containers of every CNI network share it.
// A rule's comment is the ID of its container.
// Source: containernetworking/plugins plugins/meta/portmap/portmap_nftables.go.
const hostportTable = "cni_hostport"

// hostportRules are the rules of this node's pods in such a table, as the arguments of "nft delete rule". They matter where other
// programs use CNI: elsewhere the table goes as a whole.
func hostportRules(ctx context.Context, h *host.Host, table string) ([]string, error) {
	argv := append([]string{"-j", "list", "table"}, strings.Fields(table)...)
	res, err := h.Exec.Run(ctx, exec.Command{Path: "nft", Args: argv})
	if err != nil {
		return nil, cannotLook("packet rules", "nft "+strings.Join(argv, " "), h.Facts.OS.Install("nft"), err)
	}
	var list struct {
		Nftables []struct {
			Rule *struct {
				Chain, Comment string
				Handle         int
			} `json:"rule"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(res.Stdout), &list); err != nil {
		return nil, cannotLook("packet rules", "nft "+strings.Join(argv, " "), "update nftables", err)
	}
	pods, _ := caches(h)
	var out []string
	for _, o := range list.Nftables {
		if r := o.Rule; r != nil && slices.Contains(containers(pods), r.Comment) {
			out = append(out, fmt.Sprintf("%s %s handle %d", table, r.Chain, r.Handle))
		}
	}
	return out, nil
}

// containers are the IDs of the containers that libcni knows.
func containers(pods map[string]cached) []string {
	var ids []string
	for _, p := range pods {
		if p.ContainerID != "" {
			ids = append(ids, p.ContainerID)
		}
	}
	return ids
}
