// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"yunion.io/x/ocadm/test/env"
)

// TestExampleOfTheAPI runs the commands of docs/api.md on the installer's Deployment, to check the names in them.
func TestExampleOfTheAPI(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.deployment()
	examples := filepath.Join("..", "..", "docs", "examples")
	for _, args := range [][]string{
		{"patch", "deployment", "onecloud-operator", "--patch-file", filepath.Join(examples, "operator-api.yaml")},
		{"expose", "deployment", "onecloud-operator", "--name", "operator-api", "--port", "443", "--target-port", "8443"},
		{"apply", "--filename", filepath.Join(examples, "operator-api-network.yaml")},
		{"apply", "--filename", filepath.Join(examples, "operator-api-access.yaml")},
		{"create", "token", "dashboard"},
	} {
		if out, err := e.Cluster.Kubectl(t.Context(), append([]string{"--namespace", namespace}, args...)...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Cleanup(func() {
		for _, kind := range []string{"service", "networkpolicy"} {
			_, _ = e.Cluster.Kubectl(e.Context(), "--namespace", namespace, "delete", kind, "operator-api")
		}
		_, _ = e.Cluster.Kubectl(e.Context(), "delete", "--filename", filepath.Join(examples, "operator-api-access.yaml"))
	})
	d, s, p := &appsv1.Deployment{}, &corev1.Service{}, &networkingv1.NetworkPolicy{}
	e.Get(d, "onecloud-operator")
	e.Get(s, "operator-api")
	e.Get(p, "operator-api")
	pod := d.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("the patch has added a container: %+v", pod.Containers)
	}
	main := pod.Containers[0]
	ports := map[string]int32{}
	for _, port := range main.Ports {
		ports[port.Name] = port.ContainerPort
	}
	if ports["api"] != 8443 || !slices.ContainsFunc(main.Env, func(v corev1.EnvVar) bool { return v.Name == "OPERATOR_IMAGE" }) || len(main.VolumeMounts) != 1 ||
		pod.Volumes[0].Secret.SecretName != "operator-api" {
		t.Errorf("%+v", pod)
	}
	for key, value := range s.Spec.Selector {
		if d.Spec.Template.Labels[key] != value {
			t.Errorf("the Service does not select the operator: %v", s.Spec.Selector)
		}
	}
	for key, value := range p.Spec.PodSelector.MatchLabels {
		if d.Spec.Template.Labels[key] != value {
			t.Errorf("the policy does not select the operator: %v", p.Spec.PodSelector)
		}
	}
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			if ports[port.Port.StrVal] == 0 {
				t.Errorf("the operator has no port %s", port.Port)
			}
		}
	}
}
