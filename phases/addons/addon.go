// SPDX-License-Identifier: Apache-2.0

// Package addons installs what a cloud needs beside Kubernetes: pod network, storage, web access, database. An addon is a literal
// and a directory of manifests under templates/addons; adding one is both, and a line in the plan. Applying and waiting are apart, so
// that all of them start at once: Ready waits at the end.
package addons

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
	"yunion.io/x/ocadm/templates"
)

// Addon is one thing that is installed into the cluster from manifests.
type Addon struct {
	// Name is the name of its phase, Dir its directory below templates/addons.
	Name, Dir   string
	Short, Long string
	// Skip gives the reason why the configuration does not want it; "" means that it does.
	Skip func(*config.Config) string
	// Data is what its manifests are filled with. It is pure.
	Data func(*config.Config, images.Table, Prepared) (any, error)
	// Images are the names of its images in templates/images.yaml.
	Images []string
	// Prepare makes, or finds, what must come from the cluster before the manifests are rendered. With peek it only looks.
	Prepare func(ctx context.Context, c client.WithWatch, cfg *config.Config, peek bool) (Prepared, []kube.Change, error)
	// Waits names the workloads that must run before the addon is ready.
	Waits []client.Object
}

// Prepared is what Prepare found.
type Prepared struct {
	// Password of the embedded database.
	Password string
}

// All are the addons, in the order in which they are installed.
func All() []Addon { return []Addon{flannel(), localPath(), traefik(), database()} }

// CNI installs the pod network.
func CNI() host.Phase { return flannel().phase() }

// Storage installs the provisioner of local volumes.
func Storage() host.Phase { return localPath().phase() }

// Ingress installs web access.
func Ingress() host.Phase { return traefik().phase() }

// Database installs the embedded database.
func Database() host.Phase { return database().phase() }

// Images are the complete references of the images that a configuration needs, without double ones.
func Images(c *config.Config) ([]string, error) {
	table, err := images.Load()
	if err != nil {
		return nil, err
	}
	var out []string
	seen := map[string]bool{}
	for _, a := range All() {
		if a.Skip(c) != "" {
			continue
		}
		for _, name := range a.Images {
			ref, err := table.Ref(name, c.Cluster.ImageRepository)
			if err != nil {
				return nil, fmt.Errorf("listing the images of %s: %w", a.Name, err)
			}
			if !seen[ref] {
				seen[ref] = true
				out = append(out, ref)
			}
		}
	}
	return out, nil
}

// Objects renders the addon for a configuration. It is pure.
func (a Addon) Objects(c *config.Config, p Prepared) ([]*unstructured.Unstructured, error) {
	table, err := images.Load()
	if err != nil {
		return nil, err
	}
	data, err := a.Data(c, table, p)
	if err != nil {
		return nil, fmt.Errorf("preparing the manifests of %s: %w", a.Name, err)
	}
	text, err := templates.RenderDir("addons/"+a.Dir, data)
	if err != nil {
		return nil, err
	}
	objs, err := kube.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("reading the manifests of %s: %w", a.Name, err)
	}
	return objs, stampConfig(objs)
}

// configAnnotation on a pod template takes the hash of the addon's ConfigMaps, so that its pods are replaced when those change.
const configAnnotation = "ocadm.yunion.io/config"

func stampConfig(objs []*unstructured.Unstructured) error {
	var data []any
	for _, o := range objs {
		if o.GetKind() == "ConfigMap" {
			data = append(data, o.Object["data"])
		}
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("hashing configuration: %w", err)
	}
	sum := sha256.Sum256(raw)
	path := []string{"spec", "template", "metadata", "annotations", configAnnotation}
	for _, o := range objs {
		if _, wanted, _ := unstructured.NestedString(o.Object, path...); !wanted {
			continue
		}
		if err := unstructured.SetNestedField(o.Object, hex.EncodeToString(sum[:8]), path...); err != nil {
			return fmt.Errorf("stamping %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// checkTimeout bounds what a check may ask of the API server: before there is one, nobody should have to wait for the answer.
const checkTimeout = 10 * time.Second

func (a Addon) phase() host.Phase {
	return host.Phase{
		Name: a.Name, Short: a.Short, Long: a.Long,
		Skip: func(h *host.Host) string { return a.Skip(h.Config) },
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			changes, err := a.diff(ctx, h)
			return err == nil && len(changes) == 0, nil // nobody answers yet: the work is not done, and Run says what is wrong
		},
		Plan: func(ctx context.Context, h *host.Host) ([]string, error) {
			changes, err := a.diff(ctx, h)
			if err == nil {
				return lines(changes), nil
			}
			return a.planOffline(h.Config)
		},
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error { return a.apply(ctx, h, r) },
	}
}

func (a Addon) diff(ctx context.Context, h *host.Host) (kube.ChangeSet, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	c, err := h.Kube(ctx)
	if err != nil {
		return nil, err
	}
	p, changes, err := a.prepare(ctx, c, h.Config, true)
	if err != nil {
		return nil, err
	}
	objs, err := a.Objects(h.Config, p)
	if err != nil {
		return nil, err
	}
	set, err := kube.Diff(ctx, c, kube.FieldManager, objs...)
	return append(changes, set.Changed()...), err
}

// planOffline is the plan where there is no cluster yet: everything is made.
func (a Addon) planOffline(c *config.Config) ([]string, error) {
	objs, err := a.Objects(c, Prepared{})
	if err != nil {
		return nil, err
	}
	var set kube.ChangeSet
	for _, o := range objs {
		set = append(set, kube.Change{Action: kube.Created, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()})
	}
	return lines(set), nil
}

func lines(set kube.ChangeSet) []string {
	var out []string
	for _, c := range set {
		out = append(out, c.Planned())
	}
	return out
}

func (a Addon) prepare(ctx context.Context, c client.WithWatch, cfg *config.Config, peek bool) (Prepared, kube.ChangeSet, error) {
	if a.Prepare == nil {
		return Prepared{}, nil, nil
	}
	return a.Prepare(ctx, c, cfg, peek)
}

func (a Addon) apply(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	c, err := h.Kube(ctx)
	if err != nil {
		return err
	}
	p, changes, err := a.prepare(ctx, c, h.Config, false)
	if err != nil {
		return err
	}
	for _, change := range changes {
		r.Changed("%s", change)
	}
	objs, err := a.Objects(h.Config, p)
	if err != nil {
		return err
	}
	set, err := kube.Apply(ctx, c, kube.FieldManager, objs...)
	for _, change := range set.Changed() {
		r.Changed("%s", change)
	}
	return err
}
