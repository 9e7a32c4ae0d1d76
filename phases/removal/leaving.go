// SPDX-License-Identifier: Apache-2.0

package removal

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
)

// VolumesOn returns the volumes on the disks of a node. It needs the permissions of an administrator.
func VolumesOn(ctx context.Context, k client.Client, node string) ([]Volume, error) {
	is := Inventory{Node: node}
	err := is.volumes(ctx, k)
	return is.Volumes, err
}

// VolumesInUse returns the volumes on the disks of a node that its pods claim. The node's kubelet may read these: it may list neither volumes nor
// claims, and does not know the other server of a database.
func VolumesInUse(ctx context.Context, k client.Client, node string) ([]Volume, error) {
	pods, err := kube.PodsOn(ctx, k, node)
	if err != nil {
		return nil, err
	}
	var out []Volume
	for _, p := range pods {
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			name := v.PersistentVolumeClaim.ClaimName
			if slices.ContainsFunc(out, func(o Volume) bool { return o.Claim == p.Namespace+"/"+name }) {
				continue
			}
			one, err := claimed(ctx, k, node, client.ObjectKey{Namespace: p.Namespace, Name: name})
			if err != nil {
				return nil, err
			}
			if one.Name != "" {
				out = append(out, one)
			}
		}
	}
	slices.SortFunc(out, func(a, b Volume) int { return cmp.Compare(a.Claim, b.Claim) })
	return out, nil
}

// claimed returns a claim's volume if it is on the disks of the node, otherwise the zero value.
func claimed(ctx context.Context, k client.Client, node string, claim client.ObjectKey) (Volume, error) {
	var c corev1.PersistentVolumeClaim
	if err := k.Get(ctx, claim, &c); err != nil {
		return Volume{}, client.IgnoreNotFound(err)
	}
	if c.Spec.VolumeName == "" {
		return Volume{}, nil
	}
	var v corev1.PersistentVolume
	if err := k.Get(ctx, client.ObjectKey{Name: c.Spec.VolumeName}, &v); err != nil {
		return Volume{}, fmt.Errorf("reading the volume of claim %s: %w", claim, err)
	}
	if !onlyOn(&v, node) {
		return Volume{}, nil
	}
	return describe(&v, claim), nil
}

// describe describes a volume bound to a claim; the zero claim means that it is unbound.
func describe(v *corev1.PersistentVolume, claim client.ObjectKey) Volume {
	one := Volume{Name: v.Name, Path: pathOf(v)}
	if size, ok := v.Spec.Capacity[corev1.ResourceStorage]; ok {
		one.Size = size.String()
	}
	if claim.Name != "" {
		one.Claim, one.Database = claim.Namespace+"/"+claim.Name, databaseServer(claim.Name) != ""
	}
	return one
}
