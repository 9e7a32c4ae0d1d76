// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"

	"yunion.io/x/ocadm/test/standin/resource"
	"yunion.io/x/ocadm/test/standin/store"
	"yunion.io/x/ocadm/test/standin/wire"
)

// What follows is asked of a service after its first start. Each refuses what the real one could not use.

func (s Service) commonAlerts() wire.Routes {
	return s.plain(resource.Collection{Path: "/commonalerts", Table: "commonalerts", Singular: "commonalert",
		Prepare: func(_ context.Context, _ wire.Call, r store.Record) (store.Record, string, error) {
			queries, _ := r["metric_query"].([]any)
			if r.Text("name") == "" || len(queries) == 0 {
				return nil, "", wire.BadInput("an alert needs name and metric_query")
			}
			for _, q := range queries {
				query, _ := q.(map[string]any)
				model, _ := query["model"].(map[string]any)
				selects, _ := model["select"].([]any)
				if model["database"] == nil || model["measurement"] == nil || len(selects) == 0 || query["comparator"] == nil || query["reduce"] == nil {
					return nil, "", wire.BadInput("metric_query is incomplete")
				}
			}
			r["id"], r["metadata"] = store.NewID(), map[string]any{"meta_name": r.Text("meta_name")}
			return r, r.Text("id"), nil // names may be taken twice
		}})
}

func (s Service) devtool() wire.Routes {
	return s.plain(
		resource.Collection{Path: "/devtool_templates", Table: "devtool_templates", Singular: "devtool_template",
			Prepare: func(ctx context.Context, c wire.Call, r store.Record) (store.Record, string, error) {
				book, _ := r["playbook"].(map[string]any)
				modules, _ := book["modules"].([]any)
				inventory, _ := book["inventory"].(map[string]any)
				files, _ := book["files"].(map[string]any)
				if hosts, _ := inventory["hosts"].([]any); len(modules) == 0 || len(hosts) == 0 {
					return nil, "", wire.BadInput("a playbook needs hosts and modules")
				}
				for name, content := range files {
					if !octets(content) {
						return nil, "", fmt.Errorf("setStructFieldAt playbook: file %s is no array of bytes", name)
					}
				}
				return named(ctx, c, r)
			}},
		resource.Collection{Path: "/scripts", Table: "scripts", Singular: "script",
			Prepare: func(ctx context.Context, c wire.Call, r store.Record) (store.Record, string, error) {
				if r.Text("playbook_reference") == "" {
					return nil, "", wire.BadInput("missing playbook_reference")
				}
				return named(ctx, c, r)
			}},
	)
}

// octets tells whether a value is what these APIs take for bytes: an array of numbers. Base64 is a string to them.
func octets(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(x any) bool {
		n, number := x.(float64)
		return !number || n != float64(byte(n))
	})
}

func (s Service) playbookReferences() wire.Routes {
	return s.plain(resource.Collection{Path: "/ansibleplaybookreferences", Table: "ansibleplaybookreferences", Singular: "ansibleplaybookreference",
		Prepare: func(ctx context.Context, c wire.Call, r store.Record) (store.Record, string, error) {
			if r.Text("playbook_path") == "" {
				return nil, "", wire.BadInput("missing playbook_path")
			}
			return named(ctx, c, r)
		}})
}

// kubeserver knows the one cluster it runs in, and what is installed there. It installs nothing.
func (s Service) kubeserver() wire.Routes {
	const base = "/api/kubeclusters/system-default/"
	status := func(c wire.Call) (any, error) {
		if err := s.guard(c, "kubecluster", resource.Get); err != nil {
			return nil, err
		}
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
	perform := func(handle func(wire.Call, store.Record) error) wire.Handler {
		return func(c wire.Call) (any, error) {
			if err := s.guard(c, "kubecluster", resource.Perform); err != nil {
				return nil, err
			}
			r, _ := c.Inner("kubecluster") // sync comes without
			return map[string]any{"kubecluster": map[string]any{"name": "system-default"}}, handle(c, r)
		}
	}
	return append(wire.Routes{
		{Method: http.MethodGet, Path: base + "components-status", Handle: status},
		{Method: http.MethodPost, Path: base + "sync", Handle: perform(func(wire.Call, store.Record) error { return nil })},
		{Method: http.MethodPost, Path: base + "enable-component", Handle: perform(s.installed(false))},
		{Method: http.MethodPost, Path: base + "update-component", Handle: perform(s.installed(true))},
		{Method: http.MethodPost, Path: base + "disable-component", Handle: perform(func(c wire.Call, r store.Record) error {
			old, err := s.Store.Get(c.Context(), "components", r.Text("type"))
			if err == nil {
				err = s.Store.Delete(c.Context(), "components", old.Text("id"))
			}
			return err
		})},
	}, s.plain(resource.Collection{Path: "/records", Table: "records", Singular: "record"})...)
}

// installed remembers a component with a fingerprint of its settings. Enabling what is there, or updating what is not, is refused.
func (s Service) installed(update bool) func(wire.Call, store.Record) error {
	return func(c wire.Call, r store.Record) error {
		name := r.Text("type")
		settings, ok := r[name].(map[string]any)
		if !ok || len(settings) == 0 {
			return wire.BadInput("missing settings of component %q", name)
		}
		sum := sha256.Sum256([]byte(store.Record(settings).Text("secretKey")))
		print := hex.EncodeToString(sum[:8])
		old, err := s.Store.Get(c.Context(), "components", name)
		switch {
		case update && err != nil:
			return err
		case update:
			_, err = s.Store.Update(c.Context(), "components", old, store.Record{"fingerprint": print})
			return err
		case err == nil:
			return wire.BadInput("component %q is enabled", name)
		}
		_, err = s.Store.Insert(c.Context(), "components", store.Record{"name": name, "enabled": true, "status": "deployed", "fingerprint": print}, name)
		return err
	}
}
