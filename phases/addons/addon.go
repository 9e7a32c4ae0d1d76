// SPDX-License-Identifier: Apache-2.0

// Package addons installs what a cloud needs in addition to Kubernetes: pod network, storage, web access, database. An addon is a literal and a directory of
// manifests under templates/addons, plus a line in the plan. Applying and waiting are separate, so that all addons start concurrently: Ready waits at the
// end.
package addons

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/templates"
)

// Addon is a part of the cluster that is installed from manifests.
type Addon struct {
	// Name is the name of its phase, Dir its directory below templates/addons.
	Name, Dir   string
	Short, Long string
	// Upgrade is the Short of its upgrade phase; "" if it has none.
	Upgrade string
	// Skip returns the reason why the configuration excludes it, "" if it does not.
	Skip func(*config.Config) string
	// Images holds the names of its images in templates/images.yaml.
	Images []string
	// Data returns the template data of its manifests; image holds the references of its images by name. It is pure.
	Data func(c *config.Config, image map[string]string, p Prepared) (any, error)
	// Prepare makes, or finds, what the manifests need from the cluster. With look it only reads.
	Prepare func(ctx context.Context, c client.WithWatch, cfg *config.Config, look bool) (Prepared, kube.ChangeSet, error)
	// Settings holds the keys of its ConfigMaps, by name, that users may edit: an upgrade keeps them. If Flags names the settings of init that change
	// them, a repeated init without these keeps them, too.
	Settings map[string][]string
	Flags    []string
	// Waits names the workloads that must run before the addon is ready.
	Waits []client.Object
}

// Prepared is the result of Prepare.
type Prepared struct {
	// Password is that of the embedded database.
	Password string
	// Pair is set if the embedded database has a replica.
	Pair *Pair
	// DatabaseImage is the image of the running embedded database; empty means the one in the table.
	DatabaseImage string
	// Volume is that of the running embedded database; nil if there is none.
	Volume *corev1.PersistentVolumeClaimSpec
}

// All returns the addons in the order in which they are installed.
func All() []Addon { return []Addon{flannel(), localPath(), traefik(), database()} }

// CNI installs the pod network.
func CNI() host.Phase { return flannel().phase() }

// Storage installs the provisioner of local volumes.
func Storage() host.Phase { return localPath().phase() }

// Ingress installs web access.
func Ingress() host.Phase { return traefik().phase() }

// Database installs the embedded database.
func Database() host.Phase { return database().phase() }

// Network returns the addon of the pod network, the only one that runs on every node.
func Network() Addon { return flannel() }

// Images returns the full references of the images of those addons that a configuration wants.
func Images(c *config.Config, of ...Addon) ([]string, error) {
	table, err := images.Load()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range of {
		if a.Skip(c) != "" {
			continue
		}
		image, err := a.refs(table, c)
		if err != nil {
			return nil, err
		}
		out = append(out, lists.Map(a.Images, func(name string) string { return image[name] })...)
	}
	return out, nil
}

// refs returns the references of the images by name.
func (a Addon) refs(table images.Table, c *config.Config) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range a.Images {
		ref, err := table.Ref(name, c.Cluster.ImageRepository)
		if err != nil {
			return nil, fmt.Errorf("listing the images of %s: %w", a.Name, err)
		}
		out[name] = ref
	}
	return out, nil
}

// Objects renders the addon for a configuration. It is pure.
func (a Addon) Objects(c *config.Config, p Prepared) ([]*unstructured.Unstructured, error) {
	table, err := images.Load()
	if err != nil {
		return nil, err
	}
	image, err := a.refs(table, c)
	if err != nil {
		return nil, err
	}
	data, err := a.Data(c, image, p)
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

// configAnnotation on a pod template holds the hash of the addon's ConfigMaps and Secrets, so that its pods are replaced when those change: the probes of the
// database log in with the password in a file, which changes at once, and the server has the one of its start.
const configAnnotation = "ocadm.yunion.io/config"

func stampConfig(objs []*unstructured.Unstructured) error {
	data := lists.Pick(objs, func(o *unstructured.Unstructured) (any, bool) {
		return o.Object["data"], o.GetKind() == "ConfigMap" || o.GetKind() == "Secret"
	})
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

func (a Addon) phase() host.Phase {
	m := host.Manifests{Objects: func(ctx context.Context, h *host.Host, c client.WithWatch) ([]*unstructured.Unstructured, error) {
		var p Prepared
		if a.Prepare != nil && c != nil {
			var err error
			if p, _, err = a.Prepare(ctx, c, h.Config, true); err != nil {
				return nil, err
			}
		}
		objs, err := a.Objects(h.Config, p)
		if err != nil || c == nil || len(a.Flags) == 0 || h.Config.Gives(a.Flags...) {
			return objs, err
		}
		err = a.keepSettings(ctx, c, objs)
		if gone := lostError(""); errors.As(err, &gone) { // the first init
			err = nil
		}
		return objs, err
	}}
	if a.Prepare != nil {
		m.Before = func(ctx context.Context, h *host.Host, c client.WithWatch, look bool) (kube.ChangeSet, error) {
			_, set, err := a.Prepare(ctx, c, h.Config, look)
			return set, err
		}
	}
	return m.Phase(host.Phase{Name: a.Name, Short: a.Short, Long: a.Long, Skip: func(h *host.Host) string { return a.Skip(h.Config) }})
}
