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

// Problem is the reason why an operation on a store failed.
type Problem string

const (
	// Unreachable means that the object store does not answer.
	Unreachable Problem = "Unreachable"
	// Refused means that the object store does not accept the keys, or that they lack the permission.
	Refused Problem = "Refused"
	// NoBucket means that the bucket does not exist.
	NoBucket Problem = "NoBucket"
	// Untrusted means that this machine does not trust the certificate; NoTLS that the object store speaks HTTP.
	Untrusted Problem = "Untrusted"
	NoTLS     Problem = "NoTLS"
	// Full means that there is no space left, ReadOnly that the directory is not writable.
	Full     Problem = "Full"
	ReadOnly Problem = "ReadOnly"
)

// errNoBucket is returned if the bucket does not exist.
var errNoBucket = errors.New("it does not exist: create it first")

// Error codes of object stores. Source: the error codes of S3, MinIO and Ceph.
var (
	refusing = []string{"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "RequestTimeTooSkewed", "AllAccessDisabled"}
	filling  = []string{"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "InsufficientCapacity", "EntityTooLarge"}
)

// ProblemOf returns the problem with a store, "" for any other error.
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
	case onFile: // an error number is a net.Error, too
		return ""
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

// networkProblem classifies a failure to get an answer. Errors of databases have their own type and do not get here.
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
