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
	// migrationStart is for services that change their tables before they listen, as most do that have no init container for it. Killed
	// in the middle, they would begin again, for ever. Ten minutes are too short for a statement that copies a table of some ten million
	// rows. A program that hangs is restarted late in turn, but one that fails ends by itself.
	migrationStart = 3600
)

// startSeconds is how long a component may take to start before it is killed.
func startSeconds(c component.Component) int32 {
	if c.Database != nil || c.Config != nil && c.Config.AccountOf != "" {
		return max(migrationStart, c.Workload.StartSeconds)
	}
	return max(usualStart, c.Workload.StartSeconds)
}

// progressDeadline is when the controller of a Deployment gives up on a rollout: not before its containers do. nil is Kubernetes' default.
func progressDeadline(c component.Component) *int32 {
	if s := startSeconds(c); s > usualStart {
		return new(s + usualStart)
	}
	return nil
}

// What a container requests that does not say. At rest the services of a cloud with 24 of them used 34 to 94 MiB, except for those that say
// more. They use next to no CPU then; more would keep a small cloud from fitting on one machine with two cores.
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

// requests of quantities that stand in the code.
func requests(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// choose puts what a block of the spec says over requests, and in the place of limits.
func choose(of *corev1.ResourceRequirements, requests, limits *v1alpha1.ResourceList) {
	override(of.Requests, requests)
	if limits != nil {
		of.Limits = corev1.ResourceList{}
		override(of.Limits, limits)
	}
}

func override(list corev1.ResourceList, by *v1alpha1.ResourceList) {
	if by != nil && by.CPU != nil {
		list[corev1.ResourceCPU] = *by.CPU
	}
	if by != nil && by.Memory != nil {
		list[corev1.ResourceMemory] = *by.Memory
	}
}
