// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/require"
)

// random matches names with parts that differ from one undisturbed run to the next.
var random = regexp.MustCompile(`^(file|directory):/var/lib/(containerd|kubelet/(pods|plugins|cpu_manager|memory_manager|pki|\.[0-9])|etcd/member|etcd/ocadm-before|cni|ocadm/(etcd|journal|backup|depot)|` +
	`dpkg|apt|private|systemd)|^(file|directory):/etc/kubernetes/tmp/kubeadm-kubelet-config-|^(run:/run/netns|link:veth|mount:/(run|var/lib/kubelet|var/lib/containerd))|^file:.*(\.pyc|ld\.so\.cache)|^process:(pause|ocadm|local-path|kube-)`)

// podSubnet is a node's part of the pod network. A deleted node that returns gets another one.
var podSubnet = regexp.MustCompile(`10\.40\.\d+\.`)

// content lists files with the same content after every run with the same settings. kubeadm lists etcd's members in the order of their random IDs. A
// moved machine keeps its old address in its certificates, for nodes that follow later, and the depot renews one with these names.
const content = `etcd=/etc/kubernetes/manifests/etcd.yaml depot=/etc/kubernetes/manifests/ocadm-depot.yaml
[ ! -e $depot ] || echo "content:$depot $(grep -vE '^ *- [0-9.]+$' $depot | sha256sum | cut -c 1-64)"
[ ! -e $etcd ] || echo "content:$etcd $(sed 's/- --initial-cluster=//' $etcd | tr -d ' ' | tr , '\n' | sort | sha256sum | cut -c 1-64)"
sha256sum $(ls /etc/kubernetes/manifests/*.yaml 2>/dev/null | grep -vxe $etcd -e $depot) /etc/systemd/system/*.service /etc/systemd/system/*/*.conf /etc/containerd/config.toml ` +
	`/etc/containerd/certs.d/*/hosts.toml /etc/modules-load.d/* /etc/sysctl.d/* /etc/yunion/*.conf /var/lib/kubelet/config.yaml ` +
	`/var/lib/kubelet/kubeadm-flags.env /etc/hosts 2>/dev/null | awk '{print "content:" $2, $1}'
for d in /etc/kubernetes /etc/kubernetes/pki; do ls $d | sed "s|^|named:$d/|"; done 2>/dev/null
systemctl list-units --no-legend --no-pager --plain --state=active --type=service | ` +
	`awk '/kube|containerd|ocadm|yunion/ {print "active:" $1}'; true`

// machineState returns the state of a machine without random parts.
func (s *suite) machineState(t *testing.T, node int) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, value := range s.look(t, node) {
		if random.MatchString(name) {
			continue
		}
		if strings.HasPrefix(name, "file:") {
			value, _, _ = strings.Cut(value, ":") // the mode
		}
		if strings.HasPrefix(name, "route:") {
			name = podSubnet.ReplaceAllString(name, "10.40.N.")
		}
		out[name] = value
	}
	text, err := s.quietly(t, node, "sh", "-c", content)
	require.NoError(t, err)
	maps.Copy(out, fields(text))
	return out
}

// state returns the state of a machine and its cluster without random parts.
func (s *suite) state(t *testing.T, node int) map[string]string {
	t.Helper()
	out := s.machineState(t, node)
	maps.Copy(out, s.clusterState(t))
	return out
}

// settleTime is how long the programs of a node may take to write and start everything.
const settleTime = 15 * time.Minute

// settled returns a state as soon as it is stable and good.
func settled(t *testing.T, state func() map[string]string, good func() error) (last map[string]string) {
	t.Helper()
	eventually(t, "the node to settle", func() error {
		before := last
		last = state()
		if d := differences(before, last); len(d) > 0 {
			return fmt.Errorf("still changing: %s", strings.Join(d, "; "))
		}
		return good()
	})
	return last
}

// becomes waits until a state is as wanted, and good.
func becomes(t *testing.T, what string, want map[string]string, state func() map[string]string, good func() error) {
	t.Helper()
	eventually(t, what, func() error {
		if d := differences(want, state()); len(d) > 0 {
			return fmt.Errorf("%d differences: %s", len(d), strings.Join(d, "; "))
		}
		return good()
	})
}

func always() error { return nil }

func eventually(t *testing.T, what string, good func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	err := wait.Until(ctx, what, 3*time.Second, func(context.Context) (bool, string, error) {
		err := good()
		return err == nil, "", err
	}, func(string) {})
	require.NoError(t, err)
}

