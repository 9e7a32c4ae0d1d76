// SPDX-License-Identifier: Apache-2.0

package installer_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// upgradedAddons checks that addons installed by an earlier release, with users' settings, are updated to this release with the same settings.
func upgradedAddons(t *testing.T, c client.WithWatch, h *host.Host, kubelet *harness.Kubelet) {
	for _, i := range installed(t, c) {
		if i.Left != "" || len(i.Changes) > 0 {
			t.Errorf("before anything: %+v", i)
		}
	}
	earlier(t, c, h)
	const settings = `{"nodePathMap":[{"node":"DEFAULT_PATH_FOR_NON_LISTED_NODES","paths":["/data/of/mine"]}]}`
	volumes := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "local-path-storage", Name: "local-path-config"}}
	edit(t, c, volumes, `{"data":{"config.json":`+strconv.Quote(settings)+`,"setup":"#!/bin/sh\nexit 1\n"}}`, kube.FieldManager)

	now := installed(t, c, "cni")
	if now[2].Left != "--skip cni" || now[0].From[0] != "local-path-provisioner:v0.0.1" || now[1].From[0] != "traefik:v3.0.0" {
		t.Fatalf("found %+v", now)
	}
	if found, err := addons.Conflicts(t.Context(), c, now); err != nil || len(found) > 0 {
		t.Fatalf("conflicts with ourselves: %v, %v", found, err)
	}
	for _, i := range now {
		p := i.Phase()
		if i.Left != "" {
			if why := p.Skip(h); why != i.Left {
				t.Errorf("%s is not skipped: %q", i.Name, why)
			}
			continue
		}
		var r reporter
		if done, err := p.Check(t.Context(), h); done || err != nil {
			t.Fatalf("%s: Check before Run: %t, %v", i.Name, done, err)
		}
		if err := p.Run(t.Context(), h, &r); err != nil {
			t.Fatalf("%s: %v", i.Name, err)
		}
		if done, err := p.Check(t.Context(), h); !done || err != nil {
			t.Errorf("%s: Check after Run: %t, %v", i.Name, done, err)
		}
	}
	read(t, c, volumes)
	if volumes.Data["config.json"] != settings || strings.Contains(volumes.Data["setup"], "exit 1") {
		t.Errorf("the settings of volumes: %v", volumes.Data)
	}
	var class storagev1.StorageClass
	if err := c.Get(t.Context(), client.ObjectKey{Name: "local-path"}, &class); err != nil || class.Annotations["defaultVolumeType"] != "local" {
		t.Errorf("the class: %v, %v", class.Annotations, err)
	}
	conflict(t, c)
	settingsLost(t, c)
	goesBack(t, c, h, kubelet)
}

// installed returns the addons, detected with a configuration as on day 2.
func installed(t *testing.T, c client.WithWatch, leave ...string) []addons.Installed {
	t.Helper()
	cfg := config.Default()
	cfg.Cluster.PodNetworkCIDR = "10.40.0.0/16"
	all, err := addons.FindInstalled(t.Context(), c, &cfg, leave...)
	if err != nil || len(all) != 3 {
		t.Fatalf("%d addons, %v", len(all), err)
	}
	return all
}

