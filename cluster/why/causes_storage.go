// SPDX-License-Identifier: Apache-2.0

package why

import (
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const defaultClass = "storageclass.kubernetes.io/is-default-class"

func storageCauses() []Cause {
	return []Cause{
		{ID: "claim-no-class", Code: "OCA-5201", Layer: Storage, Title: "No storage class provides the volume of a claim", What: "Claim ${claim} names no storage class that exists",
			Why:  "the class ${class} does not exist, or no class is the default",
			Next: "kubectl get storageclass; set storageClassName in the component's block, or make a class the default",
			When: (*facts).claimsWithoutClass},
		{ID: "claim-lost", Code: "OCA-5202", Layer: Storage, Title: "The volume of a claim is gone", What: "The volume of claim ${claim} is gone",
			Why:  "the PersistentVolume was deleted",
			Next: "delete claim ${claim} and its pod, which gets a new, empty volume; a backup has databases, but no images: ocadm explain OCA-5202",
			When: func(f *facts) []Hit {
				return f.claimsWhere(func(c *corev1.PersistentVolumeClaim) string {
					if c.Status.Phase == corev1.ClaimLost {
						return "its phase is Lost; it was bound to " + c.Spec.VolumeName
					}
					return ""
				})
			}},
		{ID: "volume-node-gone", Code: "OCA-5202", Layer: Storage, Title: "A local volume is on a node that is gone",
			What: "The volume of claim ${claim} is on a node that is gone",
			Why:  "a local volume cannot be used elsewhere",
			Next: "bring node ${node} back; or give up its data, on a control-plane node: ocadm node remove ${node} --delete-volumes",
			When: (*facts).volumesWithoutNode},
		{ID: "provisioning-failed", Code: "OCA-5203", Layer: Storage, Title: "The storage class cannot create a volume", What: "The volume of claim ${claim} cannot be created",
			Why: "the provisioner of its storage class refuses it", Next: "kubectl -n ${namespace} describe pvc ${claim}; kubectl get pods -A | grep -i provision",
			Says: regexp.MustCompile(`ProvisioningFailed: `), In: Event},
		{ID: "claim-pending", Code: "OCA-5203", Layer: Symptom, Title: "A claim has no volume", What: "Claim ${claim} has no volume yet", Why: "nothing has created one",
			Next: "kubectl -n ${namespace} describe pvc ${claim}; kubectl -n local-path-storage get pods",
			When: func(f *facts) []Hit {
				return f.claimsWhere(func(c *corev1.PersistentVolumeClaim) string {
					if c.Status.Phase == corev1.ClaimPending && f.Time.Sub(c.CreationTimestamp.Time) > eventAge/3 && f.wanted(c) {
						return "it has been Pending since " + c.CreationTimestamp.UTC().Format(time.RFC3339)
					}
					return ""
				})
			}},
		{ID: "volume-directory-gone", Code: "OCA-5207", Layer: Storage, Title: "The directory of a local volume is missing",
			What: "A volume of pod ${pod} has no directory ${path} on ${node}",
			Why:  "its disk is not mounted, the directory was removed, or the machine is new and has the name of the one that had the volume",
			Next: "on ${node}: mount the disk, or delete the volume: ocadm explain OCA-5207", Says: volumeDirectory, In: Event},
		{ID: "mount-failed", Code: "OCA-5204", Layer: Storage, Title: "A volume cannot be mounted", What: "A volume of pod ${pod} cannot be mounted",
			Why:  "the node cannot attach or mount it",
			Next: "kubectl -n ${namespace} describe pod ${pod}; on ${node}: journalctl -u kubelet -n 50", Says: regexp.MustCompile(`(?:FailedMount|FailedAttachVolume): `),
			In: Event,
			Of: func(_ *facts, t Text) bool {
				return !missingObject.MatchString(t.Line) && !missingKey.MatchString(t.Line) && !hostPath.MatchString(t.Line) && !volumeDirectory.MatchString(t.Line)
			}},
		{ID: "volume-read-only", Code: "OCA-5205", Layer: Storage, Title: "A file system is read-only", What: "${pod} cannot write: the file system is read-only",
			Why: "the kernel mounted it read-only after a disk error", Next: "on ${node}: dmesg | grep -iE 'i/o error|remount'; findmnt -o TARGET,OPTIONS",
			Says: regexp.MustCompile(`(?i)read-only file ?system`), In: LogLine | Event | Journal},
		{ID: "no-space", Code: "OCA-5206", Layer: Storage, Title: "A program has no space left on its disk", Why: "the node's disk or the volume is full",
			Next: "on ${node}: df -h; df -i; du -xh --max-depth=2 /opt /var | sort -h | tail",
			Says: regexp.MustCompile(`(?i)no space left on device|disk quota exceeded|Errcode: 28`), In: LogLine | Event | State | Journal | Message},
		{ID: "volume-permission", Code: "OCA-5205", Layer: Container, Title: "A program may not write to its volume",
			Why:  "the directory of the volume belongs to another user, or SELinux forbids it",
			Next: "kubectl -n ${namespace} describe pod ${pod}; on ${node}: ls -lZ the directory of the volume; ausearch -m avc -ts recent",
			Says: regexp.MustCompile(`(?i)(open|mkdir|create|chown) [^ ]*/(data|opt|var/lib)[^ ]*: permission denied|Can't create/write to file .*Errcode: 13`),
			In:   LogLine},
	}
}

var (
	missingObject = regexp.MustCompile(`(?P<kind>secret|configmap) "(?P<object>[^"]+)" not found`)
	missingKey    = regexp.MustCompile(`(?:couldn't find key|references non-existent (?:secret|config) key:) (?P<key>[^\s,"]+)`)
	// volumeDirectory matches the kubelet's error for a local volume: GetFileType in k8s.io/kubernetes/pkg/volume/util/hostutil.
	volumeDirectory = regexp.MustCompile(`FailedMount: .*: path "(?P<path>[^"]+)" does not exist`)
	hostPath        = regexp.MustCompile(`hostPath type check failed: (?P<path>[^\s",]+)`)
)

func (f *facts) claimsWhere(is func(*corev1.PersistentVolumeClaim) string) []Hit {
	return where(f.Claims, func(c *corev1.PersistentVolumeClaim) Subject { return claimSubject(c.Namespace, c.Name) }, is)
}

// wanted reports whether an unhealthy pod waits for a claim: some classes bind only when a pod uses it.
func (f *facts) wanted(c *corev1.PersistentVolumeClaim) bool {
	return first(f.Pods, func(p *corev1.Pod) bool {
		return p.Namespace == c.Namespace && f.unwell(p) && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == c.Name
		})
	}) != nil
}

