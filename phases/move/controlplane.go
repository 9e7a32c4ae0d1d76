// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// startTimeout is how long etcd and the API server may take to start with their new manifests.
const startTimeout = 5 * time.Minute

// stopStep stops the control plane. The kubelet ends the containers of a changed manifest only when the API server answers; that waits for the new
// etcd, which waits for the former one's port. This took two minutes.
func stopStep() Step {
	return Step{
		Name: "stop", Short: "Stop the control plane on this machine", Timeout: startTimeout, Skip: ownControlPlane,
		Check: func(_ context.Context, m *Move) (bool, error) {
			if m.Moved() {
				return true, nil
			}
			files, err := changes(m.Host, m.From, m.To)
			return len(files) == 0, err
		},
		Plan: workflow.Says[*Move]("stop " + strings.Join(kubernetes.StaticPods(), ", ")),
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			return kubernetes.StopStaticPods(ctx, m.Host, r, kubernetes.StaticPods()...)
		},
	}
}

// startStep starts the control plane with the new address.
func startStep() Step {
	return Step{
		Name: "start", Short: "Start the control plane on this machine", Timeout: time.Minute, Skip: ownControlPlane,
		Run: func(_ context.Context, m *Move, r workflow.Reporter) error {
			return kubernetes.StartStaticPods(m.Host, r, kubernetes.StoppedPods(m.Host)...)
		},
		Check: func(_ context.Context, m *Move) (bool, error) {
			return len(kubernetes.StoppedPods(m.Host)) == 0 && !m.Restarted.IsZero(), nil
		},
		Plan: workflow.Says[*Move]("start " + strings.Join(kubernetes.StaticPods(), ", ")),
	}
}

// etcdStep changes the address in etcd's member list. A single member works without this, but the next one that joins needs it.
func etcdStep() Step {
	return Step{
		Name: "etcd", Short: "Write the new address into the member list of etcd", Timeout: startTimeout, Skip: ownControlPlane,
		Check: func(_ context.Context, m *Move) (bool, error) { return m.Moved(), nil },
		Plan:  workflow.Line(func(m *Move) string { return "change the peer address of the member of etcd to " + m.To }),
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			return m.until(ctx, r, "etcd", func(ctx context.Context) (bool, string, error) {
				own, err := kubernetes.OwnEtcd(m.Host)
				if err != nil {
					return false, "", err
				}
				ctx, cancel := context.WithTimeout(ctx, askTimeout)
				defer cancel()
				c, err := kubernetes.OpenOwnEtcd(ctx, m.Host, false)
				if err != nil {
					return false, "", err
				}
				defer c.Close()
				changed, err := c.SetPeerURL(ctx, own.Name, own.PeerURL)
				if err == nil && changed {
					r.Changed("changed the peer address of the member %s of etcd to %s", own.Name, own.PeerURL)
				}
				return err == nil, "", err
			})
		},
	}
}

// apiServerStep waits for the API server with the new manifest.
func apiServerStep() Step {
	return Step{
		Name: "api-server", Short: "Wait until the API server answers at the new address", Timeout: startTimeout, Skip: ownControlPlane,
		Check: func(_ context.Context, m *Move) (bool, error) { return m.Moved(), nil },
		Plan:  workflow.Says[*Move](),
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			pod := client.ObjectKey{Namespace: "kube-system", Name: "kube-apiserver-" + m.Host.Config.Node.Name}
			return m.until(ctx, r, "the API server", func(ctx context.Context) (bool, string, error) {
				ctx, cancel := context.WithTimeout(ctx, askTimeout)
				defer cancel()
				c, err := kubernetes.AdminClient(m.Host)
				if err != nil {
					return false, "", err
				}
				var p corev1.Pod
				if err := c.Get(ctx, pod, &p); err != nil {
					return false, "", err
				}
				const at = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"
				return holds(p.Annotations[at], m.To), "it runs with the former address", nil
			})
		},
	}
}

// settings returns the ConfigMaps of Kubernetes with the former address: those of kubeadm, kube-proxy and joining nodes.
func (m *Move) settings(ctx context.Context) (client.Client, []corev1.ConfigMap, error) {
	c, err := kubernetes.AdminClient(m.Host)
	if err != nil {
		return nil, nil, err
	}
	from, _ := m.named()
	out, err := settingsWith(ctx, c, from)
	return c, out, err
}

// settingsWith returns the ConfigMaps of Kubernetes that contain an address.
func settingsWith(ctx context.Context, c client.Reader, address string) ([]corev1.ConfigMap, error) {
	var out []corev1.ConfigMap
	for _, namespace := range []string{"kube-system", "kube-public"} {
		var list corev1.ConfigMapList
		if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing the settings of Kubernetes: %w", err)
		}
		for _, o := range list.Items {
			for _, text := range o.Data {
				if holds(text, address) {
					out = append(out, o)
					break
				}
			}
		}
	}
	return out, nil
}

// Settled reports whether settings of Kubernetes contain the new address, so that clients may use it.
func (m *Move) Settled(ctx context.Context, c client.Reader) (bool, error) {
	_, to := m.named()
	list, err := settingsWith(ctx, c, to)
	return len(list) > 0, err
}

// proxyAnnotation restarts kube-proxy once for each move, because it reads its ConfigMap only when it starts.
const proxyAnnotation = "ocadm.yunion.io/api-server"

