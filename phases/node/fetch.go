// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"path"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
)

// downloadDir holds complete downloads until they are installed, and partial ones to resume.
const downloadDir = host.StateDir + "/downloads"

// fetchFile downloads a file whose SHA-256 is want, in hexadecimal, and returns its name on the machine. The name contains the digest, so a resumed part
// never belongs to another version.
func fetchFile(ctx context.Context, f fetch.Fetcher, files host.Files, url, want string, p fetch.Progress) (string, error) {
	if err := files.Mkdir(downloadDir, 0o700); err != nil {
		return "", err
	}
	file := path.Join(downloadDir, want[:16]+"-"+path.Base(url))
	err := f.Fetch(ctx, url, files.Path(file), want, p)
	var other *fetch.DigestError
	switch {
	case err == nil:
		return file, nil
	case errors.As(err, &other):
		return "", finding.Finding{
			Code: CodeChecksum, Severity: finding.Error,
			What:     "The download of " + url + " has a wrong checksum",
			Cause:    "it was changed or damaged in transit, or the mirror has a different file",
			Remedy:   "run the same command again, name another server with --mirror, or use --bundle",
			Evidence: []string{"want sha256:" + other.Want, "got sha256:" + other.Got},
			Err:      err,
		}
	default:
		return "", finding.Errorf(CodeDownload, url+" cannot be downloaded",
			"make the address reachable from this machine, name a mirror with --mirror, or install from a bundle with --bundle", "%w", err)
	}
}
