// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/cluster/restapi"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/lists"
)

var _ cluster.Views = (*Client)(nil)

func in(key client.ObjectKey, parts ...string) string {
	return "namespaces/" + strings.Join(lists.Map(append([]string{key.Namespace}, parts...), url.PathEscape), "/")
}

func listed[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	var out struct{ Items []T }
	err := c.ask(ctx, request{method: http.MethodGet, path: path}, &out)
	return out.Items, err
}

// Releases returns the releases of a cloud, latest first.
func (c *Client) Releases(ctx context.Context, cloud client.ObjectKey) ([]cluster.Release, error) {
	return listed[cluster.Release](ctx, c, in(cloud, "clouds", cloud.Name, "releases"))
}

func (c *Client) Backups(ctx context.Context, cloud client.ObjectKey) (backup.History, error) {
	return listed[backup.Record](ctx, c, in(cloud, "clouds", cloud.Name, "backups"))
}

// OperationLog returns the log of an operation so far, one JSON event per line.
func (c *Client) OperationLog(ctx context.Context, operation client.ObjectKey) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.stream(ctx, cancel, request{method: http.MethodGet, path: in(operation, "operations", operation.Name, "log"), query: url.Values{"follow": {"false"}}})
	if err != nil {
		return "", err
	}
	defer s.close()
	var out strings.Builder
	for {
		event, data, err := s.next()
		switch {
		case errors.Is(err, io.EOF):
			return "", unreachable(c.base, io.ErrUnexpectedEOF)
		case err != nil:
			return "", unreachable(c.base, err)
		case event == "end":
			return out.String(), nil
		}
		out.Write(data)
		out.WriteByte('\n')
	}
}

// AddMachines creates machines, all or none.
func (c *Client) AddMachines(ctx context.Context, all []cluster.Machine, report func(name, action string)) error {
	byNamespace := map[string][]cluster.Machine{}
	for _, m := range all {
		byNamespace[m.Namespace] = append(byNamespace[m.Namespace], m)
	}
	if len(byNamespace) > 1 {
		return refused("the command adds machines to several namespaces at once")
	}
	for namespace, some := range byNamespace {
		var out struct{ Items []restapi.Added }
		err := c.ask(ctx, request{method: http.MethodPost, path: in(client.ObjectKey{Namespace: namespace}, "machines", "batch"), body: map[string]any{"items": resources(some)}}, &out)
		if err != nil {
			return err
		}
		for _, one := range out.Items {
			report(one.Name, one.Action)
		}
	}
	return nil
}

func resources(all []cluster.Machine) []any {
	return lists.Map(all, func(m cluster.Machine) any {
		metadata := map[string]any{"name": m.Name}
		if len(m.Labels) > 0 {
			metadata["labels"] = m.Labels
		}
		if len(m.Annotations) > 0 {
			metadata["annotations"] = m.Annotations
		}
		return map[string]any{"apiVersion": m.APIVersion, "kind": m.Kind, "metadata": metadata, "spec": m.Spec}
	})
}