func (f *facts) claimsWithoutClass() []Hit {
	known, byDefault := map[string]bool{}, false
	for _, c := range f.Classes {
		known[c.Name] = true
		byDefault = byDefault || c.Annotations[defaultClass] == "true"
	}
	var out []Hit
	for _, h := range f.claimsWhere(func(c *corev1.PersistentVolumeClaim) string {
		switch name := c.Spec.StorageClassName; {
		case c.Status.Phase != corev1.ClaimPending || c.Spec.VolumeName != "":
		case name == nil && !byDefault:
			return "it names no storage class, and none is the default"
		case name != nil && *name != "" && !known[*name]:
			return "it names the storage class " + *name
		}
		return ""
	}) {
		for _, c := range f.Claims {
			if claimSubject(c.Namespace, c.Name) == h.On && c.Spec.StorageClassName != nil {
				h.Values = map[string]string{"class": *c.Spec.StorageClassName}
			}
		}
		out = append(out, h)
	}
	return out
}

// volumesWithoutNode finds claims whose volume is bound to a node that is not in the cluster. A volume that its claim has left remains for good, because
// nothing can delete its directory, and a new claim of that name has another one.
func (f *facts) volumesWithoutNode() []Hit {
	if len(f.Nodes) == 0 {
		return nil
	}
	var out []Hit
	for _, v := range f.Volumes {
		left := v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed
		if left || v.Spec.ClaimRef == nil || v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
			continue
		}
		for _, term := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				if e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 && f.nodeByHostname(e.Values[0]) == nil {
					out = append(out, Hit{On: claimSubject(v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name), Values: map[string]string{"node": e.Values[0]},
						Evidence: []string{"volume " + v.Name + " can be used on " + e.Values[0] + " alone"}})
				}
			}
		}
	}
	return out
}

func (f *facts) nodeByHostname(name string) *corev1.Node {
	return first(f.Nodes, func(n *corev1.Node) bool { return n.Name == name || n.Labels[corev1.LabelHostname] == name })
}
