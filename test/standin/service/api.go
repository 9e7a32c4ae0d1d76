// SPDX-License-Identifier: Apache-2.0

// Package service is what the stand-ins answer besides /ping: small REST APIs over their own database, behind a token check
// at keystone for each call.
package service

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"yunion.io/x/ocadm/test/standin/cloud"
	"yunion.io/x/ocadm/test/standin/config"
	"yunion.io/x/ocadm/test/standin/profile"
	"yunion.io/x/ocadm/test/standin/rbac"
	"yunion.io/x/ocadm/test/standin/resource"
	"yunion.io/x/ocadm/test/standin/store"
	"yunion.io/x/ocadm/test/standin/wire"
)

// Service is a running program other than keystone.
type Service struct {
	Profile profile.Profile
	Options config.Values
	Cloud   *cloud.Client
	// Store is nil for programs without a database.
	Store *store.Store
}

// Routes is the API of the program.
func (s Service) Routes(ctx context.Context) wire.Routes {
	switch s.Profile.Type {
	case "compute_v2":
		return s.region(ctx)
	case "image":
		return s.image(ctx)
	case "log":
		return s.plain(resource.Collection{Path: "/actions", Table: "actions", Singular: "action"})
	case "yunionconf":
		return s.plain(resource.Collection{Path: "/parameters", Table: "parameters", Singular: "parameter", Prepare: parameter})
	case "scheduler":
		return wire.Routes{{Method: http.MethodPost, Path: "/scheduler", Handle: s.schedule}}
	case "yunionapi":
		return s.gateway()
	case "monitor":
		return s.commonAlerts()
	case "devtool":
		return s.devtool()
	case "ansible":
		return s.playbookReferences()
	case "cloudproxy":
		return s.plain(resource.Collection{Path: "/proxy_agents", Table: "proxy_agents", Singular: "proxy_agent", Prepare: named})
	case "k8s":
		return s.kubeserver()
	case "host":
		return s.guests()
	}
	if s.Store == nil {
		return nil
	}
	return s.plain(resource.Collection{Path: "/records", Table: "records", Singular: "record"})
}

func (s Service) plain(collections ...resource.Collection) wire.Routes {
	var routes wire.Routes
	for _, collection := range collections {
		routes = append(routes, collection.Routes(s.Store, s.admit)...)
	}
	return routes
}

// serviceTypes are what policies call a service, where that is not its type in the catalogue.
var serviceTypes = map[string]string{"compute_v2": "compute"}

// admit asks keystone on every call whose token it is, and which policies count for them.
func (s Service) admit(c wire.Call, name string, action resource.Action, extra ...string) (resource.Access, error) {
	token := c.Header.Get("X-Auth-Token")
	if token == "" {
		return resource.Access{}, wire.Unauthorized("missing X-Auth-Token")
	}
	who, err := s.Cloud.Check(c.Context(), token)
	if err != nil {
		return resource.Access{}, fmt.Errorf("checking token: %w", err)
	}
	caller := rbac.Caller{Project: who.Project.ID, Domain: who.Project.Domain.ID}
	if caller.Policies, err = s.Cloud.Policies(c.Context(), token); err != nil {
		return resource.Access{}, fmt.Errorf("fetching policies: %w", err)
	}
	service := s.Profile.Type
	if known := serviceTypes[service]; known != "" {
		service = known
	}
	return resource.Admit(caller, service, c, name, action, extra...)
}

// guard is admit for those who need no more than the answer.
func (s Service) guard(c wire.Call, name string, action resource.Action) error {
	_, err := s.admit(c, name, action)
	return err
}

func named(_ context.Context, _ wire.Call, r store.Record) (store.Record, string, error) {
	if r.Text("name") == "" {
		return nil, "", wire.BadInput("missing name")
	}
	return r, r.Text("name"), nil
}

