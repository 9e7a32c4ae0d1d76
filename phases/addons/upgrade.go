// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// putBackTimeout bounds restoring the previous version of an addon and waiting for it.
const putBackTimeout = 5 * time.Minute

// Installed is an addon of a running cluster, and how this release would change it.
type Installed struct {
	Name string `json:"name"`
	// From and To are the running images and those of this release, without the registry: "flannel:v0.28.4".
	From []string `json:"from,omitempty"`
	To   []string `json:"to,omitempty"`
	// Changes lists what an upgrade would do, one line each.
	Changes []string `json:"changes,omitempty"`
	// Left is the reason why it is not upgraded; "" if it is.
	Left string `json:"left,omitempty"`

	addon   Addon
	images  []string
	objects []*unstructured.Unstructured
	lost    bool // its settings are lost; Left names them
}

// lostError names an object, holding settings of an addon, that the cluster has lost.
type lostError string

func (e lostError) Error() string { return string(e) }

// Upgradable returns the addons that an upgrade brings to this release, the pod network last. The embedded database is not one: its data has a version too.
func Upgradable() []Addon { return []Addon{localPath(), traefik(), flannel()} }

// FindInstalled reads from a cluster which addons ocadm installed, with what settings, and what this release would change. Addons named in leave, those of
// another tool and those that have lost their settings (see Unusable) are not upgraded.
func FindInstalled(ctx context.Context, c client.Client, cfg *config.Config, leave ...string) ([]Installed, error) {
	var out []Installed
	for _, a := range Upgradable() {
		i := Installed{Name: a.Name, addon: a}
		template, err := installedTemplate(ctx, c, a)
		switch {
		case err != nil:
			return nil, err
		case slices.Contains(leave, a.Name):
			i.Left = "--skip " + a.Name
		case template == nil:
			i.Left = "ocadm did not install it"
		default:
			err := i.compare(ctx, c, cfg, template)
			if gone := lostError(""); errors.As(err, &gone) {
				i.Left, i.lost, i.objects = gone.Error(), true, nil
			} else if err != nil {
				return nil, err
			}
		}
		out = append(out, i)
	}
	return out, nil
}

// installedTemplate returns the pod template of an addon that ocadm applied, nil if there is none.
func installedTemplate(ctx context.Context, c client.Client, a Addon) (*corev1.PodTemplateSpec, error) {
	o := a.Waits[0]
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("reading addon %s: %w", a.Name, err)
	}
	ours := slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == kube.FieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
	if !ours {
		return nil, nil
	}
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return &o.Spec.Template, nil
	case *appsv1.Deployment:
		return &o.Spec.Template, nil
	}
	return nil, fmt.Errorf("reading addon %s: %T has no pod template", a.Name, o)
}

// compare renders this release's version of the addon with the cluster's settings, and computes the difference.
func (i *Installed) compare(ctx context.Context, c client.Client, cfg *config.Config, running *corev1.PodTemplateSpec) error {
	table, err := images.Load()
	if err != nil {
		return err
	}
	main, err := table.Get(i.addon.Images[0])
	if err != nil {
		return err
	}
	own := *cfg
	own.Cluster.ImageRepository = main.RepositoryOf(running.Spec.Containers[0].Image)
	image, err := i.addon.refs(table, &own)
	if err != nil {
		return err
	}
	for _, name := range i.addon.Images {
		i.images, i.To = append(i.images, image[name]), append(i.To, path.Base(image[name]))
	}
	i.From = imagesOf(running)
	if i.objects, err = i.addon.Objects(&own, Prepared{}); err != nil {
		return err
	}
	if err := i.addon.keepSettings(ctx, c, i.objects); err != nil {
		return err
	}
	auth, err := credentials(ctx, c, i.addon.Waits[0].GetNamespace(), running)
	if err != nil {
		return err
	}
	if i.objects, err = host.WithPullSecret(auth, i.objects); err != nil {
		return err
	}
	set, err := kube.Diff(ctx, c, kube.FieldManager, i.objects...)
	i.Changes = lists.Map(set.Changed(), kube.Change.Planned)
	return err
}

