// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// ExchangeTimeout bounds the exchange of one static pod; ExchangePatience bounds the time without progress of the new one.
	ExchangeTimeout  = 7 * time.Minute
	ExchangePatience = 5 * time.Minute // as long as kubeadm's upgrade waits
	// crashes is how often a new static pod may exit before the exchange gives up.
	crashes = 3
)

// Exchanged reports whether a static pod runs with its new manifest and is healthy.
func Exchanged(ctx context.Context, h *host.Host, name string) (bool, error) {
	what, err := ExchangePlan(h, name)
	if err != nil || what != "" {
		return false, err
	}
	return settled(name, time.Time{})(ctx, h) == "", nil
}

// ExchangePlan returns what would change in a static pod, "" if nothing.
func ExchangePlan(h *host.Host, name string) (string, error) {
	now, err := readPod(h, manifest(name))
	if err != nil {
		return "", err
	}
	staged, err := readPod(h, path.Join(stagedDir, name+".yaml"))
	if err != nil || samePod(now, staged) {
		return "", err
	}
	from, to := Tag(now.Spec.Containers[0].Image), Tag(staged.Spec.Containers[0].Image)
	if from == to {
		return "restart " + name + " with other settings", nil
	}
	return fmt.Sprintf("replace %s %s with %s", name, from, to), nil
}

// Exchange replaces the manifest of a static pod with the new one, renews the certificates that it reads at startup, and waits until the new pod and the whole
// control plane are healthy. It keeps the previous manifest for PutBack.
func Exchange(ctx context.Context, h *host.Host, r workflow.Reporter, name, version string) error {
	what, err := ExchangePlan(h, name)
	if err != nil {
		return err
	}
	if what != "" {
		if err := exchange(ctx, h, r, name, what); err != nil {
			return err
		}
	}
	if err := awaitSettled(ctx, h, r, name); err != nil {
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return err
		}
		f := finding.Errorf("OCA-4507", name+" does not start with Kubernetes "+version,
			"the evidence shows the reason; the previous static pods are restored; correct the problem, then run the same command again", "%w", err)
		if l := finding.Of(err); len(l) > 0 {
			f.Evidence = l[0].Evidence
		}
		return f
	}
	return nil
}

func exchange(ctx context.Context, h *host.Host, r workflow.Reporter, name, what string) error {
	before := path.Join(beforeDir, name+".yaml")
	if !h.Files.Exists(before) {
		if err := h.Files.Copy(manifest(name), before); err != nil {
			return fmt.Errorf("saving the manifest of %s: %w", name, err)
		}
	}
	if err := renewFor(ctx, h, r, name); err != nil {
		return err
	}
	if err := h.Files.Copy(path.Join(stagedDir, name+".yaml"), manifest(name)); err != nil {
		return fmt.Errorf("replacing the manifest of %s: %w", name, err)
	}
	r.Changed("%s", strings.NewReplacer("replace ", "replaced ", "restart ", "restarted ").Replace(what))
	return nil
}

// renewFor renews the certificates that a static pod reads, except those of a CA whose key is elsewhere.
func renewFor(ctx context.Context, h *host.Host, r workflow.Reporter, name string) error {
	list, err := Certificates(h, time.Now(), 0)
	if err != nil {
		return err
	}
	for _, c := range list {
		if c.pod != name || c.External {
			continue
		}
		if err := renewKeeping(ctx, h, c); err != nil {
			return err
		}
		r.Changed("renewed %s", c.File)
	}
	return nil
}

// PutBack restores the previous manifest of a static pod and waits until it is healthy. If etcd or the API server is unhealthy, it restores those first,
// because no other pod works without them.
func PutBack(ctx context.Context, h *host.Host, r workflow.Reporter, name string) error {
	var names []string
	for _, below := range []struct {
		name string
		is   probe
	}{{constants.Etcd, probeEtcd}, {constants.KubeAPIServer, probeAPIServer}} {
		if below.name == name {
			break
		}
		if below.is(ctx, h) != "" {
			names = append(names, below.name)
		}
	}
	return PutAllBack(ctx, h, r, append(names, name)...)
}

// PutAllBack restores the previous manifests of static pods, and only then waits for each to become healthy: the broken one may be the last of them.
func PutAllBack(ctx context.Context, h *host.Host, r workflow.Reporter, names ...string) error {
	var back []string
	for _, name := range names {
		switch exchanged, err := putBack(ctx, h, r, name); {
		case err != nil:
			return err
		case exchanged:
			back = append(back, name)
		}
	}
	for _, name := range back {
		if err := awaitSettled(ctx, h, r, name); err != nil {
			return err
		}
	}
	return nil
}

// putBack restores one manifest, and reports whether the caller must wait for the pod. It keeps a working etcd of another minor version, because etcd does not
// downgrade by itself.
func putBack(ctx context.Context, h *host.Host, r workflow.Reporter, name string) (bool, error) {
	before := path.Join(beforeDir, name+".yaml")
	if !h.Files.Exists(before) {
		return false, nil
	}
	old, err := readPod(h, before)
	if err != nil {
		return false, err
	}
	now, err := readPod(h, manifest(name))
	switch {
	case err == nil && samePod(old, now):
	case err == nil && name == constants.Etcd && otherMinor(Tag(old.Spec.Containers[0].Image), Tag(now.Spec.Containers[0].Image)) && probeEtcd(ctx, h) == "":
		r.Info("etcd stays at %s: it cannot be downgraded to another minor version", Tag(now.Spec.Containers[0].Image))
		return false, nil
	default:
		if err := h.Files.Copy(before, manifest(name)); err != nil {
			return false, fmt.Errorf("restoring the manifest of %s: %w", name, err)
		}
		r.Changed("restored %s %s", name, Tag(old.Spec.Containers[0].Image))
	}
	return true, nil
}

