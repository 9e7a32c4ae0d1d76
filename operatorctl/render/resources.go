// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// How long a container may take to start, in seconds.
const (
	usualStart = 600
	// migrationStart is for services that change their tables before they listen, as most do that have no init container for it. If killed in between,
	// they would start over again and again. Ten minutes are too short for a statement that copies a table of some ten million rows. In return, a
	// program that hangs is restarted late; one that fails terminates by itself.
	migrationStart = 3600
)

// startSeconds returns how long a component may take to start before it is killed.
func startSeconds(c component.Component) int32 {
	if c.Database != nil || c.Config != nil && c.Config.AccountOf != "" {
		return max(migrationStart, c.Workload.StartSeconds)
	}
	return max(usualStart, c.Workload.StartSeconds)
}

// progressDeadline returns when the controller of a Deployment gives up on a rollout, which is never before its containers do. nil is Kubernetes'
// default.
func progressDeadline(c component.Component) *int32 {
	if s := startSeconds(c); s > usualStart {
		return new(s + usualStart)
	}
	return nil
}

// The default requests of a container. At rest, the services of a cloud with 24 of them used 34 to 94 MiB, except those with requests of their own, and
// almost no CPU. Higher defaults would keep a small cloud from fitting on one machine with two cores.
const (
	usualCPU, usualMemory   = "10m", "64Mi"
	helperCPU, helperMemory = "1m", "8Mi" // a shell that waits
)

func resources(in component.Inputs) (out corev1.ResourceRequirements) {
	if in.Cluster.Spec != nil && in.Cluster.Spec.DisableResourceManagement {
		return out
	}
	w, b := in.Self.Workload, in.Self.Block
	out.Requests = requests(cmp.Or(w.CPU, usualCPU), cmp.Or(w.Memory, usualMemory))
	choose(&out, b.Requests, b.Limits)
	return out
}

// requests parses constant quantities.
func requests(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// choose merges the requests of a block of the spec into those of the component, and replaces the limits. A limit lowers a request that is not the
// block's: the API server refuses a request above the limit.
func choose(of *corev1.ResourceRequirements, requests, limits *v1alpha1.ResourceList) {
	if limits != nil {
		of.Limits = corev1.ResourceList{}
		override(of.Limits, limits)
		for name, limit := range of.Limits {
			if request := of.Requests[name]; request.Cmp(limit) > 0 {
				of.Requests[name] = limit
			}
		}
	}
	override(of.Requests, requests)
}

func override(list corev1.ResourceList, by *v1alpha1.ResourceList) {
	if by != nil && by.CPU != nil {
		list[corev1.ResourceCPU] = *by.CPU
	}
	if by != nil && by.Memory != nil {
		list[corev1.ResourceMemory] = *by.Memory
	}
}
