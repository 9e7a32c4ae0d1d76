// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/operatorctl/operation"
)

const (
	// messageTimeout bounds the sending of one message of a stream.
	messageTimeout = 10 * time.Second
	// beat is the heartbeat interval, which keeps proxies from closing an idle stream.
	beat = 15 * time.Second
	// longest is the lifetime of a stream. The client then reconnects, and its permissions are checked again.
	longest = time.Hour
)

// Change is a message of the stream of events.
type Change struct {
	Type    string   `json:"type" enum:"ADDED,MODIFIED,DELETED"`
	Path    string   `json:"path" doc:"kind of the resource, as in paths" enum:"clouds,operations,machines"`
	Version string   `json:"version" doc:"its ETag"`
	Object  Resource `json:"object"`
}

// stream writes server-sent events.
type stream struct {
	context.Context
	w http.ResponseWriter
}

// send writes a message. data is JSON without a newline.
func (s stream) send(event string, data []byte) error {
	c := http.NewResponseController(s.w)
	if err := c.SetWriteDeadline(time.Now().Add(messageTimeout)); err != nil {
		return err
	}
	text := ": \n\n"
	if event != "" {
		text = "event: " + event + "\ndata: " + string(data) + "\n\n"
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return c.Flush()
}

// streaming answers with a stream.
func streaming(run func(stream) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(h huma.Context) {
		_, w := humago.Unwrap(h)
		w.Header().Set("Content-Type", "text/event-stream")
		ctx, cancel := context.WithTimeout(h.Context(), longest)
		defer cancel()
		out := stream{ctx, w}
		if out.send("", nil) == nil { // sends the headers
			_ = run(out) // the client has gone, or reconnects
		}
	}}
}

func (s *server) streams(api huma.API) {
	events := describe("stream-events", http.MethodGet, "/namespaces/{namespace}/events", "events", "Follow clouds, operations and machines")
	events.Description = "First one message for each existing resource, then one for each change. Without watch permissions on all three kinds, name those that you may watch. " +
		"A message \"error\" with a problem ends the stream: with status 410, since is too old. List again."
	log := describe("stream-log", http.MethodGet, "/namespaces/{namespace}/operations/{name}/log", "operations", "Follow the log of an operation")
	log.Description = "A message \"line\" for each line, an event of package workflow in JSON; at the end a message \"end\" with the phase of the operation. " +
		"With follow=false it ends at once."
	known := api.OpenAPI().Components.Schemas
	for d, schema := range map[*huma.Operation]*huma.Schema{&events: known.Schema(reflect.TypeFor[Change](), true, "Change"), &log: {Type: huma.TypeObject}} {
		content := map[string]*huma.MediaType{"text/event-stream": {Schema: schema}}
		d.Responses = map[string]*huma.Response{"200": {Description: "server-sent events; the data of each are", Content: content}}
		d.Middlewares = huma.Middlewares{s.open.bound}
	}
	huma.Register(api, events, follow)
	huma.Register(api, log, followLog)
}

// follow streams changes. It starts the watch before it answers, so that a sender without permission gets an error.
func follow(ctx context.Context, in *struct {
	Place
	Kinds []string `query:"kinds" enum:"clouds,operations,machines" doc:"all when absent"`
	Name  string   `query:"name" maxLength:"253" doc:"only those with this name"`
	Since string   `query:"since" maxLength:"64" doc:"version of a list of the one kind: only what has changed since"`
}) (*huma.StreamResponse, error) {
	if in.Since != "" && len(in.Kinds) != 1 {
		return nil, problem(http.StatusUnprocessableEntity, "since needs exactly one kind: each kind has its own versions")
	}
	out := make(chan message)
	watching, stop := context.WithCancel(ctx)
	for _, k := range kinds {
		if len(in.Kinds) > 0 && !slices.Contains(in.Kinds, k.path) {
			continue
		}
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(k.gvk)
		w, err := of(ctx).Watch(watching, &list, client.InNamespace(in.Namespace), named(in.Name),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: in.Since}})
		if err != nil {
			stop()
			return nil, failed(err)
		}
		go relay(watching, stop, w, k.path, out)
	}
	return streaming(func(s stream) error {
		defer stop()
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			event, data := "", []byte(nil)
			select {
			case <-s.Done():
				return s.Err()
			case <-watching.Done():
				return watching.Err()
			case <-tick.C:
			case m := <-out:
				event = m.event
				var err error
				if data, err = json.Marshal(m.data); err != nil {
					return err
				}
			}
			if err := s.send(event, data); err != nil || event == endsWith {
				return err
			}
		}
	}), nil
}

// message is one of the stream of events: a Change, or a *Problem that ends it.
type message struct {
	event string
	data  any
}

// endsWith is the event with the error of a watch.
const endsWith = "error"

// relay forwards the events of a watch. When the watch ends, so does the stream, and the client reconnects.
func relay(ctx context.Context, stop context.CancelFunc, w watch.Interface, path string, out chan<- message) {
	defer stop()
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-w.ResultChan():
			if !open {
				return
			}
			m := message{endsWith, failed(apierrors.FromObject(e.Object))}
			if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Error {
				m = message{"change", Change{Type: string(e.Type), Path: path, Version: tag(u), Object: shown(u)}}
			}
			select {
			case <-ctx.Done():
				return
			case out <- m:
			}
		}
	}
}

// followLog streams the log of an operation. It reads the operation before it answers.
func followLog(ctx context.Context, in *struct {
	Named
	Follow bool `query:"follow" default:"true" doc:"false ends after the existing lines"`
}) (*huma.StreamResponse, error) {
	if _, err := cluster.OperationOf(ctx, of(ctx), in.key()); err != nil {
		return nil, failed(err)
	}
	watching, stop := context.WithCancel(ctx)
	logs, err := of(ctx).Watch(watching, &corev1.ConfigMapList{}, client.InNamespace(in.Namespace),
		client.MatchingFields{metav1.ObjectNameField: operation.LogName(in.Name)})
	if err != nil {
		stop()
		return nil, failed(err)
	}
	return streaming(func(s stream) error {
		defer stop()
		defer logs.Stop()
		tick := time.NewTicker(beat)
		defer tick.Stop()
		var l logLines
		for {
			o, err := cluster.OperationOf(s, of(ctx), in.key())
			if err != nil {
				return err
			}
			if o.Status.Phase.Final() || !in.Follow {
				text, err := cluster.LogOf(s, of(ctx), o)
				if err != nil {
					return err
				}
				if err := l.send(s, text); err != nil {
					return err
				}
				return s.send("end", fmt.Appendf(nil, `{"phase":%q}`, o.Status.Phase))
			}
			select {
			case <-s.Done():
				return s.Err()
			case <-tick.C:
				err = s.send("", nil)
			case e, open := <-logs.ResultChan():
				cm, ok := e.Object.(*corev1.ConfigMap)
				if !open || !ok {
					return nil
				}
				err = l.send(s, cm.Data[operation.LogKey])
			}
			if err != nil {
				return err
			}
		}
	}), nil
}

// logLines remembers the last line sent of a log. The log may be truncated at its beginning meanwhile, so a line count would not do.
type logLines struct{ last string }

func (l *logLines) send(s stream, text string) error {
	if i := strings.LastIndex(text, l.last+"\n"); l.last != "" && i >= 0 {
		text = text[i+len(l.last)+1:]
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if err := s.send("line", []byte(line)); err != nil {
			return err
		}
		l.last = line
	}
	return nil
}
