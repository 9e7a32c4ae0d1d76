// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

// The names that the earlier operator used (facts from its objects: docs/decisions/0010-adoption.md).
const (
	earlierManager  = "onecloud-controller-manager"
	earlierLast     = "onecloud.yunion.io/last-applied-configuration"
	earlierInstance = "onecloud-cluster-x7f2" // random, in releases before 2026
	earlierRegistry = "registry.hub.docker.com/yunion"
	earlierVersion  = "v4.0.4"
	adminPassword   = "sysAdminSecret24"
)

// earlierService holds the earlier operator's data of one component.
type earlierService struct {
	name, section              string
	port                       int32
	database, user, dbPassword string
	account, password          string
	etcd                       bool
	// options are the options in its file in addition to the common ones.
	options string
	labels  map[string]string
}

func earlierServices() []earlierService {
	return []earlierService{
		{name: "region", section: "region", port: 30888, database: "cloud_of_ours", user: "cloudofours", dbPassword: "regionDbSecret26", account: "regionadmin",
			password: "regionAcctSecret2", etcd: true, options: "dns_server: 127.0.0.1\ndns_domain: \"\"\nport_v2: 30888\nhost_offline_max_seconds: 180\nkeep_deleted_snapshot_days: 3\n"},
		{name: "glance", section: "glance", port: 30292, database: "glance", user: "glance", dbPassword: "glanceDbSecret27", account: "glance_of_ours",
			password: "glanceAcctSecret2", options: "filesystem_store_datadir: /opt/cloud/workspace/data/glance/images\nenable_torrent_service: false\nenable_remote_executor: true\nauto_sync_table: true\n",
			labels: map[string]string{"onecloud.yunion.io/host-deployer": ""}},
		{name: "logger", section: "logger", port: 30999, database: "yunionlogger", user: "yunionlogger", dbPassword: "loggerDbSecret28", account: "loggeradmin", password: "loggerAcctSecret2"},
	}
}

// earlierLabels returns the labels of everything that the earlier operator created for a component. They were also the selector.
func earlierLabels(component string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": "onecloud-cluster", "app.kubernetes.io/managed-by": "onecloud-operator",
		"app.kubernetes.io/instance": earlierInstance, "app.kubernetes.io/component": component, "app": component,
	}
}

// earlier creates an object as the earlier operator did: with a plain create, under its field manager, owned by the cloud.
func (e *cloudTest) earlier(o client.Object, name, component string, more ...map[string]string) {
	e.Helper()
	o.SetNamespace(namespace)
	o.SetName(name)
	if component != "" {
		labels := earlierLabels(component)
		for _, m := range more {
			maps.Copy(labels, m)
		}
		o.SetLabels(labels)
	}
	yes := true
	if _, claim := o.(*corev1.PersistentVolumeClaim); !claim {
		o.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: cloud, UID: e.Cloud().UID, Controller: &yes, BlockOwnerDeletion: &yes,
		}})
	}
	require.NoError(e, e.Client.Create(e.Context(), o, client.FieldOwner(earlierManager)))
}

func (e *cloudTest) json(v any) string {
	e.Helper()
	b, err := json.Marshal(v)
	require.NoError(e, err)
	return string(b)
}

func (e *cloudTest) earlierConfig(component, file string) {
	data := map[string]string{"config": file}
	e.earlier(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{earlierLast: e.json(data)}}, Data: data}, cloud+"-"+component, component)
}

func (e *cloudTest) earlierDSN(user, password, database string) string {
	return fmt.Sprintf("mysql+pymysql://%s:%s@%s/%s?charset=utf8&parseTime=true&interpolateParams=true", user, password,
		net.JoinHostPort(e.DB.Host, fmt.Sprint(e.DB.Port)), database)
}

