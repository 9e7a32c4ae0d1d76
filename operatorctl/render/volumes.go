// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

// volumes returns the volumes of the pod and the mounts of its main container.
func volumes(in component.Inputs, c conf) ([]corev1.Volume, []corev1.VolumeMount) {
	r := in.Self
	var vols []corev1.Volume
	var mounts []corev1.VolumeMount
	add := func(v corev1.Volume, m corev1.VolumeMount) {
		m.Name = v.Name
		vols, mounts = append(vols, v), append(mounts, m)
	}
	if !r.Workload.NoCerts {
		add(corev1.Volume{Name: "certs", VolumeSource: secretVolume(in.Cluster.Object(v1alpha1.SecretCerts), "ca.crt", "service.crt", "service.key")},
			corev1.VolumeMount{MountPath: certsDir, ReadOnly: true})
	}
	if r.Config != nil {
		add(corev1.Volume{Name: "config", VolumeSource: configVolume(in, c)},
			corev1.VolumeMount{MountPath: cmp.Or(r.Config.Dir, confDir), ReadOnly: true})
	}
	if r.Workload.EtcdTLS {
		add(corev1.Volume{Name: "etcd-client", VolumeSource: secretVolume(in.Cluster.Object(v1alpha1.SecretEtcdClient))},
			corev1.VolumeMount{MountPath: etcdDir, ReadOnly: true})
	}
	for _, m := range r.Workload.Mounts {
		v, inTemplate := mountVolume(in, m)
		mounts = append(mounts, volumeMount(m))
		if !inTemplate {
			vols = append(vols, v)
		}
	}
	return vols, mounts
}

func volumeMount(m component.Mount) corev1.VolumeMount {
	mount := corev1.VolumeMount{Name: m.Name, MountPath: m.Path, ReadOnly: m.ReadOnly}
	if m.Bidirectional {
		mount.MountPropagation = new(corev1.MountPropagationBidirectional)
	}
	return mount
}

// mountVolume returns the source of a mount. A StatefulSet's own storage comes from its claim template instead.
func mountVolume(in component.Inputs, m component.Mount) (v corev1.Volume, inTemplate bool) {
	v.Name = m.Name
	switch {
	case m.HostPath != "":
		v.HostPath = &corev1.HostPathVolumeSource{Path: m.HostPath}
		if m.HostPathType != "" {
			v.HostPath.Type = new(m.HostPathType)
		}
	case m.Storage && in.Self.Workload.Kind == component.StatefulSet:
		return v, true
	case m.Storage:
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(in)}
	case m.Secret != "":
		v.VolumeSource = secretVolume(in.Cluster.Object(m.Secret))
	default:
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	return v, false
}

// configVolume returns the source of the configuration files: the Secret for a file with secrets, the ConfigMap for one without, a projection for
// several of both kinds.
func configVolume(in component.Inputs, c conf) corev1.VolumeSource {
	k := in.Self.Config
	owner, path := in.Self.Component, FileName(in.Self.Component)
	more := sorted(c.secret)
	if k.Of != "" {
		owner = in.Cluster.Components[k.Of].Component
		if owner.Config.Files != nil {
			more = sorted(owner.Config.Files(in))
		}
	}
	item := corev1.KeyToPath{Key: FileName(owner), Path: path}
	object := in.Cluster.Object(owner.Name)
	if owner.Config.Plain == "" {
		v := secretVolume(object + ConfigSuffix)
		v.Secret.Items = []corev1.KeyToPath{item}
		for _, name := range more {
			if name != FileName(owner) {
				v.Secret.Items = append(v.Secret.Items, corev1.KeyToPath{Key: name, Path: name})
			}
		}
		return v
	}
	plainFile := []corev1.KeyToPath{{Key: plainKey, Path: path}}
	if len(c.secret) == 0 {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: object}, Items: plainFile,
		}}
	}
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: object}, Items: plainFile}},
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: object + ConfigSuffix}}},
	}}}
}

func secretVolume(name string, keys ...string) corev1.VolumeSource {
	items := lists.Map(keys, func(k string) corev1.KeyToPath { return corev1.KeyToPath{Key: k, Path: k} })
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Items: items}}
}

// claimName returns the name of the volume claim. It contains a class other than the default, so that another class means another volume.
func claimName(in component.Inputs) string {
	name := in.Cluster.Object(in.Self.Name)
	if in.Self.StorageClass != resolve.DefaultClass {
		name += "-" + in.Self.StorageClass
	}
	return name
}

func claim(in component.Inputs) (corev1.PersistentVolumeClaimSpec, error) {
	size, err := resource.ParseQuantity(in.Self.StorageSize)
	if err != nil {
		return corev1.PersistentVolumeClaimSpec{}, err
	}
	return corev1.PersistentVolumeClaimSpec{
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		StorageClassName: new(in.Self.StorageClass),
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
	}, nil
}

func claims(in component.Inputs) ([]client.Object, error) {
	if in.Self.Storage == nil || in.Self.Workload.Kind == component.StatefulSet {
		return nil, nil
	}
	spec, err := claim(in)
	if err != nil {
		return nil, err
	}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: meta(in, ""), Spec: spec}
	pvc.Name = claimName(in)
	if d := in.Self.Storage.HostDir; d != "" {
		pvc.Annotations = map[string]string{v1alpha1.AnnotationVolumePath: d}
	}
	return []client.Object{pvc}, nil
}

func claimTemplates(in component.Inputs) ([]corev1.PersistentVolumeClaim, error) {
	if in.Self.Storage == nil {
		return nil, nil
	}
	spec, err := claim(in)
	if err != nil {
		return nil, err
	}
	for _, m := range in.Self.Workload.Mounts {
		if m.Storage {
			// Kind and version stay empty: the cache reads protobuf, which omits them here, so it would always see a difference.
			return []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: ComponentLabels(in)}, Spec: spec,
			}}, nil
		}
	}
	return nil, nil
}
