// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// These APIs are called after a service's first start. They reject what the real services could not use.

func (s Service) commonAlerts() rest.Routes {
	// Names need not be unique.
	return s.plain(rest.Collection{Path: "/commonalerts", Singular: "commonalert", Required: named, Unique: []string{},
		Prepare: func(_ context.Context, _ rest.Call, r rest.Record) error {
			queries, _ := r["metric_query"].([]any)
			if len(queries) == 0 {
				return rest.BadInput("missing metric_query")
			}
			for _, q := range queries {
				query, _ := q.(map[string]any)
				model, _ := query["model"].(map[string]any)
				selects, _ := model["select"].([]any)
				if model["database"] == nil || model["measurement"] == nil || len(selects) == 0 || query["comparator"] == nil || query["reduce"] == nil {
					return rest.BadInput("metric_query is incomplete")
				}
			}
			r["metadata"] = map[string]any{"meta_name": r.Text("meta_name")}
			return nil
		}})
}

func (s Service) devtool() rest.Routes {
	return s.plain(
		rest.Collection{Path: "/devtool_templates", Singular: "devtool_template", Required: named,
			Prepare: func(_ context.Context, _ rest.Call, r rest.Record) error {
				book, _ := r["playbook"].(map[string]any)
				modules, _ := book["modules"].([]any)
				inventory, _ := book["inventory"].(map[string]any)
				files, _ := book["files"].(map[string]any)
				if hosts, _ := inventory["hosts"].([]any); len(modules) == 0 || len(hosts) == 0 {
					return rest.BadInput("a playbook needs hosts and modules")
				}
				for name, content := range files {
					if !octets(content) {
						return fmt.Errorf("setStructFieldAt playbook: file %s is no array of bytes", name)
					}
				}
				return nil
			}},
		rest.Collection{Path: "/scripts", Singular: "script", Required: []string{"name", "playbook_reference"}},
	)
}

// octets reports whether a value is an array of numbers, the form in which these APIs accept bytes. Base64 is just a string to them.
func octets(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(x any) bool {
		n, number := x.(float64)
		return !number || n != float64(byte(n))
	})
}

// kubeserver knows only the cluster in which it runs and the components installed there. It installs nothing.
func (s Service) kubeserver() rest.Routes {
	const base = "/api/kubeclusters/system-default/"
	status := func(c rest.Call) (any, error) {
		list, err := s.Store.List(c.Context(), "components")
		if err != nil {
			return nil, err
		}
		out := map[string]any{}
		for _, name := range []string{"minio", "monitorMinio", "thanos", "monitor"} {
			out[name] = map[string]any{"enabled": false, "status": "init"}
		}
		for _, r := range list {
			out[r.Text("name")] = map[string]any{"enabled": r.True("enabled"), "status": r.Text("status"), "settings": r.Text("fingerprint")}
		}
		return map[string]any{"kubecluster": out}, nil
	}
	perform := func(handle func(rest.Call, rest.Record) error) rest.Handler {
		return s.only("kubecluster", rest.Perform, func(c rest.Call) (any, error) {
			r, _ := c.Inner("kubecluster") // sync has no body
			return map[string]any{"kubecluster": map[string]any{"name": "system-default"}}, handle(c, r)
		})
	}
	return append(rest.Routes{
		{Method: http.MethodGet, Path: base + "components-status", Handle: s.only("kubecluster", rest.Get, status)},
		{Method: http.MethodPost, Path: base + "sync", Handle: perform(func(rest.Call, rest.Record) error { return nil })},
		{Method: http.MethodPost, Path: base + "enable-component", Handle: perform(s.installed(false))},
		{Method: http.MethodPost, Path: base + "update-component", Handle: perform(s.installed(true))},
		{Method: http.MethodPost, Path: base + "disable-component", Handle: perform(func(c rest.Call, r rest.Record) error {
			old, err := s.Store.Get(c.Context(), "components", r.Text("type"))
			if err == nil {
				err = s.Store.Delete(c.Context(), "components", old.Text("id"))
			}
			return err
		})},
	}, s.plain(rest.Collection{Path: "/records", Singular: "record"})...)
}

// installed records a component with a fingerprint of its settings. It refuses to enable an installed component or to update a missing one.
func (s Service) installed(update bool) func(rest.Call, rest.Record) error {
	return func(c rest.Call, r rest.Record) error {
		name := r.Text("type")
		settings, ok := r[name].(map[string]any)
		if !ok || len(settings) == 0 {
			return rest.BadInput("missing settings of component %q", name)
		}
		print := fmt.Sprintf("%x", sha256.Sum256([]byte(rest.Record(settings).Text("secretKey"))))[:16]
		old, err := s.Store.Get(c.Context(), "components", name)
		switch {
		case update && err != nil:
			return err
		case update:
			_, err = s.Store.Update(c.Context(), "components", old, rest.Record{"fingerprint": print})
			return err
		case err == nil:
			return rest.BadInput("component %q is enabled", name)
		}
		_, err = s.Store.Insert(c.Context(), "components", rest.Record{"name": name, "enabled": true, "status": "deployed", "fingerprint": print}, name)
		return err
	}
}
