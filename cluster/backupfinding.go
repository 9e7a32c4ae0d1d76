// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strings"

	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
)

// OpenS3 opens a bucket.
func OpenS3(ctx context.Context, cfg backup.S3Config) (backup.Store, error) {
	s, err := backup.NewS3(ctx, cfg)
	if err != nil {
		if known := storeFinding(err); known != nil {
			return nil, known
		}
		return nil, finding.Errorf("OCA-7412", "The object store cannot be used", "check the endpoint, the bucket and the keys", "%w", err)
	}
	return s, nil
}

func backupFinding(err error) error {
	if err == nil || len(finding.Of(err)) > 0 {
		return err
	}
	switch {
	case errors.Is(err, backup.ErrEtcd):
		return finding.Errorf("OCA-7428", "The file is of the wrong kind", "ocadm cluster backup list --in PLACE shows backups; to restore etcd, on a control-plane node: "+
			"ocadm etcd restore FILE --identity key.txt", "%w", err)
	case errors.Is(err, backup.ErrEncrypted):
		return finding.Errorf("OCA-7404", "The backup cannot be decrypted", "give the secret key of one of its recipients with --identity FILE, or its passphrase with "+
			"--passphrase-file FILE", "%w", err)
	case errors.Is(err, backup.ErrDamaged):
		return finding.Errorf("OCA-7405", "The backup is damaged", "use another one: ocadm cluster backup list", "%w", err)
	}
	if known := databaseFinding(err); len(finding.Of(known)) > 0 {
		return known
	}
	if toAPIServer(err) {
		return kube.Explain(err)
	}
	return cmp.Or(storeFinding(err), err)
}

// toAPIServer reports whether a request to the API server, not one to the object store, failed.
func toAPIServer(err error) bool {
	to, ok := errors.AsType[*url.Error](err)
	if !ok {
		return false
	}
	at, err := url.Parse(to.URL)
	return err == nil && (at.Path == "/api" || strings.HasPrefix(at.Path, "/api/v1") || at.Path == "/apis" || strings.HasPrefix(at.Path, "/apis/"))
}

// storeFinding returns the finding for a store that fails; nil for any other error.
func storeFinding(err error) error {
	if _, ok := errors.AsType[*backup.SpaceError](err); ok {
		return full(err)
	}
	switch backup.ProblemOf(err) {
	case backup.Full:
		return full(err)
	case backup.ReadOnly:
		return finding.Errorf("OCA-7418", "The directory of the backups cannot be written", "mount it read-write, and let this user write to it; or give another place", "%w", err)
	case backup.Unreachable:
		return finding.Errorf("OCA-7413", "The object store cannot be reached", "check the address and the network: curl -v https://ENDPOINT", "%w", err)
	case backup.Refused:
		return finding.Errorf("OCA-7414", "The object store refuses the keys", "give keys that may list, read, write and delete there, in AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY; for the schedule: ocadm cluster backup schedule --to s3://BUCKET/PATH", "%w", err)
	case backup.NoBucket:
		return finding.Errorf("OCA-7415", "The bucket does not exist", "create it in the object store, or correct its name in --to (spec.backup.s3.bucket)", "%w", err)
	case backup.Untrusted:
		return finding.Errorf("OCA-7416", "The certificate of the object store is not trusted", "give the CA that signed it with --s3-ca-file FILE (spec.backup.s3.ca)", "%w", err)
	case backup.NoTLS:
		return finding.Errorf("OCA-7416", "The object store uses HTTP, not HTTPS", "give its HTTPS port, or --s3-plain-http (spec.backup.s3.plain)", "%w", err)
	}
	return nil
}

func full(err error) error {
	return finding.Errorf("OCA-7402", "There is not enough space for the backup", "free space, keep fewer backups (--keep), or give another place with --to", "%w", err)
}
