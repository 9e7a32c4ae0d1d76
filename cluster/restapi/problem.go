// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"yunion.io/x/ocadm/internal/finding"
)

// Problem is an error in the form of RFC 9457, with the code of the finding.
type Problem struct {
	Type     string              `json:"type" doc:"the code as a URN" example:"urn:ocadm:finding:OCA-7616"`
	Title    string              `json:"title" doc:"what is wrong"`
	Status   int                 `json:"status" doc:"the HTTP status"`
	Detail   string              `json:"detail,omitempty" doc:"the cause"`
	Code     string              `json:"code" doc:"code of the finding" example:"OCA-7616"`
	Remedy   string              `json:"remedy,omitempty" doc:"what to do"`
	Findings finding.List        `json:"findings,omitempty" doc:"all findings, if there are several"`
	Errors   []*huma.ErrorDetail `json:"errors,omitempty" doc:"the fields that are wrong"`
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// codes maps a status to the finding for an error of the API itself. The last entry is for all others.
var codes = map[int]finding.Finding{
	http.StatusUnauthorized:          finding.New("OCA-7615", "Not logged in", "", "send a valid token: Authorization: Bearer TOKEN; with ocadm: --api-token-file FILE"),
	http.StatusForbidden:             finding.New("OCA-7616", "Not allowed", "", "request the Kubernetes permission that the cause names"),
	http.StatusPreconditionFailed:    finding.New("OCA-7617", "The resource has changed in the meantime", "", "read it again, and send If-Match with its ETag"),
	http.StatusPreconditionRequired:  finding.New("OCA-7617", "The version of the resource is missing", "", "read the resource, and send If-Match with its ETag"),
	http.StatusConflict:              finding.New("OCA-7618", "The request conflicts with the present state", "", "read the state; use another name or another Idempotency-Key"),
	http.StatusTooManyRequests:       finding.New("OCA-7619", "Too many requests", "", "wait as long as Retry-After says"),
	http.StatusNotFound:              finding.New("OCA-7620", "The resource does not exist", "", "check the path and the name"),
	http.StatusUnprocessableEntity:   finding.New("OCA-7621", "The request is not valid", "", "correct what the cause names; GET /openapi.json describes it"),
	http.StatusRequestEntityTooLarge: finding.New("OCA-7621", "The request is too large", "", "send at most 1 MiB"),
	0:                                finding.New("OCA-7622", "Kubernetes did not answer as expected", "", "try again; the log of the operator has more"),
}

// urn is the prefix of the type of a problem; the code follows (ocadm explain CODE).
const urn = "urn:ocadm:finding:"

func problem(status int, cause string, errs ...error) *Problem {
	f, ok := codes[status]
	if !ok && status >= http.StatusBadRequest && status < http.StatusInternalServerError {
		f, ok = codes[http.StatusUnprocessableEntity], true
	}
	if !ok {
		f = codes[0]
	}
	p := &Problem{Type: urn + f.Code, Title: f.What, Status: status, Detail: cause, Code: f.Code, Remedy: f.Remedy}
	for _, err := range errs {
		var d huma.ErrorDetailer
		if errors.As(err, &d) {
			detail := d.ErrorDetail()
			p.Errors = append(p.Errors, &huma.ErrorDetail{Message: detail.Message, Location: detail.Location}) // the value may be a secret
		}
	}
	return p
}

// notStrict precedes the unknown fields in an error of the API server.
const notStrict = "strict decoding error: "

// failed converts an error from Kubernetes or package cluster.
func failed(err error) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*Problem](err); ok {
		return own
	}
	status, cause := http.StatusInternalServerError, err.Error()
	var answer apierrors.APIStatus
	list := finding.Of(err)
	if at := strings.LastIndex(cause, notStrict); at >= 0 { // the text before it may be the whole object, with its secrets
		return problem(http.StatusBadRequest, cause[at+len(notStrict):])
	}
	switch {
	case errors.As(err, &answer):
		status = cmp.Or(int(answer.Status().Code), status)
	case len(list) > 0:
		status = http.StatusUnprocessableEntity
	}
	p := problem(status, cause)
	if len(list) > 0 && status != http.StatusUnauthorized && status != http.StatusForbidden {
		f := list[0]
		p.Type, p.Title, p.Detail, p.Code, p.Remedy = urn+f.Code, f.What, f.Cause, f.Code, f.Remedy
		if len(list) > 1 {
			p.Findings = list
		}
	}
	return p
}

// stale is like failed, for a request with a version: a conflict is then about the version.
func stale(err error) error {
	if apierrors.IsConflict(err) {
		return problem(http.StatusPreconditionFailed, err.Error())
	}
	return failed(err)
}

func write(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", p.ContentType(""))
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client has gone
}