var proxy = client.ObjectKey{Namespace: "kube-system", Name: "kube-proxy"}

// SettingsStep writes the new address into the settings of Kubernetes.
func SettingsStep() Step {
	return Step{
		Name: "settings", Short: "Write the new address into the settings of Kubernetes", Timeout: 2 * time.Minute, Skip: ownControlPlane,
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			c, list, err := m.settings(ctx)
			if err != nil {
				return err
			}
			from, to := m.named()
			for _, o := range list {
				before := o.DeepCopy()
				for key, text := range o.Data {
					o.Data[key] = replaced(text, from, to)
				}
				if err := c.Patch(ctx, &o, kube.IfUnchanged(before), client.FieldOwner(kube.FieldManager)); err != nil {
					return fmt.Errorf("changing ConfigMap %s/%s: %w", o.Namespace, o.Name, err)
				}
				r.Changed("changed ConfigMap %s/%s", o.Namespace, o.Name)
			}
			return m.restartProxy(ctx, c, r)
		},
	}.Todo(func(ctx context.Context, m *Move) ([]string, error) {
		if m.Moved() {
			return nil, nil
		}
		c, list, err := m.settings(ctx)
		if err != nil {
			return nil, err
		}
		out := lists.Map(list, func(o corev1.ConfigMap) string { return "change ConfigMap " + o.Namespace + "/" + o.Name })
		d, there, err := proxyOf(ctx, c)
		if there && d.Spec.Template.Annotations[proxyAnnotation] != m.To {
			out = append(out, "restart kube-proxy on every node")
		}
		return out, err
	})
}

// proxyOf returns kube-proxy, which a pod network may replace.
func proxyOf(ctx context.Context, c client.Client) (*appsv1.DaemonSet, bool, error) {
	var d appsv1.DaemonSet
	err := c.Get(ctx, proxy, &d)
	return &d, err == nil, client.IgnoreNotFound(err)
}

func (m *Move) restartProxy(ctx context.Context, c client.Client, r workflow.Reporter) error {
	d, there, err := proxyOf(ctx, c)
	if err != nil || !there || d.Spec.Template.Annotations[proxyAnnotation] == m.To {
		return err
	}
	before := d.DeepCopy()
	metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, proxyAnnotation, m.To)
	if err := c.Patch(ctx, d, client.MergeFrom(before), client.FieldOwner(kube.FieldManager)); err != nil {
		return fmt.Errorf("restarting kube-proxy: %w", err)
	}
	r.Changed("restarted kube-proxy on every node")
	return nil
}

// clouds returns the clouds that are reached at the former address.
func (m *Move) clouds(ctx context.Context, c client.Client) ([]v1alpha1.OnecloudCluster, error) {
	list, err := cluster.All(ctx, c)
	return slices.DeleteFunc(list, func(o v1alpha1.OnecloudCluster) bool { return o.Spec.LoadBalancerEndpoint != m.From }), err
}

// CloudStep changes the address of clouds, including those created later. Their operators update endpoints and certificates.
func CloudStep() Step {
	return Step{
		Name: "cloud", Short: "Write the new address into the clouds that are reached there", Timeout: 2 * time.Minute, Skip: ownControlPlane,
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			c, err := kubernetes.AdminClient(m.Host)
			if err != nil {
				return err
			}
			return m.moveClouds(ctx, c, r)
		},
	}.Todo(func(ctx context.Context, m *Move) ([]string, error) {
		if m.Moved() {
			return nil, nil
		}
		c, err := kubernetes.AdminClient(m.Host)
		if err != nil {
			return nil, err
		}
		return m.cloudsToMove(ctx, c)
	})
}

func (m *Move) moveClouds(ctx context.Context, c client.Client, r workflow.Reporter) error {
	list, err := m.clouds(ctx, c)
	if err != nil {
		return err
	}
	for _, o := range list {
		patch := fmt.Sprintf(`{"spec":{"loadBalancerEndpoint":%q}}`, m.To)
		if err := c.Patch(ctx, &o, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner(kube.FieldManager)); err != nil {
			return fmt.Errorf("changing cloud %s/%s: %w", o.Namespace, o.Name, err)
		}
		r.Changed("changed spec.loadBalancerEndpoint of cloud %s/%s", o.Namespace, o.Name)
	}
	settings, err := cluster.MoveSettings(ctx, c, m.From, m.To, false)
	for _, name := range settings {
		r.Changed("changed ConfigMap %s", name)
	}
	return err
}

func (m *Move) cloudsToMove(ctx context.Context, c client.Client) (out []string, _ error) {
	list, err := m.clouds(ctx, c)
	if err != nil {
		return nil, err
	}
	out = lists.Map(list, func(o v1alpha1.OnecloudCluster) string {
		return "change spec.loadBalancerEndpoint of cloud " + o.Namespace + "/" + o.Name
	})
	settings, err := cluster.MoveSettings(ctx, c, m.From, m.To, true)
	return append(out, workflow.Lines("change ConfigMap ", settings)...), err
}

// Others returns the nodes that must follow a control plane with a new address.
func (m *Move) Others(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := kubernetes.AdminClient(m.Host)
	if err != nil {
		return nil, err
	}
	var list corev1.NodeList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return lists.Pick(list.Items, func(n corev1.Node) (string, bool) { return n.Name, n.Name != m.Host.Config.Node.Name }), nil
}