// earlierFile returns the dump of all options of a service, limited to those that the stand-ins know.
func (e *cloudTest) earlierFile(s earlierService) string {
	var b strings.Builder
	fmt.Fprintf(&b, "enable_ssl: true\nssl_ca_certs: /etc/yunion/pki/ca.crt\nssl_certfile: /etc/yunion/pki/service.crt\nssl_keyfile: /etc/yunion/pki/service.key\n")
	fmt.Fprintf(&b, "region: region0\nport: %d\ncron_job_worker_count: 4\nlocal_task_worker_count: 4\nrequest_worker_count: 8\ntask_worker_count: 4\n", s.port)
	fmt.Fprintf(&b, "log_level: info\nenable_rbac: true\ndebug_client: false\nrbac_policy_refresh_interval_seconds: 2\n")
	if s.account != "" {
		fmt.Fprintf(&b, "auth_url: https://default-keystone:30357/v3\nadmin_domain: Default\nadmin_project: system\nadmin_user: %s\nadmin_password: %s\n", s.account, s.password)
	}
	if s.database != "" {
		fmt.Fprintf(&b, "sql_connection: %s\n", e.earlierDSN(s.user, s.dbPassword, s.database))
	}
	return b.String() + s.options
}

func earlierPod(s earlierService, command []string) corev1.PodTemplateSpec {
	mounts := []corev1.VolumeMount{{Name: "certs", ReadOnly: true, MountPath: "/etc/yunion/pki"}, {Name: "config", ReadOnly: true, MountPath: "/etc/yunion"}}
	volumes := []corev1.Volume{
		{Name: "certs", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "default-certs", Items: []corev1.KeyToPath{
			{Key: "ca.crt", Path: "ca.crt"}, {Key: "service.crt", Path: "service.crt"}, {Key: "service.key", Path: "service.key"}}}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: cloud + "-" + s.name}, Items: []corev1.KeyToPath{{Key: "config", Path: s.name + ".conf"}}}}},
	}
	if s.etcd {
		volumes = append(volumes, corev1.Volume{Name: "etcd-client", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "etcd-client"}}})
		mounts = append(mounts, corev1.VolumeMount{Name: "etcd-client", MountPath: "/etc/etcdtls/operator/etcd-tls", ReadOnly: true})
	}
	labels := earlierLabels(s.name)
	maps.Copy(labels, s.labels)
	ports := []corev1.ContainerPort{{Name: "api", ContainerPort: s.port, Protocol: corev1.ProtocolTCP}}
	var dns *corev1.PodDNSConfig
	switch s.name {
	case "keystone":
		ports = []corev1.ContainerPort{{Name: "public", ContainerPort: s.port, Protocol: corev1.ProtocolTCP}, {Name: "admin", ContainerPort: 30357, Protocol: corev1.ProtocolTCP}}
	case "region":
		two := "2"
		dns = &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &two}}}
	case "web":
		ports[0].Name = "web"
		volumes[1].ConfigMap.Items[0].Path, mounts[1].MountPath = "default.conf", "/etc/nginx/conf.d"
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{earlierLast: `{"containers":[{"name":"` + s.name + `"}]}`}},
		Spec: corev1.PodSpec{
			Volumes: volumes,
			Containers: []corev1.Container{{
				Name: s.name, Image: earlierRegistry + "/" + s.name + ":" + earlierVersion, ImagePullPolicy: corev1.PullIfNotPresent, Command: command,
				Ports: ports, VolumeMounts: mounts,
				Resources: corev1.ResourceRequirements{
					Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1333m"), corev1.ResourceMemory: resource.MustParse("1024Mi")},
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("10Mi")},
				},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ping", Port: intstr.FromInt32(s.port), Scheme: corev1.URISchemeHTTPS}},
					InitialDelaySeconds: 1, PeriodSeconds: 5, TimeoutSeconds: 3, SuccessThreshold: 1, FailureThreshold: 2,
				},
			}},
			DNSConfig:   dns,
			Affinity:    earlierAffinity(),
			Tolerations: earlierTolerations(),
		},
	}
}

func earlierAffinity() *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "onecloud.yunion.io/controller", Operator: corev1.NodeSelectorOpIn, Values: []string{"enable"}}}}},
	}}}
}

func earlierTolerations() []corev1.Toleration {
	return []corev1.Toleration{
		{Key: "node-role.kubernetes.io/master", Effect: corev1.TaintEffectNoSchedule}, {Key: "node-role.kubernetes.io/controlplane", Effect: corev1.TaintEffectNoSchedule},
	}
}

