// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/integration/pods"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

const namespace = "onecloud"

func TestPods(t *testing.T) {
	db := mariadb.Require(t, mariadb.Options{})
	if _, err := db.Execute(t.Context(), "CREATE DATABASE keystone CHARACTER SET utf8mb4"); err != nil {
		t.Fatal(err)
	}
	cluster := harness.Require(t, harness.Options{})
	client, err := kubernetes.NewForConfig(cluster.Config(harness.Admin))
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // elsewhere a controller creates it
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config, late := cluster.Config(harness.Admin), &late{asked: make(chan struct{}), goOn: make(chan struct{}), made: make(chan struct{})}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		late.next = next
		return late
	})
	k, err := pods.Start(t.Context(), pods.Options{Config: config, Namespace: namespace, Node: "node1", Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("stopping the kubelet: %v", err)
		}
	})
	s := scene{t: t, client: client, k: k}
	ca := s.objects(db)

	s.create(keystone("one"))
	s.until("keystone is available", s.available("default-keystone"))
	s.answers(ca)
	if got := k.Starts("default-keystone"); got != 2 {
		t.Errorf("want an init container and a container, have %d starts:\n%s", got, k.Log())
	}

	k.Kill("default-keystone")
	s.until("keystone is started again", func(pod *corev1.Pod, d *appsv1.Deployment) bool {
		return pod != nil && pod.Status.ContainerStatuses[0].RestartCount == 1 && d.Status.AvailableReplicas == 1 &&
			pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode == 137
	})

	s.config(db, "no_such_option: 1\n")
	s.update("two")
	s.until("the init container fails and says why", func(pod *corev1.Pod, d *appsv1.Deployment) bool {
		if pod == nil || len(pod.Status.InitContainerStatuses) == 0 || d.Status.AvailableReplicas != 0 {
			return false
		}
		c := pod.Status.InitContainerStatuses[0]
		return c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" && c.LastTerminationState.Terminated.ExitCode == 1 &&
			strings.Contains(c.LastTerminationState.Terminated.Message, "no_such_option")
	})
	s.config(db, "")
	s.update("three")
	s.until("keystone is available again", s.available("default-keystone"))

	s.create(other())
	s.until("a container that cannot be played is ready", s.available("default-web"))
	if got := k.Starts("default-web"); got != 0 {
		t.Errorf("something runs for it: %d", got)
	}

	s.delete("default-keystone")
	s.eventually("its pod is gone", func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=default-keystone"})
		return err == nil && len(list.Items) == 0 && !s.listens(), err
	})

	late.armed.Store(true)
	s.create(deployment("default-late", other().Spec.Template.Spec.Containers[0]))
	<-late.asked
	s.delete("default-late")
	time.Sleep(500 * time.Millisecond) // by then it knows: nothing outside shows when
	close(late.goOn)
	<-late.made
	s.eventually("a pod that was made after its Deployment had gone is gone", func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=default-late"})
		return err == nil && len(list.Items) == 0, err
	})

	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

type scene struct {
	t      *testing.T
	client kubernetes.Interface
	k      *pods.Kubelet
}

// objects creates the objects that keystone's pod mounts, and its Service.
func (s scene) objects(db *mariadb.Server) pki.Pair {
	s.t.Helper()
	ca, err := pki.NewCA(time.Now(), "test", nil)
	require.NoError(s.t, err)
	pair, err := pki.Issue(ca, pki.Request{CommonName: "service", Names: pki.ServiceNames("default-keystone", namespace), NotBefore: time.Now()})
	require.NoError(s.t, err)
	key, err := pair.KeyPEM()
	require.NoError(s.t, err)
	certs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "certs"},
		Data: map[string][]byte{"ca.crt": ca.CertPEM(), "service.crt": pair.CertPEM(), "service.key": key}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "default-keystone"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "default-keystone"}, Ports: []corev1.ServicePort{{Port: 30510}}}}
	if _, err := s.client.CoreV1().Secrets(namespace).Create(s.t.Context(), certs, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.client.CoreV1().Services(namespace).Create(s.t.Context(), service, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	config := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "config"}}
	if _, err := s.client.CoreV1().Secrets(namespace).Create(s.t.Context(), config, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.config(db, "")
	return ca
}