// earlier applies storage and web access as an earlier release would have.
func earlier(t *testing.T, c client.WithWatch, h *host.Host) {
	t.Helper()
	for i, tag := range []string{"v0.0.1", "v3.0.0"} {
		objs, err := addons.Upgradable()[i].Objects(h.Config, addons.Prepared{})
		require.NoError(t, err)
		for _, o := range objs {
			if o.GetKind() == "StorageClass" {
				o.SetAnnotations(map[string]string{"storageclass.kubernetes.io/is-default-class": "true"})
			}
			containers, there, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			if !there {
				continue
			}
			one, _ := containers[0].(map[string]any)
			image, _ := one["image"].(string)
			one["image"] = image[:strings.LastIndexByte(image, ':')+1] + tag
			require.NoError(t, unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
		}
		if _, err := kube.Apply(t.Context(), c, kube.FieldManager, objs...); err != nil {
			t.Fatal(err)
		}
	}
}

// conflict checks that a user's changes are reported, with the user's field manager.
func conflict(t *testing.T, c client.WithWatch) {
	edit(t, c, traefik(), `{"spec":{"updateStrategy":{"rollingUpdate":{"maxUnavailable":3}}}}`, "kubectl-edit")
	found, err := addons.Conflicts(t.Context(), c, installed(t, c))
	if err != nil || len(found) != 1 || found[0].Code != "OCA-4515" ||
		len(found[0].Evidence) != 1 || !strings.Contains(found[0].Evidence[0], "maxUnavailable is set by kubectl-edit") {
		t.Errorf("conflicts: %+v, %v", found, err)
	}
	if left, err := addons.Conflicts(t.Context(), c, installed(t, c, "ingress")); err != nil || len(left) > 0 {
		t.Errorf("conflicts of an addon that is left: %v, %v", left, err)
	}
}

// settingsLost checks that an addon without its ConfigMap is left alone and reported, and that the others are compared as before.
func settingsLost(t *testing.T, c client.WithWatch) {
	key := client.ObjectKey{Namespace: "local-path-storage", Name: "local-path-config"}
	var settings corev1.ConfigMap
	require.NoError(t, c.Get(t.Context(), key, &settings))
	require.NoError(t, c.Delete(t.Context(), settings.DeepCopy()))
	defer func() {
		settings.ResourceVersion = ""
		require.NoError(t, c.Create(t.Context(), &settings))
	}()
	all := installed(t, c)
	lost := addons.Unusable(all)
	if len(lost) != 1 || lost[0].Code != "OCA-4517" || lost[0].Cause != "ConfigMap "+key.String()+" is missing" {
		t.Errorf("without the settings of storage: %+v", lost)
	}
	if all[0].Left != lost[0].Cause || len(all[0].Changes) > 0 || all[1].Left != "" {
		t.Errorf("without the settings of storage: %+v", all)
	}
	if lost := addons.Unusable(installed(t, c, all[0].Name)); len(lost) > 0 {
		t.Errorf("storage is left, and refused: %v", lost)
	}
}

// goesBack checks that pods that do not become ready are replaced by the previous ones, even if the DaemonSet changes between reading and writing it.
func goesBack(t *testing.T, c client.WithWatch, h *host.Host, kubelet *harness.Kubelet) {
	edit(t, c, traefik(), `{"spec":{"template":{"spec":{"containers":[{"name":"traefik","image":"docker.io/library/traefik:v3.0.0"}]}}}}`, kube.FieldManager)
	p := installed(t, c)[1].Phase()
	kubelet.Hold("Pod", "traefik", "*")
	limited, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ctx, expire := context.WithCancelCause(limited)
	r := releasing{release: func() { kubelet.Release(t.Context(), "Pod", "traefik", "*") }, expire: func() { expire(context.DeadlineExceeded) }}
	raced := 0
	racing := interceptor.NewClient(c, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
		if o.GetObjectKind().GroupVersionKind().Kind != "DaemonSet" {
			return c.Update(ctx, o, opts...)
		}
		if raced++; raced == 1 {
			edit(t, c, traefik(), `{"metadata":{"annotations":{"changed":"before the update"}}}`, "test")
		}
		return c.Update(ctx, o, opts...)
	}})
	err := p.Run(ctx, &host.Host{Config: h.Config, Kube: func(context.Context) (client.WithWatch, error) { return racing, nil }}, &r)
	var f finding.Finding
	if !errors.As(err, &f) || f.Code != "OCA-4516" || !strings.HasSuffix(f.Cause, "the previous version was restored") {
		t.Errorf("without a ready pod: %v", err)
	}
	if raced < 2 {
		t.Errorf("the DaemonSet was written %d times, want a second time after a conflict", raced)
	}
	d := traefik()
	read(t, c, d)
	if image := d.Spec.Template.Spec.Containers[0].Image; image != "docker.io/library/traefik:v3.0.0" {
		t.Errorf("%s runs", image)
	}
	r.release()
	if err := p.Run(limited, h, &reporter{}); err != nil {
		t.Errorf("once pods become ready: %v", err)
	}
}

// releasing ends the wait for a pod, and lets pods become ready as soon as something is restored.
type releasing struct {
	reporter
	release, expire func()
}

func (r *releasing) Waiting(what, why string) {
	if why != "" {
		r.expire()
	}
}

func (r *releasing) Changed(f string, a ...any) {
	if strings.HasPrefix(f, "restored") {
		r.release()
	}
}

func traefik() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "traefik", Name: "traefik"}}
}

func edit(t *testing.T, c client.WithWatch, o client.Object, patch, manager string) {
	t.Helper()
	require.NoError(t, c.Patch(t.Context(), o, client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner(manager)))
}

func read(t *testing.T, c client.WithWatch, o client.Object) {
	t.Helper()
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
}
