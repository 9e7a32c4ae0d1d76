// SPDX-License-Identifier: Apache-2.0

// Package vip gives the control plane a virtual address: keepalived in a static pod on every control-plane node. Package internal/vip runs in that pod beside keepalived.
package vip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/nodepod"
)

// The names of the phases.
const (
	PhaseName = "virtual-address"
	storeName = "virtual-address-settings"
)

var notWanted = workflow.SkipIf("no --high-availability-vip", func(h *host.Host) bool { return h.Config.Cluster.VirtualAddress == "" })

// Phase starts keepalived on the first control-plane node, before the API server runs: everything else reaches it at the virtual address.
func Phase(after ...string) host.Phase {
	return host.Phase{
		Name: PhaseName, Short: "Start keepalived for the virtual address of the control plane", After: after, Skip: notWanted,
		Long: "Chooses a router ID of VRRP that no other group in the network advertises, and a random password, and writes a static pod with\n" +
			"keepalived, which holds the address while the API server of this node answers.",
		Check: func(_ context.Context, h *host.Host) (bool, error) {
			s, err := kept(h)
			if err != nil || s.Address == "" {
				return false, err
			}
			if err := same(h, s); err != nil {
				return false, err
			}
			pod, err := manifest(h)
			return len(pod.Todo(h)) == 0 && h.Files.Exists(vip.ConfigFile), err
		},
		Plan: workflow.Says[*host.Host]("choose a router ID and a password for VRRP", "write "+vip.SettingsFile, "write "+vip.ConfigFile, "write "+ManifestFile),
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			s, err := kept(h)
			if err != nil {
				return err
			}
			if s.Address == "" {
				if s, err = choose(ctx, h, r); err != nil {
					return err
				}
			}
			if err := same(h, s); err != nil {
				return err
			}
			return install(h, s, r)
		},
	}
}

// choose generates the settings of a new cluster.
func choose(ctx context.Context, h *host.Host, r workflow.Reporter) (vip.Settings, error) {
	iface, err := vip.InterfaceOf(h.Config.Node.AdvertiseAddress)
	if err != nil {
		return vip.Settings{}, err
	}
	r.Waiting("router IDs of VRRP", "listening on "+iface)
	id, used, err := vip.FreeRouterID(ctx, iface)
	r.Waiting("router IDs of VRRP", "")
	if err != nil {
		return vip.Settings{}, err
	}
	if len(used) > 0 {
		r.Info("other groups use the router IDs %s", strings.Trim(fmt.Sprint(used), "[]"))
	}
	return vip.Settings{Address: h.Config.Cluster.VirtualAddress, RouterID: id, Password: vip.NewPassword()}.With(h.Config.Node.AdvertiseAddress), nil
}

// same refuses an address other than the one that the cluster was created with.
func same(h *host.Host, s vip.Settings) error {
	if want := h.Config.Cluster.VirtualAddress; want != "" && want != s.Address {
		return finding.New("OCA-4138", "The cluster has a different virtual address", fmt.Sprintf("it is %s, and --high-availability-vip is %s", s.Address, want),
			"repeat the command with --high-availability-vip "+s.Address)
	}
	return nil
}

// kept reads this node's copy of the settings. Without a copy, the settings have no address.
func kept(h *host.Host) (vip.Settings, error) {
	text := h.Files.Text(vip.SettingsFile)
	if text == "" {
		return vip.Settings{}, nil
	}
	var data map[string]string
	if yaml.Unmarshal([]byte(text), &data) != nil {
		return vip.Settings{}, errors.New("reading " + vip.SettingsFile + ": it is not YAML") // the cause would quote the file
	}
	raw := map[string][]byte{}
	for k, v := range data {
		raw[k] = []byte(v)
	}
	return vip.Parse(raw)
}

