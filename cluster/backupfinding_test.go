// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"testing"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/mysql"
)

// TestBackupFindings checks that every failure has a code and a remedy.
func TestBackupFindings(t *testing.T) {
	for want, err := range map[string]error{
		"OCA-7401": &mysql.Error{Class: mysql.Unreachable, Server: "db:3306", Op: "connecting"},
		"OCA-7402": &backup.SpaceError{Store: "/backup", Free: 1, Need: 2},
		"OCA-7404": backup.ErrEncrypted,
		"OCA-7405": backup.ErrDamaged,
		"OCA-7413": &net.OpError{Op: "dial", Err: unix.ECONNREFUSED},
		"OCA-4203": &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/apis/apps/v1/deployments", Err: &net.OpError{Op: "dial", Err: unix.ECONNREFUSED}},
		"OCA-7414": minio.ErrorResponse{Code: "InvalidAccessKeyId", StatusCode: 403},
		"OCA-7415": minio.ErrorResponse{Code: minio.NoSuchBucket, StatusCode: 404},
		"OCA-7418": &fs.PathError{Op: "open", Path: "/backup/.x.part", Err: unix.EROFS},
	} {
		l := finding.Of(backupFinding(fmt.Errorf("writing: %w", err)))
		if len(l) != 1 || l[0].Code != want || l[0].Remedy == "" || l[0].Cause == "" {
			t.Errorf("%v: %+v, want %s", err, l, want)
		}
	}
	own := finding.New("OCA-7403", "a", "b", "c")
	if err := backupFinding(own); finding.Of(err)[0].Code != own.Code {
		t.Errorf("a finding became %v", err)
	}
	if err := errors.New("another"); backupFinding(err) != err { //nolint:errorlint // the same value
		t.Error("another error is changed")
	}
}
