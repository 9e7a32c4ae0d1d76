// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"yunion.io/x/ocadm/cluster/restapi"
)

// Watch follows the selected objects from the version of the list on, with server-sent events.
func (c *Client) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	path, err := c.path(list, o.Namespace)
	if err != nil {
		return nil, err
	}
	query, err := selection(o)
	if err != nil {
		return nil, err
	}
	if query.Has("selector") {
		return nil, refused("the command follows objects with labels")
	}
	space, kinds := path[:strings.LastIndexByte(path, '/')], path[strings.LastIndexByte(path, '/')+1:]
	query.Set("kinds", kinds)
	since := list.GetResourceVersion()
	if o.Raw != nil && o.Raw.ResourceVersion != "" {
		since = o.Raw.ResourceVersion
	}
	if since != "" {
		query.Set("since", since)
	}
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.stream(ctx, cancel, request{method: http.MethodGet, path: space + "/events", query: query})
	if err != nil {
		cancel()
		return nil, err
	}
	w := &watcher{out: make(chan watch.Event), end: cancel}
	go w.run(ctx, s, func() (client.Object, error) { return c.item(list) })
	return w, nil
}

// item returns an empty object of the list's kind.
func (c *Client) item(list client.ObjectList) (client.Object, error) {
	gvk, err := apiutil.GVKForObject(list, c.scheme)
	if err != nil {
		return nil, err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	if _, is := list.(runtime.Unstructured); is {
		return &unstructured.Unstructured{}, nil
	}
	o, err := c.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return o.(client.Object), nil //nolint:forcetypeassert // an item of a list
}

// watcher watches one kind. It ends with its stream, and the caller lists again.
type watcher struct {
	out  chan watch.Event
	end  context.CancelFunc
	once sync.Once
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

func (w *watcher) Stop() { w.once.Do(w.end) }

func (w *watcher) run(ctx context.Context, s *stream, item func() (client.Object, error)) {
	defer close(w.out)
	defer s.close()
	for {
		event, data, err := s.next()
		if err != nil {
			return
		}
		if event != "change" {
			continue
		}
		var change restapi.Change
		if err := json.Unmarshal(data, &change); err != nil {
			return
		}
		o, err := item()
		if err == nil {
			err = into(o, change.Object)
		}
		e := watch.Event{Type: watch.EventType(change.Type), Object: o}
		if err != nil {
			e = watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}}
		}
		select {
		case <-ctx.Done():
			return
		case w.out <- e:
		}
	}
}

// stream reads server-sent events. It ends when the heartbeats stop.
type stream struct {
	body     io.Closer
	lines    *bufio.Reader
	silence  *time.Timer
	patience time.Duration
	cancel   context.CancelFunc
}

func (c *Client) stream(ctx context.Context, cancel context.CancelFunc, r request) (*stream, error) {
	answer, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	return &stream{answer.Body, bufio.NewReader(answer.Body), time.AfterFunc(c.patience, cancel), c.patience, cancel}, nil
}

func (s *stream) next() (event string, data []byte, err error) {
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return "", nil, err
		}
		s.silence.Reset(s.patience)
		line = strings.TrimRight(line, "\r\n")
		if name, is := strings.CutPrefix(line, "event: "); is {
			event = name
		} else if text, is := strings.CutPrefix(line, "data: "); is {
			return event, []byte(text), nil
		}
	}
}

func (s *stream) close() {
	s.silence.Stop()
	s.cancel()
	_ = s.body.Close() // it was read
}
