// SPDX-License-Identifier: Apache-2.0

// Package program implements the APIs of the stand-ins, except /ping: small REST APIs over their own databases. Keystone checks the token of each call.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"slices"
	"time"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// Service is a running program other than keystone.
type Service struct {
	Machine Machine
	Profile servicespec.Spec
	Options servicespec.Values
	Cloud   *Client
	// Store is nil for programs without a database.
	Store *rest.Store
}

// Routes returns the API of the program.
func (s Service) Routes(ctx context.Context) rest.Routes {
	switch s.Profile.Type {
	case "compute_v2":
		return s.region(ctx)
	case "image":
		return s.image(ctx)
	case "log":
		return s.plain(rest.Collection{Path: "/actions", Singular: "action"})
	case "yunionconf":
		return s.plain(rest.Collection{Path: "/parameters", Singular: "parameter", Required: []string{"name", "value"}, Unique: []string{"service_id", "name"}})
	case "scheduler":
		return rest.Routes{{Method: http.MethodPost, Path: "/scheduler", Handle: s.only("scheduler", rest.Perform, schedule)}}
	case "yunionapi":
		return s.gateway()
	case "monitor":
		return s.commonAlerts()
	case "devtool":
		return s.devtool()
	case "ansible":
		return s.plain(rest.Collection{Path: "/ansibleplaybookreferences", Singular: "ansibleplaybookreference", Required: []string{"name", "playbook_path"}})
	case "cloudproxy":
		return s.plain(rest.Collection{Path: "/proxy_agents", Singular: "proxy_agent", Required: named})
	case "k8s":
		return s.kubeserver()
	case "host":
		return s.guests()
	}
	if s.Store == nil {
		return nil
	}
	return s.plain(rest.Collection{Path: "/records", Singular: "record"})
}

func (s Service) plain(collections ...rest.Collection) rest.Routes {
	return slices.Concat(lists.Map(collections, func(c rest.Collection) rest.Routes { return c.Routes(s.Store, s.admit) })...)
}

// serviceTypes maps types in the catalogue to the names of services in policies, where they differ.
var serviceTypes = map[string]string{"compute_v2": "compute"}

// admit asks keystone, on every call, for the owner of the token and its effective policies.
func (s Service) admit(c rest.Call, name string, action rest.Action, extra ...string) (rest.Access, error) {
	token := c.Header.Get("X-Auth-Token")
	who, err := s.Cloud.Check(c.Context(), token)
	if err != nil {
		return rest.Access{}, fmt.Errorf("checking token: %w", rest.Guest(err))
	}
	caller := rest.Caller{Project: who.Project.ID, Domain: who.Project.Domain.ID}
	if caller.Policies, err = s.Cloud.Policies(c.Context(), token); err != nil {
		return rest.Access{}, fmt.Errorf("fetching policies: %w", err)
	}
	return rest.Admit(caller, cmp.Or(serviceTypes[s.Profile.Type], s.Profile.Type), c, name, action, extra...)
}

// only returns a handler that requires a permission.
func (s Service) only(resource string, action rest.Action, handle rest.Handler) rest.Handler {
	return rest.Guard(s.admit).Only(resource, action, handle)
}

var named = []string{"name"}

// schedule never finds a host, because there are none.
func schedule(rest.Call) (any, error) {
	return map[string]any{"candidates": []any{}, "reason": "no host"}, nil
}

func (s Service) region(ctx context.Context) rest.Routes {
	wires := rest.Collection{Path: "/wires", Singular: "wire", Required: []string{"name", "bandwidth"}, Prepare: s.prepareWire}
	inZone := wires
	inZone.Path = "/zones/{zone}/wires"
	place := func(_ context.Context, _ rest.Call, r rest.Record) error {
		r["id"], r["status"] = rest.NewID(), "schedule"
		return nil
	}
	stored := func(id string) {
		if err := s.place(ctx, id); err != nil {
			log.Printf("scheduling %s: %v", id, err)
		}
	}
	zone := func(_ context.Context, _ rest.Call, r rest.Record) error {
		r["cloudregion_id"], r["status"] = "default", "enable"
		return nil
	}
	return append(s.hosts(), s.plain(
		rest.Collection{Path: "/cloudregions", Singular: "cloudregion", Required: named},
		rest.Collection{Path: "/zones", Singular: "zone", Required: named, Prepare: zone},
		inZone, wires,
		rest.Collection{Path: "/servers", Singular: "server", Owned: true, Unique: []string{}, Prepare: place,
			Stored: func(r rest.Record) { go stored(r.Text("id")) }},
		rest.Collection{Path: "/schedtags", Singular: "schedtag", Required: named},
		rest.Collection{Path: "/dynamicschedtags", Singular: "dynamicschedtag", Required: []string{"name", "condition"}, Prepare: s.prepareDynamicTag},
	)...)
}

func (s Service) prepareWire(ctx context.Context, c rest.Call, r rest.Record) error {
	zone, err := s.Store.Get(ctx, "zones", cmp.Or(c.Params["zone"], r.Text("zone")))
	if err != nil {
		return err
	}
	if r.Text("vpc") != "default" {
		return rest.NotFound("vpc %q not found", r.Text("vpc"))
	}
	r["zone_id"], r["vpc_id"] = zone.Text("id"), "default"
	return nil
}

func (s Service) prepareDynamicTag(ctx context.Context, _ rest.Call, r rest.Record) error {
	tag, err := s.Store.Get(ctx, "schedtags", r.Text("schedtag"))
	r["schedtag_id"] = tag.Text("id")
	return err
}

// place asks the scheduler in the catalogue for a host. Without an answer the server stays in "schedule".
func (s Service) place(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	token, err := s.Cloud.Login(ctx)
	if err != nil {
		return err
	}
	target, found := token.Endpoint("scheduler", "internal", s.Options.Text("region", ""))
	if !found {
		return errors.New("no endpoint of the scheduler")
	}
	if err := s.Cloud.Call(ctx, http.MethodPost, target+"/scheduler", map[string]any{"server": id}, nil); err != nil {
		return err
	}
	server, err := s.Store.Get(ctx, "servers", id)
	if err == nil {
		_, err = s.Store.Update(ctx, "servers", server, rest.Record{"status": "sched_fail"})
	}
	return err
}