// credentials returns the registry credentials that the pods of a namespace have, because an apply without them would remove them.
func credentials(ctx context.Context, c client.Client, namespace string, running *corev1.PodTemplateSpec) (string, error) {
	if !slices.Contains(running.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: cluster.PullSecret}) {
		return "", nil
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.PullSecret}}
	err := readSettings(ctx, c, "Secret", s)
	return string(s.Data[corev1.DockerConfigJsonKey]), err
}

// keepSettings sets the ConfigMap keys that hold settings to the values in the cluster.
func (a Addon) keepSettings(ctx context.Context, c client.Client, objs []*unstructured.Unstructured) error {
	for _, o := range objs {
		keys := a.Settings[o.GetName()]
		if o.GetKind() != "ConfigMap" || len(keys) == 0 {
			continue
		}
		live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
		if err := readSettings(ctx, c, "ConfigMap", live); err != nil {
			return err
		}
		for _, key := range keys {
			value, there := live.Data[key]
			if !there {
				return lostError(fmt.Sprintf("ConfigMap %s has no %s", client.ObjectKeyFromObject(o), key))
			}
			if err := unstructured.SetNestedField(o.Object, value, "data", key); err != nil {
				return fmt.Errorf("preserving the settings of %s: %w", a.Name, err)
			}
		}
	}
	return stampConfig(objs)
}

// readSettings reads an object that holds settings of an addon; a lostError means that it is gone.
func readSettings(ctx context.Context, c client.Client, kind string, o client.Object) error {
	key := client.ObjectKeyFromObject(o)
	err := c.Get(ctx, key, o)
	switch {
	case apierrors.IsNotFound(err):
		return lostError(fmt.Sprintf("%s %s is missing", kind, key))
	case err != nil:
		return fmt.Errorf("reading settings in %s %s: %w", kind, key, err)
	}
	return nil
}

func imagesOf(t *corev1.PodTemplateSpec) []string {
	return lists.Unique(lists.Map(slices.Concat(t.Spec.Containers, t.Spec.InitContainers), func(c corev1.Container) string { return path.Base(c.Image) }))
}

// Images returns the full references of the images that an upgrade needs.
func (i Installed) Images() []string { return i.images }

// Unusable returns findings for the addons that cannot be upgraded because the cluster has lost their settings.
func Unusable(all []Installed) finding.List {
	return lists.Pick(all, func(i Installed) (finding.Finding, bool) {
		return finding.New("OCA-4517", "The settings of addon "+i.Name+" cannot be taken over", i.Left,
			fmt.Sprintf("create it again, or give --skip %s to leave this addon unchanged", i.Name)), i.lost
	})
}

// Conflicts returns findings for fields that this release sets but another program or a user has set to other values.
func Conflicts(ctx context.Context, c client.Client, all []Installed) (finding.List, error) {
	var out finding.List
	for _, i := range all {
		lines, err := kube.Conflicts(ctx, c, kube.FieldManager, i.objects...)
		if err != nil {
			return nil, err
		}
		if len(lines) > 0 {
			out = append(out, finding.New("OCA-4515", "Addon "+i.Name+" was modified by others", "an upgrade would replace their changes",
				fmt.Sprintf("give --overwrite to replace them, or --skip %s to leave this addon unchanged", i.Name)).With(lines...))
		}
	}
	return out, nil
}

