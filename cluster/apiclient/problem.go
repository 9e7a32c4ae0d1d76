// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/cluster/restapi"
	"yunion.io/x/ocadm/internal/finding"
)

// answerError is an error answered by the API. It reads like the Kubernetes error behind it, and wraps the finding of the API.
type answerError struct {
	status int
	detail string
	found  error
}

func (e *answerError) Error() string { return e.detail }

func (e *answerError) Unwrap() error { return e.found }

// Status lets Kubernetes functions recognize the error.
func (e *answerError) Status() metav1.Status {
	reason := map[int]metav1.StatusReason{
		http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
		http.StatusPreconditionFailed: metav1.StatusReasonConflict, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusGone: metav1.StatusReasonExpired,
	}[e.status]
	if e.status == http.StatusConflict { // an old version answers 412 instead
		reason = metav1.StatusReasonAlreadyExists
	}
	return metav1.Status{Status: metav1.StatusFailure, Code: int32(e.status), Reason: reason, Message: e.detail} //nolint:gosec // an HTTP status
}

// maxProblem bounds the size of an error that is read.
const maxProblem = 1 << 20

func read(base *url.URL, answer *http.Response) error {
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	if err != nil {
		return unreachable(base, err)
	}
	var p restapi.Problem
	if err := json.Unmarshal(text, &p); err != nil || p.Code == "" {
		return noAPI(base, "the response is "+answer.Status)
	}
	e := &answerError{status: answer.StatusCode, detail: cmp.Or(p.Detail, p.Title)}
	one := finding.New(p.Code, p.Title, p.Detail, p.Remedy)
	for _, d := range p.Errors {
		one.Evidence = append(one.Evidence, d.Location+": "+d.Message)
	}
	e.found = one
	if len(p.Findings) > 1 {
		e.found = p.Findings
	}
	return e
}

// unusable returns the finding for settings with which no request can be sent.
func unusable(cause, remedy string) error {
	return finding.New("OCA-7630", "The REST API cannot be used", cause, remedy)
}

// unreachable explains that there was no answer.
func unreachable(base *url.URL, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok { // it repeats the address with its query
		err = failed.Err
	}
	var certificate *tls.CertificateVerificationError
	var pinned *otherCertificateError
	if errors.As(err, &certificate) || errors.As(err, &pinned) {
		return finding.Errorf("OCA-7631", "The REST API at "+base.Host+" presents an unexpected certificate",
			"check the address; give --api-ca-file FILE with its CA, or --api-fingerprint with the fingerprint from its administrator", "%w", err)
	}
	return finding.Errorf("OCA-7630", "The REST API at "+base.Host+" does not answer",
		"check the address, and that the operator runs with --api-addr: docs/api.md", "%w", err)
}

// noAPI explains that an answer is not from the API.
func noAPI(base *url.URL, cause string) error {
	return finding.New("OCA-7630", "The server at "+base.Host+" is not the REST API", fmt.Sprintf("%s, without an error of the API", cause),
		"check the address, and any proxy between here and the operator: curl "+base.JoinPath("healthz").String())
}
