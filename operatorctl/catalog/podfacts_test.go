// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/operatorctl/component"
)

func podSpec(o client.Object) *corev1.PodSpec {
	switch w := o.(type) {
	case *appsv1.Deployment:
		return &w.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &w.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &w.Spec.Template.Spec
	}
	return nil
}

func podFacts(r component.Resolved, pod *corev1.PodSpec, set func(k, v string)) {
	set("role", strings.Join(roles(pod), ", "))
	var host []string
	for word, on := range map[string]bool{"network": pod.HostNetwork, "pid": pod.HostPID, "ipc": pod.HostIPC} {
		if on {
			host = append(host, word)
		}
	}
	order := []string{"network", "pid", "ipc"}
	slices.SortFunc(host, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	set("host", strings.Join(host, " "))
	set("priority", pod.PriorityClassName)
	set("serviceAccount", pod.ServiceAccountName)
	if g := pod.TerminationGracePeriodSeconds; g != nil {
		set("grace", fmt.Sprint(*g))
	}
}

func roles(pod *corev1.PodSpec) []string {
	var out []string
	add := func(label string) {
		if name, ok := strings.CutPrefix(label, "onecloud.yunion.io/"); ok {
			out = append(out, name)
		}
	}
	for label := range pod.NodeSelector {
		add(label)
	}
	if a := pod.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				add(e.Key)
			}
		}
	}
	if len(out) == 0 {
		return []string{"any"}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// containers sets the facts of all containers and returns their commands as one text.
func containers(o component.Objects, r component.Resolved, word, initWord string, set func(k, v string)) string {
	pod := podSpec(o.Workload)
	if pod == nil {
		return ""
	}
	volumes := map[string]string{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = source(r, v)
	}
	runs := ""
	for _, c := range pod.Containers {
		runs += containerFacts(c, r, word+" "+c.Name, volumes, set) + "\n"
	}
	for _, c := range pod.InitContainers {
		if initWord == "" {
			continue
		}
		if i := shortImage(c.Image); i != shortImage(r.FullImage) {
			set(initWord+" "+c.Name+" image", i)
		}
		set(initWord+" "+c.Name, strings.Join(slices.Concat(c.Command, c.Args), " "))
		for _, e := range c.Env {
			set(initWord+" "+c.Name+" env "+e.Name, envText(e))
		}
	}
	return runs
}

func containerFacts(c corev1.Container, r component.Resolved, at string, volumes map[string]string, set func(k, v string)) string {
	if i := shortImage(c.Image); i != shortImage(r.FullImage) {
		set(at+" image", i)
	}
	runs := strings.Join(slices.Concat(c.Command, c.Args), " ")
	set(at, runs)
	set(at+" in", c.WorkingDir)
	var ports []string
	for _, p := range c.Ports {
		ports = append(ports, fmt.Sprintf("%s %d", p.Name, p.ContainerPort))
	}
	set(at+" ports", strings.Join(ports, ", "))
	if s := c.SecurityContext; s != nil {
		if s.Privileged != nil && *s.Privileged {
			set(at+" privileged", "true")
		}
		if s.Capabilities != nil {
			var caps []string
			for _, x := range s.Capabilities.Add {
				caps = append(caps, string(x))
			}
			set(at+" capabilities", strings.Join(caps, ", "))
		}
	}
	set(at+" ready", probeText(c.ReadinessProbe))
	set(at+" alive", probeText(c.LivenessProbe))
	set(at+" started", probeText(c.StartupProbe))
	for _, e := range c.Env {
		set(at+" env "+e.Name, envText(e))
	}
	for _, m := range c.VolumeMounts {
		text := volumes[m.Name]
		if m.ReadOnly {
			text += " ro"
		}
		if m.MountPropagation != nil {
			text += " " + string(*m.MountPropagation)
		}
		set(at+" mount "+m.MountPath, text)
	}
	return runs
}

func probeText(p *corev1.Probe) string {
	switch {
	case p == nil:
		return ""
	case p.HTTPGet != nil:
		return fmt.Sprintf("GET %s %s%s", p.HTTPGet.Scheme, p.HTTPGet.Port.String(), p.HTTPGet.Path)
	case p.TCPSocket != nil:
		return "port " + p.TCPSocket.Port.String()
	}
	return "exec"
}

func envText(e corev1.EnvVar) string {
	switch from := e.ValueFrom; {
	case from == nil:
		return e.Value
	case from.FieldRef != nil:
		return "fieldRef " + from.FieldRef.FieldPath
	case from.SecretKeyRef != nil:
		return "secret " + from.SecretKeyRef.Name
	}
	return "?"
}

func source(r component.Resolved, v corev1.Volume) string {
	switch {
	case v.HostPath != nil:
		text := "node " + v.HostPath.Path
		if v.HostPath.Type != nil {
			text += " " + string(*v.HostPath.Type)
		}
		return text
	case v.PersistentVolumeClaim != nil:
		return "claim"
	case v.EmptyDir != nil:
		return "empty"
	case v.Name == "config":
		owner := r.Name
		if r.Config.Of != "" {
			owner = r.Config.Of
		}
		return "configuration of " + owner
	case v.Secret != nil:
		return "Secret " + v.Secret.SecretName
	}
	return "?"
}
