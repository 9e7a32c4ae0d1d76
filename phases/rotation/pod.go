// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/nodepod"
)

const (
	// recordDir is the mount point of the Secret in the pod on a node.
	recordDir = "/rotation"
	podName   = "ocadm-ca-rotation"
	// podDeadline exceeds the time that all steps of a node need.
	podDeadline = 20 * time.Minute
)

// pod returns the pod that applies a stage on a node: it writes the node's files and restarts its kubelet. A worker gets no key.
func pod(image string, m member, stage Stage, id string) *corev1.Pod {
	sum := sha256.Sum256([]byte(m.name))
	source := &corev1.SecretVolumeSource{SecretName: secretName, DefaultMode: new(int32(0o400))}
	if !m.controlPlane {
		keys := []string{recordKey, dataKey(oldPrefix, kubernetes.ClusterAuthority), dataKey(newPrefix, kubernetes.ClusterAuthority)}
		source.Items = lists.Map(keys, func(key string) corev1.KeyToPath { return corev1.KeyToPath{Key: key, Path: key} })
	}
	p := nodepod.New(podName+"-"+string(stage)+"-"+hex.EncodeToString(sum[:4]), image, m.name, podDeadline,
		"certs", "take-authorities", string(stage), "--from", recordDir, "--report", "/dev/termination-log")
	p.Labels["app"], p.Labels["ocadm.yunion.io/rotation"] = podName, id
	p.Spec.Volumes = []corev1.Volume{{Name: "rotation", VolumeSource: corev1.VolumeSource{Secret: source}}}
	c := &p.Spec.Containers[0]
	c.Name, c.VolumeMounts = "node", []corev1.VolumeMount{{Name: "rotation", MountPath: recordDir, ReadOnly: true}}
	return p
}

// runPod runs the pod to its end and returns its report. It replaces a pod left by a killed command, which may have an older record.
func runPod(ctx context.Context, c client.Client, r workflow.Reporter, p *corev1.Pod) ([]string, error) {
	waiting := func(why string) { r.Waiting("node "+p.Spec.NodeName, why) }
	if err := nodepod.Delete(ctx, c, p.Name, waiting); err != nil {
		return nil, err
	}
	err := answered(ctx, func(ctx context.Context) error {
		err := c.Create(ctx, p.DeepCopy(), client.FieldOwner(kube.FieldManager))
		if apierrors.IsAlreadyExists(err) {
			return nil // an earlier request created it, whose answer was lost
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("creating pod %s: %w", p.Name, err)
	}
	said, err := nodepod.Await(ctx, c, p.Name, finding.New("OCA-4418", "Node "+p.Spec.NodeName+" has not applied the certificate authorities", "",
		"correct the problem in the evidence, then run the same command again; kubectl -n kube-system logs "+p.Name+" shows details"), waiting)
	if err != nil {
		return nil, err
	}
	t, err := parseTaken(said)
	if err != nil {
		return nil, err
	}
	return t.Left, nodepod.Delete(ctx, c, p.Name, waiting)
}