// Phase upgrades the addon and waits until it runs everywhere. If it is not ready in time, Phase restores the previous version.
func (i Installed) Phase() host.Phase {
	m := host.Manifests{Objects: func(context.Context, *host.Host, client.WithWatch) ([]*unstructured.Unstructured, error) {
		return i.objects, nil
	}}
	p := m.Phase(host.Phase{
		Name: i.Name, Short: i.addon.Upgrade, Patience: readyPatience,
		Skip: func(*host.Host) string { return i.Left },
	})
	same, apply := p.Check, p.Run
	p.Check = func(ctx context.Context, h *host.Host) (bool, error) {
		if done, err := same(ctx, h); !done || err != nil {
			return false, err
		}
		ready := false
		err := h.Look(ctx, func(ctx context.Context, c client.WithWatch) error {
			ready = allReady(ctx, c, i.targets())
			return nil
		})
		return ready && err == nil, err
	}
	p.Run = func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
		c, err := h.Kube(ctx)
		if err != nil {
			return err
		}
		before, err := Present(ctx, c, i.objects)
		if err != nil {
			return err
		}
		if err = apply(ctx, h, r); err == nil {
			err = host.WhilePodsMove(ctx, c, r, func() error { return waitAll(ctx, c, i.targets(), r) })
		}
		if err == nil || errors.Is(context.Cause(ctx), context.Canceled) {
			return err
		}
		return i.failed(ctx, c, before, err, r)
	}
	return p
}

func (i Installed) targets() []target {
	return lists.Map(i.addon.Waits, func(o client.Object) target { return target{what: i.Name, obj: o} })
}

// Present returns the current state of those objects that exist in the cluster.
func Present(ctx context.Context, c client.Client, objs []*unstructured.Unstructured) (out []*unstructured.Unstructured, _ error) {
	for _, o := range objs {
		now, err := kube.Live(ctx, c, o)
		if err != nil {
			return nil, err
		}
		if now != nil {
			out = append(out, now)
		}
	}
	return out, nil
}

// failed restores the previous objects and returns a finding with the outcome.
func (i Installed) failed(ctx context.Context, c client.WithWatch, before []*unstructured.Unstructured, why error, r workflow.Reporter) error {
	f := finding.Finding{Code: "OCA-4516", Severity: finding.Error, What: "Addon " + i.Name + " does not work with the new version", Cause: wait.Why(why),
		Remedy: "ocadm why; correct the cause, then run the same command again", Err: why}
	if known := (finding.Finding{}); errors.As(why, &known) {
		f.Cause = known.Cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putBackTimeout)
	defer cancel()
	any := false
	for _, old := range before {
		restored, err := putBack(ctx, c, old, r)
		if err != nil {
			f.Cause += "; the previous version could not be restored: " + err.Error()
			return f
		}
		any = any || restored
	}
	switch {
	case any:
	case len(i.Changes) == 0:
		f.Cause += "; an earlier run applied it and was interrupted, so the version before that is not known any more"
		return f
	default:
		f.Cause += "; nothing was changed"
		return f
	}
	if err := waitAll(ctx, c, i.targets(), r); err != nil {
		f.Cause += "; the previous version was restored, and is not ready either: " + wait.Why(err)
		return f
	}
	f.Cause += "; the previous version was restored"
	return f
}

// putBack restores an object to its previous state, and reports whether it differed. While the pods of a workload change, its controller updates the workload's
// status, so the update is repeated after a conflict.
func putBack(ctx context.Context, c client.Client, old *unstructured.Unstructured, r workflow.Reporter) (restored bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := kube.Live(ctx, c, old)
		switch {
		case err != nil:
			return err
		case now == nil:
			return errors.New("it was deleted in the meantime")
		case now.GetResourceVersion() == old.GetResourceVersion():
			return nil
		}
		again := old.DeepCopy()
		again.SetResourceVersion(now.GetResourceVersion())
		again.SetManagedFields(nil) // if absent, the object keeps its own
		if err := c.Update(ctx, again, client.FieldOwner(kube.FieldManager)); err != nil {
			return err
		}
		restored = again.GetResourceVersion() != now.GetResourceVersion()
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("restoring %s %s: %w", old.GetKind(), old.GetName(), err)
	}
	if restored {
		r.Changed("restored %s %s", old.GetKind(), client.ObjectKeyFromObject(old))
	}
	return restored, nil
}
