// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/mysql"
)

// server holds what the checks know about the databases.
type server struct {
	// copies is the size of copies of all databases, old that of earlier copies that will be removed, in bytes.
	copies, old int64
	room        mysql.Room
	// err is why the databases cannot be copied; nil if they can.
	err error
}

// need returns the most that an operation writes beside the databases: its initial copies and, when it reverts, copies of what the databases hold by then.
// When it reverts, the earlier copies are gone.
func (s server) need() int64 { return max(s.copies, 2*s.copies-s.old) }

// serverOf checks whether databases can be created beside those of the cloud, how large they are, and how much room there is. keep are the sets of copies
// that the operation keeps. It returns nil for a cloud without a server.
func serverOf(ctx context.Context, r *Run, cloud *v1alpha1.OnecloudCluster, keep ...string) *server {
	v, there, err := r.openVault(ctx, cloud)
	if err != nil {
		return &server{err: err}
	}
	if !there {
		return nil
	}
	defer v.Admin.Close()
	out := &server{}
	if out.err = v.Try(ctx); out.err == nil {
		out.err = out.measure(ctx, cloud, v, keep)
	}
	return out
}

func (s *server) measure(ctx context.Context, cloud *v1alpha1.OnecloudCluster, v backup.Vault, keep []string) error {
	names, err := databasesToCopy(ctx, v.Admin, cloud)
	if err != nil {
		return err
	}
	if s.copies, err = v.Admin.CopySize(ctx, names...); err != nil {
		return err
	}
	if s.old, err = v.Frees(ctx, keep...); err != nil {
		return err
	}
	s.room, err = v.Admin.Room(ctx)
	return err
}

// databases judges whether the databases can be copied.
func databases(f facts) finding.List {
	if f.server == nil || f.server.err == nil || f.update != nil && f.update.NoBackup {
		return nil
	}
	if known := finding.Of(f.server.err); len(known) > 0 {
		return known
	}
	return finding.List{finding.Errorf("OCA-7063", "The databases cannot be copied", "grant the administrator of the database server the privileges that "+
		"docs/install.md lists, and make room on the server", "%w", f.server.err)}
}

// space judges whether the copies fit.
func space(f facts) (out finding.List) {
	if f.server == nil || f.update != nil && f.update.NoBackup {
		return nil
	}
	room, need := f.server.room, f.server.room.Takes(f.server.need())
	switch {
	case f.server.err != nil: // databases reports it
	case room.Unknown != "":
		out = append(out, finding.Warn("OCA-7074", "The free space of the database server is not known", room.Unknown,
			fmt.Sprintf("make sure that %s are free in %s on the database server; ocadm explain OCA-7074", mebibytes(need), room.Directory)))
	case room.Lacks(f.server.need()):
		out = append(out, finding.New("OCA-7073", "The database server has no space for copies of the databases",
			fmt.Sprintf("%s are free in %s, and up to %s are needed", mebibytes(room.Free), room.Directory, mebibytes(need)),
			"make room there, or enlarge the volume of the server; then try again"))
	}
	return out
}
