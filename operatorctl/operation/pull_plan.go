// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Everything in this file is pure. Decision 49 explains why the images of a release are pulled in this way.

// imagesOfPod is how many images one pod pulls. The kubelet pulls the images of a pod one after another, and reports on the pod when it has tried all:
// fewer images per pod show progress earlier, more images need fewer pods.
const imagesOfPod = 5

// labelPull on a Pod holds the name of the operation that created it. No Service selects it.
const labelPull = "onecloud.yunion.io/pull"

// runs describes the pods of one workload of a release.
type runs struct {
	spec corev1.PodSpec
	// everywhere is true for a DaemonSet, which also runs on nodes that accept no other pods.
	everywhere bool
}

// podsOf returns the pods of a release's workloads that should run.
func podsOf(r *release.Release) ([]runs, error) {
	var out []runs
	for _, o := range r.Objects {
		at := []string{"spec", "template", "spec"}
		switch o.Kind {
		case "Deployment", "StatefulSet", "DaemonSet":
		case "CronJob":
			at = append([]string{"spec", "jobTemplate"}, at...)
		default:
			continue
		}
		if n, said, _ := unstructured.NestedInt64(o.Content, "spec", "replicas"); said && n == 0 {
			continue
		}
		one := runs{everywhere: o.Kind == "DaemonSet"}
		pod, _, err := unstructured.NestedMap(o.Content, at...)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(pod, &one.spec)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s %s of the release: %w", o.Kind, o.Name, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// mayRun reports whether the labels and taints of a node let pods run there when it is healthy. Taints that Kubernetes itself sets for the health of a
// node are ignored.
func (r runs) mayRun(on *corev1.Node) bool {
	fits, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: r.spec}).Match(on)
	if err != nil || !fits || on.Spec.Unschedulable && !r.everywhere {
		return false
	}
	_, refused := schedulingv1.FindMatchingUntoleratedTaint(klog.Logger{}, on.Spec.Taints, r.spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	}, false)
	return !refused
}

// demand is what the nodes of a cloud need for a release.
type demand struct {
	// missing lists the images that a node may lack, by node; policies is the pull policy of each image.
	missing  map[string][]string
	policies map[string]corev1.PullPolicy
	// secrets are the Secrets with registry logins.
	secrets []corev1.LocalObjectReference
	// images and nodes count what the release runs, and where; present counts the pairs of an image and a node that need no pull.
	images, nodes, present int
	// lost are the nodes that are not Ready, with the reason: their images are not pulled.
	lost map[string]string
}

// demandOf returns what the pods of a release need on each node. Images that the node itself reports (at most 50 by default) are not pulled again.
func demandOf(all []runs, nodes []corev1.Node) demand {
	d := demand{missing: map[string][]string{}, policies: map[string]corev1.PullPolicy{}, lost: map[string]string{}}
	for i := range nodes {
		n := &nodes[i]
		wanted := map[string]corev1.PullPolicy{}
		for _, r := range all {
			if !r.mayRun(n) {
				continue
			}
			for _, c := range slices.Concat(r.spec.InitContainers, r.spec.Containers) {
				wanted[c.Image] = stricter(wanted[c.Image], c.ImagePullPolicy)
				d.policies[c.Image] = stricter(d.policies[c.Image], c.ImagePullPolicy)
			}
			d.secrets = lists.Unique(append(d.secrets, r.spec.ImagePullSecrets...))
		}
		if len(wanted) == 0 {
			continue
		}
		if is := status.NodeOf(n); !is.Ready {
			d.lost[n.Name] = is.Message
			continue
		}
		d.nodes++
		for _, image := range slices.Sorted(maps.Keys(wanted)) {
			if wanted[image] != corev1.PullAlways && slices.ContainsFunc(n.Status.Images, func(i corev1.ContainerImage) bool { return slices.Contains(i.Names, image) }) {
				d.present++
				continue
			}
			d.missing[n.Name] = append(d.missing[n.Name], image)
		}
	}
	d.images = len(d.policies)
	slices.SortFunc(d.secrets, func(a, b corev1.LocalObjectReference) int { return cmp.Compare(a.Name, b.Name) })
	return d
}

