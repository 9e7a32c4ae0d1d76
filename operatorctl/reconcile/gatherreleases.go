// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/release"
)

// A cloud whose release in force is lost stays as it is. The release before must not take its place: it would move all services back at once, past the
// checks and the copies of an operation. Nor is it rendered anew by itself: another build of the operator would bring what it does otherwise.

// releasesOf are the releases that a cloud has kept, and the newest of them, 0 if there is none.
func releasesOf(s State) (kept map[int]*corev1.Secret, newest int) {
	kept = map[int]*corev1.Secret{}
	for _, o := range s.Live.objects {
		secret, ok := o.(*corev1.Secret)
		if n := release.Revision(o); ok && n > 0 && metav1.IsControlledBy(o, s.Cloud) {
			kept[n], newest = secret, max(newest, n)
		}
	}
	return kept, newest
}

// releaseKept is an error if the release in force is lost, and no user lets the cloud go on without it. A cache that is behind, or a lost label, is no loss.
func (r reader) releaseKept(ctx context.Context, s State, newest int, running *v1alpha1.OnecloudOperation) error {
	in := s.Cloud.Status.Release.Revision
	if newest >= in {
		return nil
	}
	secret := &corev1.Secret{}
	err := r.direct.Get(ctx, client.ObjectKey{Namespace: s.Cloud.Namespace, Name: release.SecretName(s.Cloud.Name, in)}, secret)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading release %d: %w", in, err)
	case err == nil && release.Revision(secret) == in && secret.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ValueManagedBy && metav1.IsControlledBy(secret, s.Cloud):
		return &staleCache{s.Now.Add(soon)}
	case err == nil:
		return fmt.Errorf("the labels or the owner of Secret %s-release-%d, which holds the release in force, were changed: restore them%s", s.Cloud.Name, in, without(s.Cloud))
	case running != nil:
		return fmt.Errorf("the release in force, %d, is lost: restore Secret %s-release-%d; or end operation %s first%s", in, s.Cloud.Name, in, running.Name, without(s.Cloud))
	case s.Cloud.Annotations[v1alpha1.AnnotationAtOnce] == strconv.Itoa(in):
		return nil
	}
	return fmt.Errorf("the release in force, %d, is lost: restore Secret %s-release-%d%s", in, s.Cloud.Name, in, without(s.Cloud))
}

// without says how a user lets a cloud go on without its release in force.
func without(c *v1alpha1.OnecloudCluster) string {
	return fmt.Sprintf("; or let the cloud continue without it, at once, as its spec (version %s) and this operator make it: kubectl -n %s annotate --overwrite oc %s %s=%d",
		cmp.Or(c.Spec.Version, c.Status.Release.Version), c.Namespace, c.Name, v1alpha1.AnnotationAtOnce, c.Status.Release.Revision)
}

// gatherRelease reads the newest release that a cloud has kept, 0 for none, and decides whether it may become what this build renders.
func gatherRelease(m *cloud, s *State, current int, running *v1alpha1.OnecloudOperation, atOnce bool) error {
	if running == nil {
		m.memos.from.drop()
	}
	if s.Releases.free = current == 0 || current < s.Cloud.Status.Release.Revision; s.Releases.free { // there is none, or it is lost
		s.Cloud.Spec.Version = cmp.Or(s.Cloud.Spec.Version, s.Cloud.Status.Release.Version)
		return nil
	}
	secret := s.Releases.kept[current]
	var err error
	s.Releases.current, err = m.memos.index.get(string(secret.UID)+"/"+secret.ResourceVersion, func() (*release.Release, error) {
		full, err := release.Decode(secret)
		if err != nil {
			return nil, err
		}
		return full.Index(), nil
	})
	if err != nil {
		return fmt.Errorf("%w: restore it%s; then: kubectl -n %s delete secret %s", err, without(s.Cloud), s.Cloud.Namespace, secret.Name)
	}
	s.Releases.asked = s.Cloud.Annotations[v1alpha1.AnnotationUpdateFrom] == strconv.Itoa(current)
	s.Cloud.Spec.Version = cmp.Or(s.Cloud.Spec.Version, s.Releases.current.Version) // without a version it stays where it is: latest is for new clouds
	moved := s.Cloud.Spec.Version != s.Releases.current.Version
	// A cloud that never ran has nothing to lose, and a user may have asked for this release to move without an operation.
	atOnce = atOnce || !s.Cloud.Status.HasRun() || s.Cloud.Annotations[v1alpha1.AnnotationAtOnce] == strconv.Itoa(current)
	if running != nil || !atOnce {
		if moved, err = s.heed(m, running, moved || s.Releases.asked); err != nil {
			return err
		}
	}
	s.Releases.free = m.own == current || s.Releases.asked || moved
	if !s.Releases.free {
		s.Catalog = s.Catalog.only(s.Releases.current.Catalog)
	}
	return nil
}