// install writes the settings, the configuration and the static pod.
func install(h *host.Host, s vip.Settings, r workflow.Reporter) error {
	iface, err := vip.InterfaceOf(h.Config.Node.AdvertiseAddress)
	if err != nil {
		return err
	}
	text, err := s.Text()
	if err != nil {
		return err
	}
	files := host.FileSet{
		{Name: vip.SettingsFile, Data: text, Mode: 0o600},
		{Name: vip.ConfigFile, Data: s.Config(h.Config.Node.Name, h.Config.Node.AdvertiseAddress, iface), Mode: 0o600},
	}
	pod, err := manifest(h)
	if err != nil {
		return err
	}
	_, err = slices.Concat(files, pod).Write(h, r) // the pod comes last: it needs the other files
	return err
}

// StorePhase stores the settings in the cluster, for joining nodes.
func StorePhase(after ...string) host.Phase {
	return host.Phase{
		Name: storeName, Short: "Store the settings of the virtual address in the cluster", After: after, Skip: notWanted, Timeout: time.Minute,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			k, err := h.Kube(ctx)
			if err != nil {
				return false, nil //nolint:nilerr // the phase runs and reports why
			}
			_, found, err := Load(ctx, k)
			return found && err == nil, nil
		},
		Plan: workflow.Says[*host.Host]("create Secret " + vip.SecretNamespace + "/" + vip.SecretName),
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			s, err := kept(h)
			if err == nil && s.Address == "" { // a Secret without an address would keep every further control-plane node from joining
				err = errors.New("storing the settings of the virtual address: " + vip.SettingsFile + " is missing: phase " + PhaseName + " writes it")
			}
			if err != nil {
				return err
			}
			k, err := h.Kube(ctx)
			if err != nil {
				return err
			}
			if err := k.Create(ctx, s.Secret()); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating Secret %s: %w", vip.SecretName, err)
			}
			r.Changed("created Secret %s/%s", vip.SecretNamespace, vip.SecretName)
			return nil
		},
	}
}

// Load reads the settings from the cluster; found is false if it has no virtual address.
func Load(ctx context.Context, k client.Client) (s vip.Settings, found bool, err error) {
	var secret corev1.Secret
	found, err = kube.Find(ctx, k, client.ObjectKey{Namespace: vip.SecretNamespace, Name: vip.SecretName}, &secret, "Secret "+vip.SecretName)
	if !found {
		return vip.Settings{}, false, err
	}
	s, err = vip.Parse(secret.Data)
	return s, err == nil, err
}

// Change updates the settings in the cluster. The agents of all nodes follow.
func Change(ctx context.Context, k client.Client, to func(vip.Settings) vip.Settings) (vip.Settings, error) {
	for {
		var secret corev1.Secret
		if err := k.Get(ctx, client.ObjectKey{Namespace: vip.SecretNamespace, Name: vip.SecretName}, &secret); err != nil {
			return vip.Settings{}, fmt.Errorf("reading Secret %s: %w", vip.SecretName, err)
		}
		s, err := vip.Parse(secret.Data)
		if err != nil {
			return s, err
		}
		s = to(s)
		if maps.EqualFunc(s.Data(), secret.Data, bytes.Equal) {
			return s, nil
		}
		secret.Data = s.Data()
		err = k.Update(ctx, &secret)
		if err == nil || !apierrors.IsConflict(err) {
			return s, err
		}
	}
}

// AddPeer adds a control-plane node back to the VRRP group. It does nothing in a cluster without a virtual address.
func AddPeer(ctx context.Context, k client.Client, address string) error {
	_, err := Change(ctx, k, func(s vip.Settings) vip.Settings { return s.With(address) })
	return client.IgnoreNotFound(err)
}

// RemovePeer removes a control-plane node from the VRRP group. It does nothing in a cluster without a virtual address.
func RemovePeer(ctx context.Context, k client.Client, address string) error {
	_, err := Change(ctx, k, func(s vip.Settings) vip.Settings { return s.Without(address) })
	return client.IgnoreNotFound(err)
}

