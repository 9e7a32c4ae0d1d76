// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/render"
)

// Everything in this file is pure.

// subject is a component whose migration is rehearsed: its pods in the next release, and the files that they read.
type subject struct {
	component component.Component
	template  corev1.PodTemplateSpec
	files     map[string][]byte
	databases []string
	// skip is the reason why it is not rehearsed, or "".
	skip string
}

// subjects returns the components of a release that have databases. exists lists the existing databases.
func subjects(cloud string, next *release.Release, all []component.Component, exists []string) ([]subject, error) {
	var out []subject
	for _, c := range all {
		if c.Database == nil || c.Config == nil {
			continue
		}
		one := subject{component: c, databases: append([]string{c.Database.Name}, c.Database.More...)}
		d := &appsv1.Deployment{}
		if found, err := objectOf(next, "Deployment", cloud+"-"+c.Name, d); err != nil || !found {
			if err != nil {
				return nil, err
			}
			continue // it does not run
		}
		one.template = d.Spec.Template
		s := &corev1.Secret{}
		if _, err := objectOf(next, "Secret", cloud+"-"+c.Name+render.ConfigSuffix, s); err != nil {
			return nil, err
		}
		one.files = s.Data
		one.databases = slices.DeleteFunc(one.databases, func(n string) bool { return !slices.Contains(exists, n) })
		switch {
		case len(one.databases) == 0:
			one.skip = "it has no database yet"
		case !migrates(one):
			one.skip = "its program cannot run its migration alone"
		}
		out = append(out, one)
	}
	return out, nil
}

func objectOf(r *release.Release, kind, name string, into any) (bool, error) {
	i := slices.IndexFunc(r.Objects, func(o release.Object) bool { return o.Kind == kind && o.Name == name })
	if i < 0 {
		return false, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.Objects[i].Content, into); err != nil {
		return false, fmt.Errorf("reading %s %s of the next release: %w", kind, name, err)
	}
	return true, nil
}

// migrates reports whether a component is a service of the cloud that supports --exit-after-db-init, or serves once it has migrated.
func migrates(s subject) bool {
	if len(s.template.Spec.Containers) == 0 {
		return false
	}
	command := s.template.Spec.Containers[0].Command
	_, err := diverted(s.files[render.FileName(s.component)], credentials{}, func(n string) string { return n })
	return err == nil && len(command) > 1 && strings.HasPrefix(command[0], "/opt/yunion/bin/") && slices.Contains(command, "--config")
}

// credentials are for the account that may use the copies.
type credentials struct{ user, password string }

var errNoConnection = errors.New("it has no sql_connection")

// diverted returns a configuration file that points to the copy of a database, and to no other store: no ClickHouse, no locks in etcd.
func diverted(file []byte, as credentials, into func(string) string) ([]byte, error) {
	options := map[string]any{}
	if err := yaml.Unmarshal(file, &options); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	dsn, _ := options["sql_connection"].(string)
	scheme, rest, found := strings.Cut(dsn, "://")
	at := strings.LastIndex(rest, "@")
	if !found || at < 0 {
		return nil, errNoConnection
	}
	server, tail, found := strings.Cut(rest[at+1:], "/")
	if !found {
		return nil, errNoConnection
	}
	database, query, asks := strings.Cut(tail, "?")
	dsn = scheme + "://" + as.user + ":" + as.password + "@" + server + "/" + into(database)
	if asks {
		dsn += "?" + query
	}
	options["sql_connection"] = dsn
	delete(options, "clickhouse")
	delete(options, "ops_log_with_clickhouse")
	if _, there := options["lockman_method"]; there {
		options["lockman_method"] = "inmemory"
	}
	return yaml.Marshal(options)
}

// labelRehearsal on a Pod or Secret holds the name of the operation that created it. No Service selects it.
const labelRehearsal = "onecloud.yunion.io/rehearsal"

// actorMeta returns the metadata of an object of a rehearsal.
func actorMeta(o *v1alpha1.OnecloudOperation, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name + "-" + name, Labels: map[string]string{labelRehearsal: o.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.OperationKind, Name: o.Name, UID: o.UID}},
	}
}

// secret returns the files of a subject, with its configuration diverted.
func (s subject) secret(o *v1alpha1.OnecloudOperation, as credentials, into func(string) string) (*corev1.Secret, error) {
	name := render.FileName(s.component)
	file, err := diverted(s.files[name], as, into)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of %s: %w", s.component.Name, err)
	}
	files := maps.Clone(s.files)
	files[name] = file
	return &corev1.Secret{ObjectMeta: actorMeta(o, s.component.Name), Data: files}, nil
}

