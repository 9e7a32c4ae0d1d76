// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

const (
	confDir  = "/etc/yunion"
	certsDir = "/etc/yunion/pki"
	etcdDir  = "/etc/etcdtls/operator/etcd-tls"
)

// drainSeconds is how long a terminating pod still serves: until no node sends it new requests, and earlier ones are answered. On SIGTERM the services
// exit immediately and drop unanswered requests: docs/decisions/0053.
const drainSeconds = 15

// drain lets the pods of a Deployment serve for a moment longer when another pod has already taken over.
func drain(s *corev1.PodSpec, in component.Inputs) {
	if in.Self.WorkloadKind() != component.Deployment || in.Self.Service == nil || strategy(in).Type == appsv1.RecreateDeploymentStrategyType {
		return
	}
	for i := range s.Containers {
		s.Containers[i].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: drainSeconds}}}
	}
}

// command returns the command of the main container. nil means the usual one, an empty slice that of the image.
func command(in component.Inputs) []string {
	c := in.Self.Component
	switch {
	case len(c.Workload.EECommand) > 0 && slices.Contains(c.Image.EEFor, in.Cluster.Edition):
		return c.Workload.EECommand
	case c.Workload.Command == nil:
		return []string{"/opt/yunion/bin/" + c.Name, "--config", confDir + "/" + FileName(c)}
	case len(c.Workload.Command) == 0:
		return nil
	}
	return c.Workload.Command
}

func containerPorts(in component.Inputs) []corev1.ContainerPort {
	out := slices.Clone(in.Self.Workload.Ports)
	known := lists.Set(out, func(p corev1.ContainerPort) int32 { return p.ContainerPort })
	for _, s := range in.Self.Services() {
		for _, p := range s.Ports {
			if n := target(in, s, p); !known[n] {
				known[n] = true
				out = append(out, corev1.ContainerPort{Name: p.Name, ContainerPort: n, Protocol: corev1.ProtocolTCP})
			}
		}
	}
	return out
}

// target returns the port on which the container listens.
func target(in component.Inputs, s component.Service, p component.Port) int32 {
	switch {
	case p.TargetPort > 0:
		return p.TargetPort
	case p.NodePort > 0:
		return p.Port
	}
	return in.Self.NodePorts[s.NameSuffix+p.Name]
}

// probes sets the probes of the main container. They are frequent until the pod has started, then less so. The services answer /ping as soon as they
// listen, which is when their tables are up to date.
func probes(out *corev1.Container, in component.Inputs) {
	w := in.Self.Workload
	out.ReadinessProbe, out.LivenessProbe = w.Probe, w.Liveness
	if (w.Ping || w.Listens) && len(out.Ports) > 0 {
		port, probe := intstr.FromInt32(out.Ports[0].ContainerPort), &corev1.Probe{PeriodSeconds: 5, TimeoutSeconds: 3, FailureThreshold: silences(in)}
		if w.Ping {
			probe.HTTPGet = &corev1.HTTPGetAction{Path: "/ping", Port: port, Scheme: corev1.URISchemeHTTPS}
		} else {
			probe.TCPSocket = &corev1.TCPSocketAction{Port: port}
		}
		out.ReadinessProbe = probe
	}
	if out.ReadinessProbe != nil {
		start := out.ReadinessProbe.DeepCopy()
		start.InitialDelaySeconds, start.PeriodSeconds, start.FailureThreshold = 0, 1, startSeconds(in.Self.Component)
		out.StartupProbe = start
	}
}

// silences returns how many probes in a row may fail before a pod gets no more requests. With another copy to take over, that is soon. A single pod is
// more often busy than hung: without it every request fails immediately, with it only late.
func silences(in component.Inputs) int32 {
	if in.Self.Replicas > 1 {
		return 2
	}
	return 6
}

