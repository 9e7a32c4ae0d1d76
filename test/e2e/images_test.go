// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path"
	"strconv"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// images checks that an uploaded image is in the volume of glance's claim, that host-deployer finds it on the node at glance's path, and that both
// are still true for the next pod. Nothing is mounted while no pod runs.
func (s *suite) images(t *testing.T) {
	ctx := t.Context()
	cloud, err := s.Session(ctx)
	require.NoError(t, err)
	content := []byte(strings.Repeat("an image ", 1<<17))
	size := strconv.Itoa(len(content))
	upload := func(name string) scenario.Image {
		image, err := cloud.Upload(ctx, name, content)
		if err != nil || image.Status != "active" || image.Probe != "done" {
			t.Fatalf("%+v, %v", image, err)
		}
		return image
	}
	first := upload("first")
	name, volume, err := s.Volume(ctx, "default-glance")
	require.NoError(t, err)
	node := 1
	if name == "node2" {
		node = 2
	}
	bytes := func(file string) string {
		out, err := s.On(ctx, node, "stat", "-c", "%s", file)
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(out)
	}
	in, on := path.Join(volume, "images", first.ID), strings.TrimPrefix(first.Location, "file://")
	if bytes(in) != size || bytes(on) != size || in == on {
		t.Errorf("image of %s bytes: %s has %s, %s has %s", size, in, bytes(in), on, bytes(on))
	}
	// The pod is deleted, and another one is created.
	for _, replicas := range []string{"0", "1"} {
		if _, err := s.Kubectl(ctx, "-n", "onecloud", "annotate", "oc", "default", "--overwrite", "onecloud.yunion.io/paused=glance"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Kubectl(ctx, "-n", "onecloud", "scale", "deployment", "default-glance", "--replicas="+replicas); err != nil {
			t.Fatal(err)
		}
		wait := []string{"-n", "onecloud", "wait", "pod", "-l", "app=glance", "--for=delete", "--timeout=600s"}
		if replicas == "1" {
			wait = []string{"-n", "onecloud", "rollout", "status", "deployment", "default-glance", "--timeout=600s"}
		}
		if _, err := s.Kubectl(ctx, wait...); err != nil {
			t.Fatal(err)
		}
		mounted, _ := s.On(ctx, node, "findmnt", "--noheadings", "--output", "SOURCE", "/opt/cloud/workspace/data/glance") // it fails if nothing is mounted
		if want := map[string]int{"0": 0, "1": 1}[replicas]; strings.Count(mounted, "\n") != want || bytes(in) != size {
			t.Errorf("with %s pods %q is mounted, and the volume has %s bytes", replicas, mounted, bytes(in))
		}
	}
	if _, err := s.Kubectl(ctx, "-n", "onecloud", "annotate", "oc", "default", "onecloud.yunion.io/paused-"); err != nil {
		t.Fatal(err)
	}
	upload("second")
	if bytes(on) != size {
		t.Errorf("the first image has %s bytes for the next pod", bytes(on))
	}
}

// reclaim checks that the volume of the images outlives the cloud, which keeps its data. It is deleted with its claim, according to its storage
// class, including its contents.
func (s *suite) reclaim(t *testing.T) {
	ctx := t.Context()
	const claim = "default-glance"
	name, volume, err := s.Volume(ctx, claim)
	if err != nil {
		t.Fatalf("the claim of a deleted cloud that keeps its data: %v", err)
	}
	node := 1
	if name == "node2" {
		node = 2
	}
	if out, err := s.On(ctx, node, "ls", path.Join(volume, "images")); err != nil || strings.TrimSpace(out) == "" {
		t.Errorf("the images of a deleted cloud that keeps its data: %q, %v", out, err)
	}
	pv, err := s.Kubectl(ctx, "-n", "onecloud", "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
	require.NoError(t, err)
	pv = strings.TrimSpace(pv)
	policy, err := s.Kubectl(ctx, "get", "pv", pv, "-o", "jsonpath={.spec.persistentVolumeReclaimPolicy}")
	if err != nil || strings.TrimSpace(policy) != "Delete" {
		t.Fatalf("reclaim policy %q, %v", policy, err)
	}
	for _, argv := range [][]string{
		{"-n", "onecloud", "delete", "pvc", claim, "--timeout=600s"}, {"wait", "pv/" + pv, "--for=delete", "--timeout=600s"},
	} {
		if _, err := s.Kubectl(ctx, argv...); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := s.On(ctx, node, "ls", "-d", volume); err == nil {
		t.Errorf("the volume is reclaimed, and its directory is there: %s", out)
	}
}
