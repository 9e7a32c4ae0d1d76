// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	"yunion.io/x/ocadm/test/integration/harness"
)

// streams are the open watches of an operator, with faults to inject.
type streams struct {
	mu       sync.Mutex
	open     map[*stream]bool
	withhold func(kind, name string) bool
	withheld []string
}

// stream is a watch: the API server's events are read from body and written to the pipe for the operator.
type stream struct {
	io.Reader
	all  *streams
	body io.ReadCloser
	// mu is held while an event is written, so that a stream does not end in the middle of one.
	mu   sync.Mutex
	pipe *io.PipeWriter
}

// expired is the event of an API server that ends a watch that began too long ago.
const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
	`"message":"too old resource version: 1 (2)","reason":"Expired","code":410}}` + "\n"

// wrap wraps the transport to the API server. The operator must use JSON.
func (s *streams) wrap(next http.RoundTripper) http.RoundTripper {
	return harness.RoundTrip(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err != nil || r.URL.Query().Get("watch") == "" || answer.StatusCode != http.StatusOK {
			return answer, err
		}
		reader, writer := io.Pipe()
		one := &stream{Reader: reader, all: s, body: answer.Body, pipe: writer}
		s.mu.Lock()
		if s.open == nil {
			s.open = map[*stream]bool{}
		}
		s.open[one] = true
		s.mu.Unlock()
		go one.pass()
		answer.Body = one
		return answer, nil
	})
}

// pass forwards every event that is not withheld.
func (s *stream) pass() {
	decoder := json.NewDecoder(s.body)
	for {
		var event json.RawMessage
		if err := decoder.Decode(&event); err != nil {
			s.end("")
			return
		}
		if s.all.withholds(event) {
			continue
		}
		s.mu.Lock()
		_, err := s.pipe.Write(append(event, '\n'))
		s.mu.Unlock()
		if err != nil {
			s.end("")
			return
		}
	}
}

// end ends the stream, after a last event if there is one.
func (s *stream) end(last string) {
	s.all.mu.Lock()
	open := s.all.open[s]
	delete(s.all.open, s)
	s.all.mu.Unlock()
	if !open {
		return
	}
	_ = s.body.Close() // not read any more
	s.mu.Lock()
	defer s.mu.Unlock()
	if last != "" {
		_, _ = s.pipe.Write([]byte(last)) // the operator may have stopped meanwhile
	}
	_ = s.pipe.Close()
}

// Close is called by the operator.
func (s *stream) Close() error {
	_ = s.pipe.CloseWithError(io.ErrClosedPipe) // unblocks a pending write
	s.end("")
	return nil
}

func (s *streams) withholds(event []byte) bool {
	var e struct {
		Type   string
		Object struct {
			Kind     string
			Metadata struct{ Name string }
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.withhold == nil || json.Unmarshal(event, &e) != nil || !s.withhold(e.Object.Kind, e.Object.Metadata.Name) {
		return false
	}
	s.withheld = append(s.withheld, e.Type+" "+e.Object.Kind+" "+e.Object.Metadata.Name)
	return true
}

// hide withholds events about some objects from now on, nil none. A bookmark has a kind and no name.
func (s *streams) hide(which func(kind, name string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withhold, s.withheld = which, nil
}

// hidden returns the number of withheld events like "DELETED Service default-glance", or of any type if the text begins with the kind.
func (s *streams) hidden(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, w := range s.withheld {
		if strings.HasSuffix(w, text) {
			n++
		}
	}
	return n
}

// cut ends every watch without an event, expire with 410 Gone.
func (s *streams) cut()    { s.endAll("") }
func (s *streams) expire() { s.endAll(expired) }

func (s *streams) endAll(last string) {
	s.mu.Lock()
	var all []*stream
	for one := range s.open {
		all = append(all, one)
	}
	s.mu.Unlock()
	for _, one := range all {
		one.end(last)
	}
}