func (e *cloudTest) earlierDeployment(s earlierService) {
	pod := earlierPod(s, []string{"/opt/yunion/bin/" + s.name, "--config", "/etc/yunion/" + s.name + ".conf"})
	if s.database != "" {
		main := pod.Spec.Containers[0]
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: main.Image, ImagePullPolicy: main.ImagePullPolicy,
			Command: append(append([]string{}, main.Command...), "--auto-sync-table", "--exit-after-db-init"), VolumeMounts: main.VolumeMounts}}
	}
	if s.name == "glance" {
		both, privileged := corev1.MountPropagationBidirectional, true
		create, must := corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory
		host := func(name, path string, kind *corev1.HostPathType) corev1.Volume {
			return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, host("opt-cloud", "/opt/cloud", &create), corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: cloud + "-glance"}}}, host("run", "/var/run", &must), host("dev", "/dev", &must))
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "opt-cloud", MountPath: "/opt/cloud", MountPropagation: &both},
			corev1.VolumeMount{Name: "data", MountPath: "/data"}, corev1.VolumeMount{Name: "run", MountPath: "/var/run"}, corev1.VolumeMount{Name: "dev", MountPath: "/dev"})
		pod.Spec.InitContainers[0].VolumeMounts, pod.Spec.InitContainers[0].SecurityContext = c.VolumeMounts, &corev1.SecurityContext{Privileged: &privileged}
		c.SecurityContext = &corev1.SecurityContext{Privileged: &privileged}
		pod.Spec.Affinity = nil
	}
	one := int32(1)
	spec := appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod,
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}}
	e.earlier(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{earlierLast: e.json(spec)}}, Spec: spec}, cloud+"-"+s.name, s.name, s.labels)
}

func (e *cloudTest) earlierNodePorts(component string, labels map[string]string, ports map[string]int32) {
	var list []corev1.ServicePort
	for name, n := range ports {
		list = append(list, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: n, TargetPort: intstr.FromInt32(n), NodePort: n})
	}
	selector := earlierLabels(component)
	maps.Copy(selector, labels)
	spec := corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: selector, Ports: list}
	e.earlier(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{earlierLast: e.json(spec)}}, Spec: spec}, cloud+"-"+component, component, labels)
}

func (e *cloudTest) earlierClaim(name, component, size, dir string) {
	class := "local-path"
	e.earlier(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"pvc.onecloud.yunion.io/pv-path": dir}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}, name, component)
}

// earlierRecord creates the ConfigMap default-cluster-config.
func (e *cloudTest) earlierRecord() {
	var b strings.Builder
	b.WriteString("apiVersion: onecloud.yunion.io/v1alpha1\nkind: OnecloudClusterConfig\nmetadata:\n  creationTimestamp: null\ncommonConfig:\n  cron_job_worker_count: 4\n  request_worker_count: 8\n")
	b.WriteString("keystone:\n  port: 30500\n  db: {database: keystone, username: keystone, password: keystoneDbSecret25}\n")
	for _, s := range earlierServices() {
		fmt.Fprintf(&b, "%s:\n  port: %d\n  username: %s\n  password: %s\n  db: {database: %s, username: %s, password: %s}\n",
			s.section, s.port, s.account, s.password, s.database, s.user, s.dbPassword)
	}
	b.WriteString("host:\n  username: hostadmin\n  password: hostAcctSecret2\nnotify:\n  port: 30777\n  username: notify\n  password: notifyAcctSecret2\n" +
		"  db: {database: notify, username: notify, password: notifyDbSecret29}\n")
	e.earlier(&corev1.ConfigMap{Data: map[string]string{"OnecloudClusterConfig": b.String()}}, cloud+"-cluster-config", "")
}

