// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"syscall"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
)

// Finding codes of making a bundle.
const (
	CodeImage    = "OCA-2321"
	CodePlatform = "OCA-2322"
	CodeDownload = "OCA-2323"
	CodeDigest   = "OCA-2324"
	CodeNoSpace  = "OCA-2325"
	CodeWrite    = "OCA-2326"
)

// again ends a remedy: completed downloads are kept.
const again = "; then run the same command again: it continues where it stopped"

func imageUnavailable(image, registry string, err error) error {
	if down, ok := errors.AsType[*downError](err); ok { // one finding for all its images
		return finding.Errorf(CodeImage, fmt.Sprintf("The registry %s cannot be used", down.host), remedy(down.host, err)+again, "%w", err)
	}
	return finding.Errorf(CodeImage, fmt.Sprintf("The image %s cannot be downloaded from %s", image, registry), remedy(registry, err)+again, "%w", err)
}

func noCredentials(host string, err error) error {
	return finding.Errorf(CodeImage, "The credentials for "+host+" cannot be read",
		"repair ~/.docker/config.json, or give a file that needs no credential helper (credsStore) with --registry-config"+again, "%w", err)
}

// remedy returns a remedy for a server's error.
func remedy(host string, err error) string {
	var status *fetch.StatusError
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		return "give the certificate of the authority that signed the server's certificate with --ca-file"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server speaks plain HTTP: add --insecure, or name a mirror of " + host + " with --registry-mirror"
	case !errors.As(err, &status):
		return fmt.Sprintf("make sure that this machine can reach %s, directly or through HTTPS_PROXY, or name a mirror of it (see --help)", host)
	}
	switch status.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("log in with an account that may read it: docker login %s, or any tool that writes ~/.docker/config.json", host)
	case http.StatusNotFound:
		return "check that the version exists, and whether the registry has the image under another name (--image-repository)"
	case http.StatusTooManyRequests:
		return fmt.Sprintf("%s received too many requests from this machine: wait, log in (docker login %s), or name a mirror of it (see --help)", host, host)
	}
	return fmt.Sprintf("find out what is wrong with %s, or name a mirror of it (see --help)", host)
}

func noPlatform(image, arch string, has []string) error {
	return finding.New(CodePlatform, fmt.Sprintf("The image %s does not exist for linux/%s", image, arch), "it exists for "+joined(has),
		"remove "+arch+" from --arch, or give the versions and the registry of images that exist for it")
}

// notDownloaded explains why a download failed.
func notDownloaded(what, host string, err error) error {
	var other *fetch.DigestError
	switch {
	case len(finding.Of(err)) > 0:
		return err
	case errors.As(err, &other):
		return finding.New(CodeDigest, fmt.Sprintf("The download of %s has a wrong checksum", what),
			"it was changed or damaged in transit, or the server has a different file",
			"run the same command again; if it repeats, name another server (see --mirror and --registry-mirror)").
			With("want sha256:"+other.Want, "got sha256:"+other.Got).Wrap(err)
	case isLocal(err):
		return notWritten(err)
	}
	return finding.Errorf(CodeDownload, what+" cannot be downloaded", remedy(host, err)+again, "%w", err)
}

// isLocal reports whether an error comes from this machine's disk.
func isLocal(err error) bool {
	var file *fs.PathError
	var link *os.LinkError
	return errors.As(err, &file) || errors.As(err, &link)
}

func notWritten(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return finding.Errorf(CodeNoSpace, "The disk is full", "free some space, or give -o a file on a larger disk"+again, "%w", err)
	}
	if errors.Is(err, syscall.EFBIG) {
		return finding.Errorf(CodeNoSpace, "The file system allows no file of this size", "give -o a file on another file system: FAT allows up to 4 GiB", "%w", err)
	}
	return finding.Errorf(CodeWrite, "The bundle cannot be written", "give -o a file in a writable directory", "%w", err)
}

func noRoom(dir string, need, free string) error {
	return finding.New(CodeNoSpace, "There is too little space in "+dir, fmt.Sprintf("the downloads and the bundle need %s more, and %s are free", need, free),
		"free some space, or give -o a file on a larger disk"+again)
}