// stricter returns the stricter of two policies for an image: one that asks the registry.
func stricter(a, b corev1.PullPolicy) corev1.PullPolicy {
	if a == corev1.PullAlways || b == corev1.PullAlways {
		return corev1.PullAlways
	}
	return cmp.Or(a, b)
}

type batch struct {
	node   string
	images []string
	// tries is how many pods were created for it.
	tries int
	// answers are the results for each image so far.
	answers map[string]answer
}

// batches returns the pods of a demand: the first one of each node, then the second, and so on.
func (d demand) batches() []*batch {
	var out []*batch
	for round := 0; ; round++ {
		more := false
		for _, node := range slices.Sorted(maps.Keys(d.missing)) {
			rest := d.missing[node]
			if from := round * imagesOfPod; from < len(rest) {
				out = append(out, &batch{node: node, images: rest[from:min(from+imagesOfPod, len(rest))], answers: map[string]answer{}})
				more = true
			}
		}
		if !more {
			return out
		}
	}
}

// pod returns a pod that pulls the images of a batch and starts none: the kubelet refuses to create a container that must not run as root and has user 0,
// and finds that out only once it has the image. So an image needs no shell, and nothing of it runs.
func (b *batch) pod(o *v1alpha1.OnecloudOperation, d demand) *corev1.Pod {
	none, few := corev1.ResourceList{}, corev1.ResourceList{}
	none[corev1.ResourceCPU], none[corev1.ResourceMemory] = resource.MustParse("0"), resource.MustParse("0")
	few[corev1.ResourceCPU], few[corev1.ResourceMemory] = resource.MustParse("10m"), resource.MustParse("16Mi")
	p := &corev1.Pod{ObjectMeta: actorMeta(o, "pull-"), Spec: corev1.PodSpec{
		NodeName: b.node, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(0)),
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(0)), RunAsNonRoot: new(true)},
	}}
	p.GenerateName, p.Name = p.Name, ""
	p.Labels = map[string]string{labelPull: o.Name, v1alpha1.LabelOperationCloud: o.Spec.Cloud}
	p.Spec.ImagePullSecrets = d.secrets
	for i, image := range b.images {
		if b.answers[image].over() {
			continue
		}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("image-%d", i), Image: image, ImagePullPolicy: d.policies[image],
			Resources: corev1.ResourceRequirements{Requests: none, Limits: few},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		})
	}
	return p
}

// judge evaluates a kubelet's report on the pod of a batch. It returns why the kubelet rejected the pod, or "".
func (b *batch) judge(p *corev1.Pod, now time.Time) (rejected string) {
	for _, s := range p.Status.ContainerStatuses {
		image := lists.First(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == s.Name }).Image
		if image != "" && !b.answers[image].over() {
			b.answers[image] = judgePull(s, b.answers[image], now)
		}
	}
	if p.Status.Phase == corev1.PodFailed && !b.over() {
		return strings.TrimSuffix(p.Status.Reason+": "+p.Status.Message, ": ")
	}
	return ""
}

func (b *batch) over() bool { return len(b.open()) == 0 }

// open returns the images whose answer is not final.
func (b *batch) open() []string {
	return lists.Filter(b.images, func(i string) bool { return !b.answers[i].over() })
}

// tire gives up on images that have failed for too long: a kubelet reports nothing new between its retries.
func (b *batch) tire(now time.Time) {
	for _, i := range b.open() {
		if a := b.answers[i]; a.state == pullFails && now.Sub(a.since) > pullAgain {
			a.state = pullRefused
			b.answers[i] = a
		}
	}
}

