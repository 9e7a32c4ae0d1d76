// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"
)

// Problem says why a store did not do what was asked of it.
type Problem string

// The problems.
const (
	// Unreachable is an object store that does not answer.
	Unreachable Problem = "Unreachable"
	// Refused are keys that the object store does not accept, or that may not do this.
	Refused Problem = "Refused"
	// NoBucket is a bucket that does not exist.
	NoBucket Problem = "NoBucket"
	// Untrusted is a certificate that this machine does not trust; NoTLS an object store that talks HTTP.
	Untrusted Problem = "Untrusted"
	NoTLS     Problem = "NoTLS"
	// Full is a place without room, ReadOnly a directory that cannot be written.
	Full     Problem = "Full"
	ReadOnly Problem = "ReadOnly"
)

// errNoBucket is the error of a bucket that does not exist.
var errNoBucket = errors.New("it does not exist: create it first")

// Codes of object stores. Source: the error codes of S3, MinIO and Ceph.
var (
	refusing = []string{"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "RequestTimeTooSkewed", "AllAccessDisabled"}
	filling  = []string{"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "InsufficientCapacity", "EntityTooLarge"}
)

// ProblemOf returns what is wrong with a store, "" if the error is another one.
func ProblemOf(err error) Problem {
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return problemOf(answer)
	}
	_, onFile := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, errNoBucket):
		return NoBucket
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return Full
	case onFile && (errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)):
		return ReadOnly
	}
	return networkProblem(err)
}

func problemOf(answer minio.ErrorResponse) Problem {
	switch {
	case answer.Code == minio.NoSuchBucket:
		return NoBucket
	case slices.Contains(filling, answer.Code), answer.StatusCode == http.StatusInsufficientStorage:
		return Full
	case slices.Contains(refusing, answer.Code), answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		return Refused
	case answer.StatusCode >= http.StatusInternalServerError:
		return Unreachable
	}
	return ""
}

// networkProblem is what keeps a request from its answer. Errors of databases have a type of their own and do not come here.
func networkProblem(err error) Problem {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return Untrusted
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return Untrusted
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return NoTLS
	}
	if _, ok := errors.AsType[net.Error](err); ok && !errors.Is(err, context.Canceled) {
		return Unreachable
	}
	return ""
}
