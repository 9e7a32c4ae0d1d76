// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

const promotionUnsettled = "The embedded database has no primary yet"

// unsettled explains why the servers cannot settle which is the primary, after etcd was restored from a snapshot.
func (s *DatabaseStatus) unsettled() string {
	why := "it is not settled which server is the primary: " + s.Record.Unsettled
	for _, m := range s.Servers {
		if m.State.Doing != "" {
			why += fmt.Sprintf("; %s: %s", m.Pod, m.State.Doing)
		}
	}
	return why
}

// answering returns the servers that can be chosen: running, with a complete copy, and having reported what they know of the current record.
func (s *DatabaseStatus) answering() []string {
	return lists.Pick(s.Servers, func(m DatabaseMember) (string, bool) {
		return m.Name, m.State.Complete && m.State.Seen != "" && m.State.Seen == s.version
	})
}

// chooseDatabase lets a user choose the primary when the servers cannot settle it.
func chooseDatabase(ctx context.Context, c client.Client, s DatabaseStatus, p Promotion) (DatabaseStatus, error) {
	can := s.answering()
	target := p.Server
	if target == "" && len(can) == 1 {
		target = can[0]
	}
	switch {
	case !p.Force:
		return s, finding.New("OCA-7432", promotionUnsettled, s.unsettled(),
			"start the machines of both servers: they settle it within seconds; if one is lost for good, or both were the primary: ocadm cluster database promote --force")
	case target == "" && len(can) > 1:
		return s, finding.New("OCA-7432", promotionUnsettled, "both servers answer; "+s.unsettled(),
			"wait a minute: ocadm cluster database status; if both were the primary, name the one to keep: ocadm cluster database promote --force --server "+strings.Join(can, "|"))
	case !slices.Contains(can, target):
		return s, finding.New("OCA-7432", promotionUnsettled, "the server to choose does not answer, or has no complete copy; "+s.unsettled(),
			"kubectl -n "+s.Namespace+" get pods -o wide; ocadm cluster database status")
	}
	m := s.member(target)
	question := fmt.Sprintf("This makes the server %s on node %s the primary. Every row that only the other server has is lost to the cloud: that server keeps its data in "+
		"data.kept until the next copy", target, m.Node)
	if err := p.Confirm(question); err != nil {
		return s, err
	}
	if err := changeRecord(ctx, c, s.Namespace, func(r *dbpair.Record) { r.Promote, r.Force = target, true }); err != nil {
		return s, err
	}
	return waitDatabase(ctx, c, s.Namespace, p.Waiting, func(s DatabaseStatus) (bool, error) {
		switch {
		case s.Record.Unsettled != "":
			return false, nil
		case s.Record.Primary != target:
			return false, finding.New("OCA-7432", "The other server is the primary", "the servers settled it: "+s.Record.Primary+" was the primary last", "ocadm cluster database status")
		}
		return s.member(target).State.Mode == dbpair.Primary && s.member(target).Ready, nil
	})
}
