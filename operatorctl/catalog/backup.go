// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// backup makes a backup of the cloud every night. It runs this program, not one of the cloud's; the program reads further settings from the spec.
func backup() component.Component {
	return component.Component{
		Name: "backup", SpecKey: "backup", Summary: "backs up the cloud every night and proves each backup",
		OffByDefault: true,
		Image:        component.Image{Reference: component.OwnImage},
		Workload: component.Workload{
			Kind: component.CronJob, Schedule: "0 2 * * *", NoCerts: true, NodeRole: "any", CPU: "100m", Memory: "128Mi",
			Command: []string{}, Args: []string{"cluster", "backup", "run", "--dir=" + backupDir, "--etcd-snapshots=" + EtcdSnapshots, "--node=$(OCADM_NODE)"},
			Env: backupEnv, ServiceAccount: "onecloud-backup",
			Mounts: []component.Mount{
				{Name: backupVolume, Path: backupDir, Storage: true},
				// Empty on a node without etcd, or in a cluster that ocadm did not create.
				{Name: "etcd-snapshots", Path: EtcdSnapshots, HostPath: EtcdSnapshots, HostPathType: corev1.HostPathDirectoryOrCreate, ReadOnly: true},
			},
			Security: backupRights(),
		},
		Storage: &component.Storage{Size: "20Gi", Backups: true},
		Adapt:   adaptBackup,
	}
}

const backupVolume, backupDir = "dumps", "/backup"

// EtcdSnapshots is the directory of the etcd snapshots on ocadm's control-plane nodes.
const EtcdSnapshots = "/var/lib/ocadm/etcd"

// backupEnv returns variables with the cloud, which the program reads, and the node, which its arguments name.
func backupEnv(in component.Inputs) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "OCADM_CLOUD_NAME", Value: in.Cluster.Name}, {Name: "OCADM_CLOUD_NAMESPACE", Value: in.Cluster.Namespace},
		{Name: "OCADM_NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}}},
	}
}

// nearEtcd prefers nodes with snapshots of etcd. A volume may tie the pod to another node, and a user's node affinity wins.
func nearEtcd(pod *corev1.PodSpec) {
	pod.Affinity = cmp.Or(pod.Affinity, &corev1.Affinity{})
	if pod.Affinity.NodeAffinity != nil {
		return
	}
	const weight = 100
	role := corev1.NodeSelectorRequirement{Key: v1alpha1.LabelControlPlane, Operator: corev1.NodeSelectorOpExists}
	pod.Affinity.NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		{Weight: weight, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{role}}},
	}}
}

// placed passes the program a readable name of its volume's location.
func placed(c *corev1.Container, place string) {
	c.Args = append(c.Args, "--place="+place)
}

// backupRights runs the backup as root, which owns the directories of nodes and of most provisioners. It needs no further permission.
func backupRights() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsUser: new(int64(0)), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// adaptBackup stores the backups where the spec says: in S3 or a directory of the node. An existing volume stays.
func adaptBackup(o *component.Objects, in component.Inputs) error {
	s := in.Cluster.Spec.Backup
	job, is := o.Workload.(*batchv1.CronJob)
	if !is {
		return nil
	}
	pod := &job.Spec.JobTemplate.Spec.Template.Spec
	nearEtcd(pod)
	c := &pod.Containers[0]
	if s.S3 == nil && s.HostPath == "" {
		for _, v := range pod.Volumes {
			if v.Name == backupVolume && v.PersistentVolumeClaim != nil {
				placed(c, "claim "+v.PersistentVolumeClaim.ClaimName)
			}
		}
		return nil
	}
	o.PVCs = nil
	for i := range pod.Volumes {
		if pod.Volumes[i].Name != backupVolume {
			continue
		}
		if s.S3 == nil {
			pod.Volumes[i].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: s.HostPath, Type: new(corev1.HostPathDirectoryOrCreate)}}
			placed(c, "$(OCADM_NODE):"+s.HostPath)
			return nil
		}
	}
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == backupVolume })
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == backupVolume })
	return nil
}