func parameter(_ context.Context, _ wire.Call, r store.Record) (store.Record, string, error) {
	if r.Text("name") == "" || r["value"] == nil {
		return nil, "", wire.BadInput("a parameter needs name and value")
	}
	return r, r.Text("service_id") + "/" + r.Text("name"), nil
}

// schedule never finds a host: there is none.
func (s Service) schedule(c wire.Call) (any, error) {
	if err := s.guard(c, "scheduler", resource.Perform); err != nil {
		return nil, err
	}
	return map[string]any{"candidates": []any{}, "reason": "no host"}, nil
}

func (s Service) region(ctx context.Context) wire.Routes {
	wires := resource.Collection{Path: "/wires", Table: "wires", Singular: "wire", Prepare: s.prepareWire}
	inZone := wires
	inZone.Path = "/zones/{zone}/wires"
	servers := resource.Collection{Path: "/servers", Table: "servers", Singular: "server", Owned: true}
	servers.Prepare = func(_ context.Context, _ wire.Call, r store.Record) (store.Record, string, error) {
		r["id"], r["status"] = store.NewID(), "schedule"
		go s.place(ctx, r.Text("id"))
		return r, "", nil
	}
	return append(s.hosts(), s.plain(
		resource.Collection{Path: "/cloudregions", Table: "cloudregions", Singular: "cloudregion", Prepare: named},
		resource.Collection{Path: "/zones", Table: "zones", Singular: "zone", Prepare: prepareZone},
		inZone, wires, servers,
		resource.Collection{Path: "/schedtags", Table: "schedtags", Singular: "schedtag", Prepare: named},
		resource.Collection{Path: "/dynamicschedtags", Table: "dynamicschedtags", Singular: "dynamicschedtag", Prepare: s.prepareDynamicTag},
	)...)
}

func prepareZone(ctx context.Context, c wire.Call, r store.Record) (store.Record, string, error) {
	r["cloudregion_id"], r["status"] = "default", "enable"
	return named(ctx, c, r)
}

func (s Service) prepareWire(ctx context.Context, c wire.Call, r store.Record) (store.Record, string, error) {
	key := c.Params["zone"]
	if key == "" {
		key = r.Text("zone")
	}
	zone, err := s.Store.Get(ctx, "zones", key)
	if err != nil {
		return nil, "", err
	}
	if r.Text("vpc") != "default" {
		return nil, "", wire.NotFound("vpc %q not found", r.Text("vpc"))
	}
	if _, given := r["bandwidth"]; !given {
		return nil, "", wire.BadInput("missing bandwidth")
	}
	r["zone_id"], r["vpc_id"] = zone.Text("id"), "default"
	return named(ctx, c, r)
}

func (s Service) prepareDynamicTag(ctx context.Context, c wire.Call, r store.Record) (store.Record, string, error) {
	tag, err := s.Store.Get(ctx, "schedtags", r.Text("schedtag"))
	if err != nil {
		return nil, "", err
	}
	if r.Text("condition") == "" {
		return nil, "", wire.BadInput("missing condition")
	}
	r["schedtag_id"] = tag.Text("id")
	return named(ctx, c, r)
}

// place asks the scheduler that the catalogue names for a host. Without an answer the server stays in "schedule".
func (s Service) place(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	token, err := s.Cloud.Login(ctx)
	if err != nil {
		log.Printf("scheduling %s: %v", id, err)
		return
	}
	target, found := token.Endpoint("scheduler", "internal", s.Options.Text("region", ""))
	if !found {
		log.Printf("scheduling %s: no endpoint of the scheduler", id)
		return
	}
	if err := s.Cloud.Call(ctx, http.MethodPost, target+"/scheduler", map[string]any{"server": id}, nil); err != nil {
		log.Printf("scheduling %s: %v", id, err)
		return
	}
	server, err := s.Store.Get(ctx, "servers", id)
	if err == nil {
		_, err = s.Store.Update(ctx, "servers", server, store.Record{"status": "sched_fail"})
	}
	if err != nil {
		log.Printf("scheduling %s: %v", id, err)
	}
}