// kinds are the compared objects, with clouds in a cluster that has that kind.
const kinds = "nodes,namespaces,crd,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,configmaps,secrets,services,storageclasses," +
	"deployments,daemonsets,statefulsets,cronjobs,persistentvolumeclaims,validatingadmissionpolicies,priorityclasses,networkpolicies"

// fleeting matches objects that come and go by themselves, or have random names.
var fleeting = regexp.MustCompile(`^(Secret/kube-system/(bootstrap-token|kubeadm-certs)|Role(Binding)?/kube-system/kubeadm:kubeadm-certs|Secret/.*-release-|ConfigMap/.*(kube-root-ca|ocadm-etcd|-release-|extension-apiserver))`)

// clusterState returns the cluster's objects: their names and desired states.
func (s *suite) clusterState(t *testing.T) map[string]string {
	t.Helper()
	get := func(args ...string) string {
		text, _, err := s.Lab.Node(1).Exec(t.Context(), append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get"}, args...)...)
		require.NoError(t, err)
		return text
	}
	compared := kinds
	if strings.Contains(get("crd", "-o", "name"), "onecloudclusters") {
		compared += ",onecloudclusters"
	}
	text := get(compared, "-A", "-o", "json")
	var list struct{ Items []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	out := map[string]string{}
	for _, o := range list.Items {
		meta, _ := o["metadata"].(map[string]any)
		namespace, _ := meta["namespace"].(string)
		name := fmt.Sprintf("%s/%s/%s", o["kind"], namespace, meta["name"])
		if !fleeting.MatchString(name) {
			out[name] = wanted(o, meta)
		}
	}
	return out
}

// wanted returns the part of an object that is the same in every run.
func wanted(o, meta map[string]any) string {
	if spec, ok := o["spec"].(map[string]any); ok {
		for _, field := range []string{"clusterIP", "clusterIPs", "volumeName", "podCIDR", "podCIDRs", "healthCheckNodePort"} {
			delete(spec, field)
		}
		// A move restarts kube-proxy by an annotation with the address, and so does its reversal.
		unstructured.RemoveNestedField(spec, "template", "metadata", "annotations", "ocadm.yunion.io/api-server")
		if annotations, found, err := unstructured.NestedMap(spec, "template", "metadata", "annotations"); found && err == nil && len(annotations) == 0 {
			unstructured.RemoveNestedField(spec, "template", "metadata", "annotations")
		}
		if taints, ok := spec["taints"].([]any); ok { // Kubernetes sets those of a node that is not ready yet, and removes them
			taints = slices.DeleteFunc(taints, func(one any) bool {
				taint, _ := one.(map[string]any)
				key, _ := taint["key"].(string)
				return strings.HasPrefix(key, "node.kubernetes.io/")
			})
			if spec["taints"] = taints; len(taints) == 0 {
				delete(spec, "taints")
			}
		}
	}
	part := map[string]any{"labels": meta["labels"], "spec": o["spec"], "rules": o["rules"], "roleRef": o["roleRef"], "subjects": o["subjects"]}
	if data, ok := o["data"].(map[string]any); ok { // secrets and their digests are random
		keys := slices.Sorted(maps.Keys(data))
		// A killed init may leave an unused token, which expires after a day. cluster-info has a signature for each token.
		part["data"] = slices.DeleteFunc(keys, func(k string) bool { return strings.HasPrefix(k, "jws-kubeconfig-") })
	}
	raw, err := json.Marshal(part)
	if err != nil {
		return err.Error()
	}
	return hashes.ReplaceAllString(string(raw), "HASH")
}

// hashes matches random content: hashes of certificates and passwords.
var hashes = regexp.MustCompile(`[0-9a-f]{16,}|"caBundle":"[^"]*"|"timestamp":"[^"]*"|nodePort":[0-9]+`)

// differences returns the differences between two states, one line each.
func differences(want, got map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if now, ok := got[name]; !ok {
			out = append(out, name+" is missing")
		} else if now != want[name] {
			out = append(out, fmt.Sprintf("%s: %s", name, firstDifference(want[name], now)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			out = append(out, fmt.Sprintf("%s is new: %.80s", name, got[name]))
		}
	}
	return out
}

func firstDifference(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	from := max(0, i-40)
	return fmt.Sprintf("…%.120s… was …%.120s…", b[from:], a[from:])
}
