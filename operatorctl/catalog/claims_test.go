// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
)

// written finds the directory to which a component with a claim writes in the rendered objects.
var written = map[string]func(component.Objects) string{
	"backup":           inArgument("--dir="),
	"baremetal-agent":  inOption("baremetal-agent.conf", "baremetals_path"),
	"etcd":             inArgument("--data-dir="),
	"glance":           inOption("glance.conf", "filesystem_store_datadir"),
	"influxdb":         inFile("influxdb.conf", regexp.MustCompile(`(?ms)^\[data\].*?^\s*dir = "(\S+)"$`)),
	"victoria-metrics": inArgument("--storageDataPath="),
}

// Each claim is mounted where its component writes. Otherwise the data are on the node, and neither the storage class nor the reclaim policy applies.
func TestClaimsHoldTheData(t *testing.T) {
	cluster := cloud(t, everything, "ee", "FullStack")
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	for name, r := range cluster.Components {
		if r.Storage == nil {
			continue
		}
		where, known := written[name]
		if !known {
			t.Errorf("%s has a claim, and this test does not know where it writes", name)
			continue
		}
		o, err := render.Component(r, in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		pod := podOf(o.Workload)
		dir := where(o)
		at := claimPath(*pod)
		if dir == "" || at == "" || dir != at && !strings.HasPrefix(dir, at+"/") {
			t.Errorf("%s writes to %q, and its claim is mounted at %q", name, dir, at)
		}
		// A mount that hides a part of the claim would exclude that part from it.
		for _, m := range pod.Containers[0].VolumeMounts {
			if m.MountPath != at && strings.HasPrefix(dir+"/", m.MountPath+"/") && strings.HasPrefix(m.MountPath, at+"/") {
				t.Errorf("%s: %s is mounted over its claim at %s", name, m.MountPath, at)
			}
		}
		// A mount below a shared one propagates to the node and stays there.
		for _, m := range pod.Containers[0].VolumeMounts {
			if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional && strings.HasPrefix(at, m.MountPath+"/") {
				t.Errorf("%s: its claim at %s lies below %s, which is shared with the node", name, at, m.MountPath)
			}
		}
	}
}

// podOf returns the pod spec of any kind of workload.
func podOf(o client.Object) *corev1.PodSpec {
	if w, ok := o.(*batchv1.CronJob); ok {
		return &w.Spec.JobTemplate.Spec.Template.Spec
	}
	return podSpec(o)
}

// claimPath returns the mount path of the claim in the main container: a volume of the pod, or a claim template of a StatefulSet.
func claimPath(pod corev1.PodSpec) string {
	for _, m := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || pod.Volumes[i].PersistentVolumeClaim != nil {
			return m.MountPath
		}
	}
	return ""
}

func inArgument(flag string) func(component.Objects) string {
	return func(o component.Objects) string {
		c := podOf(o.Workload).Containers[0]
		for _, a := range slices.Concat(c.Command, c.Args) {
			if dir, ok := strings.CutPrefix(a, flag); ok {
				return dir
			}
		}
		return ""
	}
}

func inOption(file, option string) func(component.Objects) string {
	return func(o component.Objects) string {
		var options map[string]any
		for _, s := range o.Secrets {
			if err := yaml.Unmarshal(s.(*corev1.Secret).Data[file], &options); err != nil {
				return err.Error()
			}
		}
		dir, _ := options[option].(string)
		return dir
	}
}

func inFile(file string, find *regexp.Regexp) func(component.Objects) string {
	return func(o component.Objects) string {
		for _, cm := range o.ConfigMaps {
			for _, text := range cm.(*corev1.ConfigMap).Data {
				if m := find.FindStringSubmatch(text); m != nil {
					return m[1]
				}
			}
		}
		return fmt.Sprintf("no directory in %s", file)
	}
}
