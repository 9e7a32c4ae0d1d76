// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/release"
)

// releasesOf returns the releases in a backup up to the one in force, by revision.
func releasesOf(c backup.Contents) (map[int]*release.Release, error) {
	out := map[int]*release.Release{}
	for _, o := range c.Objects {
		if o.Kind != "Secret" {
			continue
		}
		s := &corev1.Secret{}
		if err := json.Unmarshal(o.JSON, s); err != nil {
			return nil, fmt.Errorf("reading Secret %q of the backup: %w", o.Name, err)
		}
		n := release.Revision(s)
		if n == 0 || n > c.Header.Release || s.Name != release.SecretName(c.Header.Cloud.Name, n) {
			continue
		}
		if r, err := release.Decode(s); err == nil { // history also skips unreadable ones
			out[n] = r
		}
	}
	return out, nil
}

// doneThen returns the patch for the record of effects after databases were restored; nil removes a key. Effects inside the databases get the hash
// that the release in the backup had. A component missing from that release keeps the hash of an earlier release in the backup. An effect with a
// different hash is repeated; one without would count as new, and the options of a new component are only recorded. It is pure.
func doneThen(now map[string]string, then int, releases map[int]*release.Release) map[string]any {
	out := map[string]any{}
	if releases[then] == nil {
		return out // a file without its releases shows nothing
	}
	before := releases[then].Effects
	for key, hash := range now {
		if effects.OnServer(key) || before[key] == hash {
			continue
		}
		if was, there := before[key]; there {
			out[key] = was
		} else if !effects.Lasts(key) && !hadOnce(releases, key, hash) {
			out[key] = nil
		}
	}
	for key, was := range before { // an option that was removed since is stored again
		if _, there := now[key]; !there && !effects.OnServer(key) {
			out[key] = was
		}
	}
	return out
}

// hadOnce reports whether an effect was applied before the backup was made.
func hadOnce(releases map[int]*release.Release, key, hash string) bool {
	for _, r := range releases {
		if r.Effects[key] == hash {
			return true
		}
	}
	return false
}

// remember resets the record of effects inside the databases to its state at the time of the backup. Otherwise the operator would consider effects
// done that only the replaced databases had: accounts, endpoints, and options that no audit checks again.
func (x *restoring) remember(ctx context.Context, now *v1alpha1.OnecloudCluster, live *unstructured.Unstructured) (changed int, err error) {
	releases, err := releasesOf(*x.contents)
	if err != nil {
		return 0, err
	}
	patch := doneThen(now.Status.Effects, x.contents.Header.Release, releases)
	if len(patch) == 0 {
		return 0, nil
	}
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"effects": patch}})
	if err != nil {
		return 0, err
	}
	if err := x.client.Status().Patch(ctx, live, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(kube.FieldManager)); err != nil {
		return 0, fmt.Errorf("recording what the databases of the backup contain: %w", err)
	}
	return len(patch), nil
}