func (s scene) config(db *mariadb.Server, more string) {
	s.t.Helper()
	text := fmt.Sprintf(`region: region0
port: 30510
admin_port: 30511
enable_ssl: true
ssl_ca_certs: /etc/yunion/pki/ca.crt
ssl_certfile: /etc/yunion/pki/service.crt
ssl_keyfile: /etc/yunion/pki/service.key
bootstrap_admin_user_password: secret1234
sql_connection: mysql+pymysql://root:%s@%s/keystone?charset=utf8&parseTime=true&interpolateParams=true
%s`, db.RootPassword, db.Addr(), more)
	config := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Data: map[string][]byte{"keystone.conf": []byte(text)}}
	if _, err := s.client.CoreV1().Secrets(namespace).Update(s.t.Context(), config, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s scene) create(d *appsv1.Deployment) {
	s.t.Helper()
	if _, err := s.client.AppsV1().Deployments(namespace).Create(s.t.Context(), d, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s scene) delete(name string) {
	s.t.Helper()
	require.NoError(s.t, s.client.AppsV1().Deployments(namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{}))
}

func (s scene) update(revision string) {
	s.t.Helper()
	if _, err := s.client.AppsV1().Deployments(namespace).Update(s.t.Context(), keystone(revision), metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s scene) eventually(what string, done func(context.Context) (bool, error)) {
	s.t.Helper()
	if err := wait.PollUntilContextTimeout(s.t.Context(), 20*time.Millisecond, time.Minute, true, done); err != nil {
		s.t.Fatalf("waiting until %s: %v\n%s", what, err, s.k.Log())
	}
}

// until waits for a condition of keystone's Deployment and its pod.
func (s scene) until(what string, done func(*corev1.Pod, *appsv1.Deployment) bool) {
	s.t.Helper()
	s.eventually(what, func(ctx context.Context) (bool, error) {
		d, err := s.client.AppsV1().Deployments(namespace).Get(ctx, "default-keystone", metav1.GetOptions{})
		if err != nil || d.Status.ObservedGeneration != d.Generation {
			return false, err
		}
		list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=default-keystone"})
		if err != nil || len(list.Items) == 0 {
			return done(nil, d), err
		}
		return done(&list.Items[0], d), nil
	})
}

func (s scene) available(name string) func(*corev1.Pod, *appsv1.Deployment) bool {
	return func(*corev1.Pod, *appsv1.Deployment) bool {
		d, err := s.client.AppsV1().Deployments(namespace).Get(s.t.Context(), name, metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas
	}
}

// answers connects to the Service by its name, as an operator outside the cluster does.
func (s scene) answers(ca pki.Pair) {
	s.t.Helper()
	conn, err := s.k.Dial(s.t.Context(), "tcp", "default-keystone.onecloud.svc:30510")
	require.NoError(s.t, err)
	defer conn.Close()
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	if err := tls.Client(conn, &tls.Config{ServerName: "default-keystone.onecloud.svc", RootCAs: roots}).HandshakeContext(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	if _, err := s.k.Dial(s.t.Context(), "tcp", "default-nobody.onecloud:1"); err == nil {
		s.t.Error("a Service that does not exist has an address")
	}
}

func deployment(name string, c corev1.Container) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{c}}},
	}}
}

func keystone(revision string) *appsv1.Deployment {
	main := corev1.Container{
		Name: "keystone", Image: "registry.example/keystone:v4.0.4", TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Command: []string{"/opt/yunion/bin/keystone", "--config", "/etc/yunion/keystone.conf"},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "certs", MountPath: "/etc/yunion/pki", ReadOnly: true}, {Name: "config", MountPath: "/etc/yunion", ReadOnly: true},
			{Name: "scratch", MountPath: "/scratch"}, {Name: "node", MountPath: "/opt/cloud"},
		},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/ping", Port: intstr.FromInt32(30510), Scheme: corev1.URISchemeHTTPS}}},
	}
	d := deployment("default-keystone", main)
	init := *main.DeepCopy()
	init.Name, init.Command, init.ReadinessProbe = "init", append(init.Command, "--auto-sync-table", "--exit-after-db-init"), nil
	d.Spec.Template.Annotations = map[string]string{"revision": revision}
	d.Spec.Template.Spec.InitContainers = []corev1.Container{init}
	d.Spec.Template.Spec.Volumes = []corev1.Volume{
		{Name: "certs", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "certs"}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "config",
			Items: []corev1.KeyToPath{{Key: "keystone.conf", Path: "keystone.conf"}}}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "node", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/opt/cloud"}}},
	}
	return d
}

func other() *appsv1.Deployment {
	return deployment("default-web", corev1.Container{Name: "web", Image: "nginx", Command: []string{"nginx"}})
}

// listens reports whether something listens on keystone's port.
func (s scene) listens() bool {
	conn, err := s.k.Dial(s.t.Context(), "tcp", "default-keystone:30510")
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// late delays the creation of one Pod, even if the client no longer waits for the response.
type late struct {
	next              http.RoundTripper
	armed             atomic.Bool
	asked, goOn, made chan struct{}
}

func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/pods") || !l.armed.CompareAndSwap(true, false) {
		return l.next.RoundTrip(r)
	}
	type answer struct {
		*http.Response
		error
	}
	answered := make(chan answer, 1)
	go func() {
		<-l.goOn
		response, err := l.next.RoundTrip(r.Clone(context.WithoutCancel(r.Context())))
		close(l.made)
		answered <- answer{response, err}
	}()
	close(l.asked)
	select {
	case a := <-answered:
		return a.Response, a.error
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