func sidecars(in component.Inputs, main corev1.Container, init bool) []corev1.Container {
	var out []corev1.Container
	for _, s := range in.Self.Workload.Sidecars {
		image, runs := in.Self.ContainerImages[s.Name]
		if !runs || s.Init != init {
			continue
		}
		c := corev1.Container{
			Name: s.Name, Image: image, ImagePullPolicy: main.ImagePullPolicy, Command: s.Command, Ports: s.Ports,
			Resources: *main.Resources.DeepCopy(), SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)},
		}
		if s.Privileged {
			c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}
		if s.Lasting {
			lasting(&c, s)
		}
		if block := in.Cluster.Spec.Container(s.SpecKey); block != nil {
			c.ImagePullPolicy = cmp.Or(block.ImagePullPolicy, c.ImagePullPolicy)
			if !in.Cluster.Spec.DisableResourceManagement {
				choose(&c.Resources, block.Requests, block.Limits)
			}
		}
		if s.Mounts {
			c.VolumeMounts = main.VolumeMounts
		}
		named := lists.Filter(main.VolumeMounts, func(m corev1.VolumeMount) bool { return slices.Contains(s.Volumes, m.Name) })
		c.VolumeMounts = slices.Concat(c.VolumeMounts, named, lists.Map(s.Elsewhere, volumeMount))
		if s.Env != nil {
			c.Env = s.Env(in)
		}
		out = append(out, c)
	}
	return out
}

// lasting turns an init container into a sidecar that keeps running.
func lasting(c *corev1.Container, s component.Sidecar) {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	if len(s.Started) > 0 {
		c.StartupProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: s.Started}},
			PeriodSeconds: 1, TimeoutSeconds: 3, FailureThreshold: migrationStart,
		}
	}
	if len(c.Resources.Requests) > 0 {
		c.Resources = corev1.ResourceRequirements{Requests: requests(helperCPU, helperMemory)}
	}
}

// placement sets where pods run. A user's affinity wins; the node label of the role is added if the affinity does not concern nodes.
func placement(s *corev1.PodSpec, in component.Inputs) error {
	r := in.Self
	s.NodeSelector = r.Block.NodeSelector
	if err := decode(r, "affinity", r.Block.Affinity, &s.Affinity); err != nil {
		return err
	}
	if err := decode(r, "dnsConfig", r.Block.DNSConfig, &s.DNSConfig); err != nil {
		return err
	}
	if s.DNSConfig == nil && len(r.Workload.DNSOptions) > 0 {
		s.DNSConfig = &corev1.PodDNSConfig{Options: r.Workload.DNSOptions}
	}
	role := cmp.Or(r.Workload.NodeRole, "controller")
	members := r.Workload.Kind == component.StatefulSet && r.Replicas > 1
	if r.Replicas > 1 && r.WorkloadKind() == component.Deployment {
		s.TopologySpreadConstraints = spread(in)
	}
	if (r.Workload.PerZone || members) && s.Affinity == nil {
		s.Affinity = &corev1.Affinity{PodAntiAffinity: apart(r.Name)}
	}
	roles := strings.Split(role, ",")
	switch {
	case role == "any":
	case r.Workload.Kind == component.DaemonSet && len(roles) == 1:
		s.NodeSelector = labels.Merge(s.NodeSelector, labels.Set{v1alpha1.NodeRolePrefix + role: v1alpha1.Enable})
	case s.Affinity == nil || s.Affinity.NodeAffinity == nil:
		s.Affinity = cmp.Or(s.Affinity, &corev1.Affinity{})
		s.Affinity.NodeAffinity = nodesWith(roles)
	}
	return nil
}

func nodesWith(roles []string) *corev1.NodeAffinity {
	var terms []corev1.NodeSelectorTerm
	for _, role := range roles {
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: v1alpha1.NodeRolePrefix + role, Operator: corev1.NodeSelectorOpIn, Values: []string{v1alpha1.Enable}},
		}})
	}
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

// spread puts the copies of a Deployment on different nodes. The pods of each revision count separately, or a rollout would find no room on two nodes.
// Nodes that take no pods do not count, so a single node may take all copies.
func spread(in component.Inputs) []corev1.TopologySpreadConstraint {
	return []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: ComponentLabels(in)}, MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
		NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor),
	}}
}

// apart returns an anti-affinity that prefers different nodes for the pods of one component.
func apart(name string) *corev1.PodAntiAffinity {
	return &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 100,
		PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey:   corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelApp: name}},
		},
	}}}
}

func decode(r component.Resolved, field string, from *runtime.RawExtension, into any) error {
	if from == nil || len(from.Raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(from.Raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("spec.%s.%s: %w", strings.Join(r.BlockPath(), "."), field, err)
	}
	return nil
}