// earlierCerts creates the Secret default-certs: one CA and one certificate for all. The real one lacked the names of the Services. Four are added
// here, as spec.certSANs would have done, because the stand-ins do not start without them.
func (e *cloudTest) earlierCerts() (ca []byte) {
	names := []string{"service", "service.onecloud", "service.onecloud.svc", "localhost"}
	for _, s := range []string{"keystone", "region", "glance", "logger"} {
		names = append(names, "default-"+s, "default-"+s+".onecloud", "default-"+s+".onecloud.svc")
	}
	now := time.Now()
	authority, err := pki.NewCA(now.Add(-time.Hour), "onecloud", nil)
	require.NoError(e, err)
	leaf, err := pki.Issue(authority, pki.Request{CommonName: "service", Usage: pki.Server, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(800 * 24 * time.Hour),
		Names: append(names, "127.0.0.1")})
	require.NoError(e, err)
	caKey, err := authority.KeyPEM()
	require.NoError(e, err)
	key, err := leaf.KeyPEM()
	require.NoError(e, err)
	e.earlier(&corev1.Secret{Data: map[string][]byte{
		"ca.crt": authority.CertPEM(), "ca.key": caKey, "service.crt": leaf.CertPEM(), "service.key": key, "tls.crt": leaf.CertPEM(), "tls.key": key,
	}}, cloud+"-certs", "")
	e.earlier(&corev1.Secret{Data: map[string][]byte{"etcd-client.crt": leaf.CertPEM(), "etcd-client.key": key, "etcd-client-ca.crt": authority.CertPEM()}}, "etcd-client", "etcd")
	return authority.CertPEM()
}

// earlierWeb creates nginx, a Service with more ports than this operator's, and an Ingress.
func (e *cloudTest) earlierWeb() {
	e.earlierConfig("web", "server { listen 443 ssl; }\n")
	pod := earlierPod(earlierService{name: "web", port: 80}, []string{"nginx", "-g", "daemon off;"})
	pod.Spec.Containers[0].ReadinessProbe = nil
	one := int32(1)
	spec := appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod}
	e.earlier(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{earlierLast: e.json(spec)}}, Spec: spec}, cloud+"-web", "web")
	var ports []corev1.ServicePort
	for name, n := range map[string]int32{"http": 80, "https": 443, "overview": 8080, "docs": 8081} {
		ports = append(ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: n, TargetPort: intstr.FromInt32(n)})
	}
	e.earlier(&corev1.Service{Spec: corev1.ServiceSpec{Selector: earlierLabels("web"), Ports: ports}}, cloud+"-web", "web")
	kind := networkingv1.PathTypePrefix
	e.earlier(&networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS", earlierLast: "{}"}},
		Spec: networkingv1.IngressSpec{
			TLS: []networkingv1.IngressTLS{{SecretName: cloud + "-certs"}},
			Rules: []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{
				{Path: "/", PathType: &kind, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: cloud + "-web", Port: networkingv1.ServiceBackendPort{Number: 443}}}}}}}}},
		},
	}, cloud+"-web", "web")
}

// earlierNodes creates the host agent with its configuration, region-dns with a password in a ConfigMap, and a bare pod of etcd.
func (e *cloudTest) earlierNodes() {
	e.earlierConfig("host", e.earlierFile(earlierService{name: "host", port: 8885, account: "hostadmin", password: "hostAcctSecret2"}))
	for _, name := range []string{"host", "region-dns"} {
		pod := earlierPod(earlierService{name: name, port: 8885}, []string{"/opt/yunion/bin/" + name})
		pod.Spec.Containers[0].ReadinessProbe = nil
		pod.Spec.Affinity = nil
		if name == "host" {
			pod.Labels["onecloud.yunion.io/host-deployer"] = ""
			pod.Spec.NodeSelector = map[string]string{"onecloud.yunion.io/host": "enable"}
		}
		spec := appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod}
		// It omitted the annotation when it created DaemonSets.
		e.earlier(&appsv1.DaemonSet{Spec: spec}, cloud+"-"+name, name)
	}
	e.earlierConfig("region-dns", ".:53 {\n    yunion . {\n        admin_password regionAcctSecret2\n    }\n}\n")
	// On no node: nothing here would end it.
	e.earlier(&corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "etcd", Image: earlierRegistry + "/etcd:3.5.12"}},
	}}, cloud+"-etcd-abcdefghij", "etcd")
}