// JoinPhase lets a further control-plane node hold the address. The other nodes learn about it first.
func JoinPhase(after ...string) host.Phase {
	return host.Phase{
		Name: PhaseName, Short: "Let this node take over the virtual address of the control plane", After: after, Timeout: time.Minute,
		Skip: kubernetes.NotControlPlane,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			k, err := h.Kube(ctx)
			if err != nil {
				return false, nil //nolint:nilerr // the phase runs and reports why
			}
			s, found, err := Load(ctx, k)
			if err != nil || !found {
				return err == nil, nil //nolint:nilerr // as above
			}
			pod, err := manifest(h)
			return len(pod.Todo(h)) == 0 && slices.Contains(s.Peers, h.Config.Node.AdvertiseAddress), err
		},
		Plan: workflow.Says[*host.Host]("if the cluster has a virtual address: write " + ManifestFile + " and the files that keepalived needs"),
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			k, err := h.Kube(ctx)
			if err != nil {
				return err
			}
			if _, found, err := Load(ctx, k); err != nil || !found {
				return err
			}
			s, err := Change(ctx, k, func(s vip.Settings) vip.Settings { return s.With(h.Config.Node.AdvertiseAddress) })
			if err != nil {
				return err
			}
			return install(h, s, r)
		},
		Undo: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			return leave(ctx, h, h.Config.Node.AdvertiseAddress, r) // its other files are removed with those of the node
		},
	}
}

// leave removes this machine from the group and ends its keepalived immediately: within seconds, the others stop listening to it, and one of them claims the address.
func leave(ctx context.Context, h *host.Host, self string, r workflow.Reporter) error {
	kubernetes.AskOwn(ctx, h)
	leaveGroup(ctx, h, self, r)
	runs := h.Files.Exists(ManifestFile)
	if err := h.Files.Remove(ManifestFile); err != nil {
		return fmt.Errorf("removing the static pod of keepalived: %w", err)
	}
	if runs {
		r.Changed("removed %s", ManifestFile)
	}
	if err := kubernetes.EndKeepalived(ctx, h); err != nil {
		r.Info("keepalived has not been stopped yet; the kubelet stops it once the container runtime answers: %v", err)
	}
	return nil
}

// leaveGroup removes this machine from the peers. It does not fail if the cluster does not answer.
func leaveGroup(ctx context.Context, h *host.Host, self string, r workflow.Reporter) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	if k, err := h.Kube(ctx); err != nil {
		r.Info("the cluster does not answer: the other control-plane nodes keep this one as a peer")
	} else if err := RemovePeer(ctx, k, self); err != nil {
		r.Info("this machine stays a peer of the other control-plane nodes: %v", err)
	}
}

// Dissolve undoes Phase and StorePhase.
func Dissolve(ctx context.Context, h *host.Host, k client.Client, r workflow.Reporter) error {
	for _, name := range []string{ManifestFile, vip.ConfigFile, vip.SettingsFile} {
		if err := h.Files.Remove(name); err != nil {
			return fmt.Errorf("removing the virtual address: %w", err)
		}
	}
	r.Changed("removed %s", ManifestFile)
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: vip.SecretNamespace, Name: vip.SecretName}}
	if err := client.IgnoreNotFound(k.Delete(ctx, &secret)); err != nil {
		return fmt.Errorf("deleting Secret %s: %w", vip.SecretName, err)
	}
	return nil
}

// LeavePhase removes this machine from the group before its node leaves the cluster.
func LeavePhase() host.Phase {
	return host.Phase{
		Name: "leave-virtual-address", Short: "Remove this machine from the group of the virtual address", Timeout: 90 * time.Second,
		Skip: workflow.SkipIf("no keepalived of ocadm runs here", func(h *host.Host) bool {
			return !h.Files.Exists(ManifestFile) || !h.Ledger.Has(host.KindFile, ManifestFile)
		}),
		Plan: workflow.Says[*host.Host]("remove this machine from Secret "+vip.SecretName, "remove "+ManifestFile),
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			// Only this machine reliably knows its own address as the others do.
			return leave(ctx, h, strings.TrimSpace(nodepod.Argument(h.Files.Text(ManifestFile), addressFlag)), r)
		},
	}
}