func otherMinor(a, b string) bool {
	minor := func(v string) string {
		parts := strings.SplitN(v, ".", 3)
		return strings.Join(parts[:min(2, len(parts))], ".")
	}
	return minor(a) != minor(b)
}

// awaitSettled waits until settled holds for a static pod. It gives up early on a container that keeps crashing.
func awaitSettled(ctx context.Context, h *host.Host, r workflow.Reporter, name string) error {
	ctx, cancel := context.WithTimeout(ctx, ExchangePatience)
	defer cancel()
	return await(ctx, h, r, name, settled(name, time.Now()), crashing(name), diagnosePod(name))
}

// crashing reports whether the container of a static pod has exited several times since its manifest was written. It counts the exits itself: restoring a
// manifest recreates the same pod, and the kubelet continues that pod's attempt count.
func crashing(name string) hopeless {
	ended := map[string]bool{}
	return func(ctx context.Context, h *host.Host) bool {
		st, err := h.Files.Stat(manifest(name))
		if err != nil {
			return false
		}
		list, err := systemContainers(ctx, h, nil)
		if err != nil {
			return false
		}
		for _, c := range list {
			if c.GetLabels()[containerNameLabel] == name && created(c).After(st.ModTime()) && c.GetState() == cri.ContainerState_CONTAINER_EXITED {
				ended[c.GetId()] = true
			}
		}
		return len(ended) >= crashes
	}
}

// settled returns a probe: the container of a static pod is newer than its manifest and healthy, and so is what depends on it. Leases must have been
// renewed since after; the zero time accepts any.
func settled(name string, after time.Time) probe {
	return func(ctx context.Context, h *host.Host) string {
		if why := newerThanManifest(ctx, h, name); why != "" {
			return why
		}
		checks := []probe{probePod(name), probeAPIServer, probeLease(name, after)}
		switch name {
		case constants.Etcd:
			checks = []probe{probeEtcd, probeAPIServer}
		case constants.KubeAPIServer:
			checks = checks[:1]
		}
		for _, p := range checks {
			if why := p(ctx, h); why != "" {
				return why
			}
		}
		return ""
	}
}

// newerThanManifest returns why the running container of a static pod does not come from its current manifest.
func newerThanManifest(ctx context.Context, h *host.Host, name string) string {
	st, err := h.Files.Stat(manifest(name))
	if err != nil {
		return err.Error()
	}
	running, err := staticContainers(ctx, h, []string{name})
	if err != nil {
		return err.Error()
	}
	c := running[name]
	switch {
	case c == nil:
		return "it does not run"
	case precedes(c, st.ModTime()):
		return "the kubelet has not replaced it yet"
	}
	return ""
}

// precedes reports whether a container was created before its manifest was written. It is unknown, and thus false, if the clock was ahead when it was written.
func precedes(c *cri.Container, written time.Time) bool {
	return created(c).Before(written) && written.Before(time.Now())
}

func created(c *cri.Container) time.Time { return time.Unix(0, c.GetCreatedAt()) }

// startedAfter reports whether a container started after a time. It is unknown, and thus false, if the clock was ahead when it started.
func startedAfter(c *cri.Container, at time.Time) bool {
	return created(c).After(at) && created(c).Before(time.Now())
}

// probeEtcd checks all members of etcd.
func probeEtcd(ctx context.Context, h *host.Host) string {
	all, err := ObserveOwnEtcd(ctx, h)
	if err != nil {
		return err.Error()
	}
	if i := slices.IndexFunc(all, func(o etcd.Observed) bool { return !o.Answers }); i >= 0 {
		return "member " + all[i].Name + " of etcd does not answer: " + all[i].Problem
	}
	return ""
}

// ObserveOwnEtcd returns the reports of all members of etcd, using the certificates of this control-plane node.
func ObserveOwnEtcd(ctx context.Context, h *host.Host) ([]etcd.Observed, error) {
	c, err := OpenOwnEtcd(ctx, h, true)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Observe(ctx)
}

// probeLease checks that the component of a lease has a leader: the lease was renewed after since.
func probeLease(name string, since time.Time) probe {
	return func(ctx context.Context, h *host.Host) string {
		ctx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		c, err := h.Kube(ctx)
		if err != nil {
			return err.Error()
		}
		var l coordinationv1.Lease
		if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, &l); err != nil {
			return err.Error()
		}
		if l.Spec.RenewTime == nil || l.Spec.RenewTime.Time.Before(since) {
			return "no " + name + " has renewed its lease yet"
		}
		return ""
	}
}

// IsBack reports whether a static pod has its manifest from before the upgrade.
func IsBack(h *host.Host, name string) bool {
	old, err := readPod(h, path.Join(beforeDir, name+".yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	now, nerr := readPod(h, manifest(name))
	return err == nil && nerr == nil && samePod(old, now)
}
