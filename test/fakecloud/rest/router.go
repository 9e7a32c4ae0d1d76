// SPDX-License-Identifier: Apache-2.0

// Package rest is the HTTP layer of a stand-in: routes, JSON errors in the services' format, TLS, the default handlers with their rule about user
// agents, and the stop on SIGTERM.
package rest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"
)

// Error is a service's error response.
type Error struct {
	Code    int
	Class   string
	Details string
}

func (e *Error) Error() string { return fmt.Sprintf("%d %s: %s", e.Code, e.Class, e.Details) }

func Forbidden(details string) *Error {
	return &Error{Code: http.StatusForbidden, Class: "ForbiddenError", Details: details}
}

// Guest replaces a token that could not be checked: the real services treat its bearer as a guest, who may do nothing.
func Guest(err error) error {
	if err != nil {
		return Forbidden("not enough privilege: " + err.Error())
	}
	return nil
}

func NotEmpty(details string) *Error {
	return &Error{Code: http.StatusNotAcceptable, Class: "NotEmptyError", Details: details}
}

func BadInput(format string, args ...any) *Error {
	return &Error{Code: http.StatusBadRequest, Class: "InputParameterError", Details: fmt.Sprintf(format, args...)}
}

func NotFound(format string, args ...any) *Error {
	return &Error{Code: http.StatusNotFound, Class: "ResourceNotFoundError", Details: fmt.Sprintf(format, args...)}
}

// Call is one request with its path parameters and decoded body.
type Call struct {
	*http.Request
	Params map[string]string
	Body   Record
}

// Inner returns the object under a key of the body. Every request of this API wraps its object like this.
func (c Call) Inner(key string) (Record, error) {
	inner, ok := c.Body[key].(map[string]any)
	if !ok {
		return nil, BadInput("missing %s in request body", key)
	}
	return inner, nil
}

// Reply is a response other than 200 with a JSON body.
type Reply struct {
	Status int
	Header map[string]string
	Body   any
}

// Handler returns a value to encode as JSON, or a Reply.
type Handler func(Call) (any, error)

// Route is a method and a path whose segments in braces are parameters. A route with a Header matches only requests that have it; its handler reads the body itself.
type Route struct {
	Method, Path string
	Handle       Handler
	Header       string
}

// Routes is an http.Handler.
type Routes []Route

func (routes Routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	status := routes.serve(w, r)
	if r.URL.Path != "/ping" || status != http.StatusOK {
		log.Printf("%d %s %s (%s) %s", status, r.Method, r.URL.RequestURI(), r.UserAgent(), time.Since(started).Round(time.Millisecond))
	}
}

func (routes Routes) serve(w http.ResponseWriter, r *http.Request) int {
	for _, route := range routes {
		params, ok := match(route.Path, r.URL.Path)
		if !ok || route.Method != r.Method || route.Header != "" && r.Header.Get(route.Header) == "" {
			continue
		}
		call := Call{Request: r, Params: params}
		if route.Header == "" {
			if err := decodeBody(r, &call); err != nil {
				return sendError(w, err)
			}
		}
		answer, err := route.Handle(call)
		if err != nil {
			return sendError(w, err)
		}
		return send(w, answer)
	}
	return sendError(w, &Error{Code: http.StatusNotFound, Class: "NotFoundError", Details: "Handler " + r.URL.Path + " not found"})
}

func match(pattern, path string) (map[string]string, bool) {
	want := strings.Split(strings.Trim(pattern, "/"), "/")
	have := strings.Split(strings.Trim(path, "/"), "/")
	if len(want) != len(have) {
		return nil, false
	}
	params := map[string]string{}
	for i, segment := range want {
		if name, found := strings.CutPrefix(segment, "{"); found {
			params[strings.TrimSuffix(name, "}")] = have[i]
		} else if segment != have[i] {
			return nil, false
		}
	}
	return params, true
}

// decodeBody decodes only bodies that the real services read: JSON with the right content type and a length. It ignores all others (Cloudpods, pkg/appsrv/appsrv.go).
func decodeBody(r *http.Request, call *Call) error {
	if r.ContentLength <= 0 || !strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "application/json") {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		return BadInput("reading body: %v", err)
	}
	if err := json.Unmarshal(data, &call.Body); err != nil {
		return BadInput("request body is no JSON object: %v", err)
	}
	return nil
}

func send(w http.ResponseWriter, answer any) int {
	reply, ok := answer.(Reply)
	if !ok {
		reply = Reply{Body: answer}
	}
	reply.Status = cmp.Or(reply.Status, http.StatusOK)
	for key, value := range reply.Header {
		w.Header().Set(key, value)
	}
	if text, ok := reply.Body.(string); ok {
		w.WriteHeader(reply.Status)
		_, _ = io.WriteString(w, text)
		return reply.Status
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(reply.Status)
	if reply.Body != nil {
		_ = json.NewEncoder(w).Encode(reply.Body)
	}
	return reply.Status
}

func sendError(w http.ResponseWriter, err error) int {
	var refusal *Error
	switch {
	case errors.As(err, &refusal):
	case errors.Is(err, ErrNotFound):
		refusal = NotFound("%v", err)
	case errors.Is(err, ErrDuplicate):
		refusal = &Error{Code: http.StatusConflict, Class: "DuplicateNameError", Details: err.Error()}
	default:
		refusal = &Error{Code: http.StatusInternalServerError, Class: "InternalServerError", Details: err.Error()}
	}
	log.Printf("Send error %s", refusal.Details)
	return send(w, Reply{Status: refusal.Code, Body: map[string]any{
		"code": refusal.Code, "class": refusal.Class, "details": refusal.Details, "time": time.Now().UTC().Format(time.RFC3339),
	}})
}