// count returns how many images have an answer in a state.
func count(all []*batch, state pullState) (n int) {
	for _, b := range all {
		for _, a := range b.answers {
			if a.state == state {
				n++
			}
		}
	}
	return n
}

// settle sets the answer of the open images.
func (b *batch) settle(state pullState, text string) {
	for _, i := range b.open() {
		b.answers[i] = answer{state: state, text: cmp.Or(b.answers[i].text, text)}
	}
}

// answerLimit is how many bytes of an answer a finding holds, nodesNamed how many nodes it names.
const (
	answerLimit = 400
	nodesNamed  = 10
)

// refused returns the findings about images that cannot be had, one for equal answers from the same nodes. remedy is for images that cannot be pulled.
func refused(all []*batch, remedy string) finding.List {
	type key struct {
		image string
		full  bool
	}
	texts, nodes := map[key]string{}, map[key][]string{}
	for _, b := range all {
		for image, a := range b.answers {
			if a.state == pullFails || a.state == pullRefused || a.state == pullFull {
				k := key{image, a.state == pullFull}
				texts[k] = cmp.Or(texts[k], a.text)
				nodes[k] = append(nodes[k], b.node)
			}
		}
	}
	groups := map[string][]key{}
	for k, text := range texts {
		slices.Sort(nodes[k])
		group := fmt.Sprint(k.full, nodes[k], without(text, k.image))
		groups[group] = append(groups[group], k)
	}
	var out finding.List
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		names := lists.Map(groups[group], func(k key) string { return k.image })
		slices.Sort(names)
		first := key{names[0], groups[group][0].full}
		cause := fmt.Sprintf("%s on %s: %s", imagesNamed(names), named(nodes[first]), status.Clip(plainAnswer(texts[first], first.image), answerLimit))
		if first.full {
			out = append(out, finding.New("OCA-7069", "A node has no space for images of the release", cause, "make room on its disk: ocadm node doctor; then try again"))
			continue
		}
		out = append(out, finding.New("OCA-7068", "Images of the release cannot be pulled", cause, remedy))
	}
	return out
}

// imagesNamed formats sorted image names for people. It groups those of one registry and path, so that the differences stand out.
func imagesNamed(names []string) string {
	var places []string
	of := map[string][]string{}
	for _, name := range names {
		i := strings.LastIndex(name, "/") + 1
		if !slices.Contains(places, name[:i]) {
			places = append(places, name[:i])
		}
		of[name[:i]] = append(of[name[:i]], name[i:])
	}
	var out []string
	for _, place := range places {
		text := strings.Join(of[place], ", ")
		if len(of[place]) > 1 && place != "" {
			text = fmt.Sprintf("%d images of %s: %s", len(of[place]), strings.TrimSuffix(place, "/"), text)
		} else {
			text = place + text
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// wrapping matches what the kubelet and the runtime put around a registry's answer. It only repeats the image name.
var wrapping = regexp.MustCompile(`rpc error: code = \w+ desc = |Back-off pulling image "[^"]*": |failed to (pull and unpack|resolve)( image| reference)?( "[^"]*")?: `)

// plainAnswer returns the answer about one image without repetitions of its name.
func plainAnswer(text, image string) string {
	return strings.ReplaceAll(wrapping.ReplaceAllString(text, ""), image+": ", "")
}

// without removes the name of an image from an answer, so that answers about several images can be compared.
func without(text, image string) string {
	repository := images.Split(image).Repository
	text = strings.ReplaceAll(text, repository, "IMAGE")
	if _, path, found := strings.Cut(repository, "/"); found { // in the URL of its manifest
		text = strings.ReplaceAll(text, path, "IMAGE")
	}
	return text
}

// named formats node names for people.
func named(nodes []string) string {
	word := "node "
	if len(nodes) > 1 {
		word = "nodes "
	}
	return word + strings.Join(lists.Some(nodes, nodesNamed), ", ")
}