// pod returns a pod that only migrates, or one that serves. It has nothing of the cloud but its image, its certificates and its placement: no claim, no
// host path, no label of a Service, no priority. The names of the identity service resolve to address, if set.
func (s subject) pod(o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, serves bool, address string) *corev1.Pod {
	from := s.template.Spec.DeepCopy()
	main := from.Containers[0]
	main.Lifecycle, main.LivenessProbe, main.StartupProbe, main.Resources = nil, nil, nil, corev1.ResourceRequirements{}
	name := s.component.Name
	if serves {
		name += "-serves"
	} else {
		main.Command = append(slices.Clone(main.Command), "--auto-sync-table", "--exit-after-db-init")
	}
	volumes := lists.Pick(from.Volumes, func(v corev1.Volume) (corev1.Volume, bool) {
		return s.volume(v, o, cloud), slices.ContainsFunc(main.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
	})
	// Programs get a host name like the one in the cloud: the name of an operation means nothing to them.
	p := &corev1.Pod{ObjectMeta: actorMeta(o, name), Spec: corev1.PodSpec{
		Hostname:      cloud.Name + "-" + s.component.Name + "-rehearsal",
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{main}, Volumes: volumes, ImagePullSecrets: from.ImagePullSecrets,
		SecurityContext: from.SecurityContext, NodeSelector: from.NodeSelector, Tolerations: from.Tolerations, DNSConfig: from.DNSConfig,
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false), TerminationGracePeriodSeconds: new(int64(1)),
		ActiveDeadlineSeconds: new(int64(migrationTimeout.Seconds())),
	}}
	if from.Affinity != nil {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: from.Affinity.NodeAffinity}
	}
	if address != "" {
		service := cloud.Name + "-" + component.IdentityService
		in := service + "." + cloud.Namespace
		p.Spec.HostAliases = []corev1.HostAlias{{IP: address, Hostnames: []string{service, in, in + ".svc", in + ".svc.cluster.local"}}}
	}
	return p
}

// volume returns a volume of the pod, with the files of the rehearsal, and nothing that outlives it.
func (s subject) volume(v corev1.Volume, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster) corev1.Volume {
	files, ours := cloud.Name+"-"+s.component.Name+render.ConfigSuffix, o.Name+"-"+s.component.Name
	out := *v.DeepCopy()
	switch {
	case out.Secret != nil && out.Secret.SecretName == files:
		out.Secret.SecretName = ours
	case out.Projected != nil:
		for _, source := range out.Projected.Sources {
			if source.Secret != nil && source.Secret.Name == files {
				source.Secret.Name = ours
			}
		}
	case out.PersistentVolumeClaim != nil || out.HostPath != nil:
		out.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	}
	return out
}

// outcome is the state of a pod of a rehearsal.
type outcome struct {
	over, ok bool
	// lost is true if the pod did not start, or was ended from outside: this says nothing about its program.
	lost bool
	// why it failed, or what it waits for.
	why string
	// ran is how long its program ran.
	ran metav1.Duration
	// address is the IP of the pod.
	address string
}

// judgePod returns the state of a pod. A ready pod has migrated: the services listen once their tables are in order.
func judgePod(p *corev1.Pod) outcome {
	out := outcome{why: cmp.Or(condition(p, corev1.PodScheduled, corev1.ConditionFalse), string(p.Status.Phase)), address: p.Status.PodIP,
		lost: p.Status.Phase == corev1.PodPending}
	if p.Status.Phase == corev1.PodFailed && p.Status.Reason != "" { // the kubelet ended it
		out.over, out.lost = true, p.Status.Reason != "DeadlineExceeded"
		out.why = strings.TrimSuffix(p.Status.Reason+": "+p.Status.Message, ": ")
		return out
	}
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.State.Terminated != nil:
			t := c.State.Terminated
			out.ran.Duration = t.FinishedAt.Sub(t.StartedAt.Time)
			out.over, out.ok = true, t.ExitCode == 0
			if !out.ok {
				out.why = fmt.Sprintf("exit code %d: %s", t.ExitCode, lastLine(t.Message, t.Reason))
			}
			return out
		case c.State.Waiting != nil:
			out.why = strings.TrimSuffix(c.State.Waiting.Reason+": "+c.State.Waiting.Message, ": ")
			out.over = slices.Contains(kube.NotStarting, c.State.Waiting.Reason) && c.State.Waiting.Reason != kube.ErrImagePull // the next pull may succeed
			out.lost = !out.over                                                                                                // it would not start in the cloud, either
		case c.Ready && p.Spec.Containers[0].ReadinessProbe != nil:
			out.over, out.ok = true, true
		}
	}
	if p.Status.Phase == corev1.PodFailed { // its node is gone
		out.over, out.ok, out.lost = true, false, true
	}
	return out
}

// messageLimit is how many bytes of a program's last message are kept.
const messageLimit = 1000

func lastLine(message, reason string) string {
	message = strings.TrimSpace(message)
	if message == "" {
		return reason
	}
	if len(message) > messageLimit {
		message = "…" + strings.ToValidUTF8(message[len(message)-messageLimit:], "")
	}
	return message
}
