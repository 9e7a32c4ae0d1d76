// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/child"
	"yunion.io/x/ocadm/test/integration/harness"
)

// Small lists the components of a small cloud, which has every kind of effect and nearly every kind of object.
var Small = []string{"keystone", "region", "glance", "yunionconf", "web", "etcd", "host-deployer"}

// Minimal returns the cloud of the quickstart, not yet created: a database, a region, a version, an address.
func (e *Env) Minimal() *v1alpha1.OnecloudCluster {
	cr := e.CloudAt(e.DB.Host, e.DB.Port)
	cr.Spec.MySQL.Password = e.DB.RootPassword
	return cr
}

// Only returns Minimal with all but the given components disabled.
func (e *Env) Only(components ...string) *v1alpha1.OnecloudCluster {
	return harness.Only(e.Minimal(), components...)
}

// CloudAt returns a cloud with the given database server, not yet created.
func (e *Env) CloudAt(host string, port int) *v1alpha1.OnecloudCluster {
	return &v1alpha1.OnecloudCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: Name},
		Spec: v1alpha1.OnecloudClusterSpec{
			MySQL:  v1alpha1.DatabaseServer{Host: host, Port: int32(port), Username: "root", Password: "none"},
			Region: "region0", Version: "v4.0.4", LoadBalancerEndpoint: "127.0.0.1",
		},
	}
}

// Install starts an operator, creates a cloud and waits until it is Ready.
func (e *Env) Install(cr *v1alpha1.OnecloudCluster, changes ...func(*Launch)) {
	e.Helper()
	e.StartOperator(changes...)
	e.Create(cr)
	e.UntilReady()
}

// Create creates an object, by default in the namespace of the cloud.
func (e *Env) Create(o client.Object) {
	e.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace(e.Namespace)
	}
	e.Must(e.Client.Create(e.Context(), o, client.FieldOwner("kubectl-create")))
}

// TryCloud returns the current cloud, nil if there is none.
func (e *Env) TryCloud() *v1alpha1.OnecloudCluster {
	e.Helper()
	cr := &v1alpha1.OnecloudCluster{}
	// It may explain a failed test, whose own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), 30*time.Second)
	defer cancel()
	err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: Name}, cr)
	if client.IgnoreNotFound(err) != nil {
		e.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return cr
}

// Cloud returns the current cloud.
func (e *Env) Cloud() *v1alpha1.OnecloudCluster {
	e.Helper()
	cr := e.TryCloud()
	if cr == nil {
		e.Fatal("there is no cloud")
	}
	return cr
}

// Get reads an object in the namespace of the cloud.
func (e *Env) Get(o client.Object, name string) {
	e.Helper()
	e.Must(e.Client.Get(e.Context(), client.ObjectKey{Namespace: e.Namespace, Name: name}, o))
}

// Edit changes the cloud as kubectl edit does.
func (e *Env) Edit(patch string) {
	e.Helper()
	e.EditObject(e.CloudAt("", 0), Name, patch)
}

// MoveAtOnce changes the version of the cloud and updates all components at the same time, without an operation.
func (e *Env) MoveAtOnce(version string) {
	e.Helper()
	e.Edit(fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}},"spec":{"version":%q}}`, v1alpha1.AnnotationAtOnce, e.Cloud().Status.Release.Revision, version))
}

// EditObject changes an object as kubectl edit does.
func (e *Env) EditObject(o client.Object, name, patch string) {
	e.Helper()
	o.SetNamespace(e.Namespace)
	o.SetName(name)
	e.Must(e.Client.Patch(e.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit")))
}

// SetImage sets the image of the first container of a Deployment, behind the operator's back.
func (e *Env) SetImage(name, image string) {
	e.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}}
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image)
	e.Must(e.Client.Patch(e.Context(), d, client.RawPatch(types.JSONPatchType, []byte(patch)), client.FieldOwner("kubectl-edit")))
}

// Until watches an object until a condition holds. The condition gets nil while the object does not exist.
func (e *Env) Until(o client.Object, name string, cond kube.Condition) {
	e.Helper()
	o.SetNamespace(e.Namespace)
	o.SetName(name)
	ctx, cancel := context.WithTimeout(e.Context(), Patience)
	defer cancel()
	if err := kube.WaitFor(ctx, e.Client, o, cond, func(string) {}); err != nil {
		e.Fatalf("%v\n%s\noperator:\n%s", err, States(e.TryCloud()), e.Tail(12))
	}
}

// UntilThere waits until an object exists.
func (e *Env) UntilThere(o client.Object, name string) {
	e.Helper()
	e.Until(o, name, func(o client.Object) (bool, string) { return o != nil, "there is none" })
}

// UntilGone waits until an object does not exist.
func (e *Env) UntilGone(o client.Object, name string) {
	e.Helper()
	e.Until(o, name, func(o client.Object) (bool, string) { return o == nil, "it is still there" })
}

// UntilCloud waits until is returns true for the cloud.
func (e *Env) UntilCloud(is func(*v1alpha1.OnecloudCluster) bool) {
	e.Helper()
	e.Until(&v1alpha1.OnecloudCluster{}, Name, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		return ok && is(cr), "the cloud is not as wanted"
	})
}

// UntilComponent waits until is returns true for a component.
func (e *Env) UntilComponent(name string, is func(v1alpha1.ComponentStatus) bool) {
	e.Helper()
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool { return is(Component(cr, name)) })
}

// UntilReady waits until every component of the cloud's current generation is Available.
func (e *Env) UntilReady() {
	e.Helper()
	e.UntilCloud(IsReady)
}

// UntilRolled waits until the pods of a Deployment belong to a later generation.
func (e *Env) UntilRolled(name string, from int64) {
	e.Helper()
	e.Until(&appsv1.Deployment{}, name, func(o client.Object) (bool, string) {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Generation > from && d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == d.Status.Replicas &&
			d.Status.AvailableReplicas == d.Status.Replicas, "the pods have not followed"
	})
}

// UntilImage waits until the workload of a component runs an image.
func (e *Env) UntilImage(component, want string) {
	e.Helper()
	e.Until(&appsv1.Deployment{}, Name+"-"+component, func(o client.Object) (bool, string) {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Spec.Template.Spec.Containers[0].Image == want, "the image is not " + want
	})
}

// Delete deletes the cloud and waits until it is gone.
func (e *Env) Delete() {
	e.Helper()
	e.Must(e.Client.Delete(e.Context(), e.CloudAt("", 0)))
	e.UntilGone(&v1alpha1.OnecloudCluster{}, Name)
}

// Deployments returns the Deployments of the cloud by component.
func (e *Env) Deployments() map[string]*appsv1.Deployment {
	e.Helper()
	all := e.list(e.Context(), &appsv1.Deployment{}, client.HasLabels{v1alpha1.LabelComponent})
	return lists.Index(all, func(o client.Object) (string, *appsv1.Deployment) {
		return o.GetLabels()[v1alpha1.LabelComponent], o.(*appsv1.Deployment)
	})
}

// Credentials returns the passwords that the operator generated.
func (e *Env) Credentials() map[string][]byte {
	e.Helper()
	s := &corev1.Secret{}
	e.Get(s, Name+"-"+v1alpha1.SecretCredentials)
	return s.Data
}

// Component returns the status of a component.
func Component(cr *v1alpha1.OnecloudCluster, name string) v1alpha1.ComponentStatus {
	c := lists.First(cr.Status.Components, func(c v1alpha1.ComponentStatus) bool { return c.Name == name })
	c.Name = name
	return c
}

// IsReady reports whether every component of the cloud's current generation is Available.
func IsReady(cr *v1alpha1.OnecloudCluster) bool {
	if cr == nil {
		return false
	}
	c := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == cr.Generation && cr.Status.ObservedGeneration == cr.Generation
}

// States returns the states of the components and the conditions of a cloud.
func States(cr *v1alpha1.OnecloudCluster) string {
	if cr == nil {
		return "there is no cloud"
	}
	var b strings.Builder
	for _, c := range cr.Status.Components {
		if c.State != v1alpha1.Disabled {
			fmt.Fprintf(&b, "  %-12s %-12s %-10s %s: %s\n", c.Name, c.State, c.Version, c.Reason, c.Message)
		}
	}
	for _, c := range cr.Status.Conditions {
		fmt.Fprintf(&b, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}

// Tail returns the last lines of the operator's log.
func (e *Env) Tail(lines int) string { return child.LastLines(e.Said(), lines) }

// explain logs details after a failed test.
func (e *Env) explain() {
	e.T.Logf("operator:\n%s", e.Tail(60))
	if data, err := os.ReadFile(filepath.Join(e.Cluster.Dir, "kube-controller-manager.log")); err == nil {
		e.T.Logf("controller-manager:\n%s", child.LastLines(string(data), 30))
	}
	if e.Pods != nil {
		e.T.Logf("the programs:\n%s", child.LastLines(e.Pods.Log(), 80))
	}
	e.T.Logf("the cloud:\n%s", States(e.TryCloud()))
}

// Operation creates an operation of the cloud.
func (e *Env) Operation(name string, spec v1alpha1.OnecloudOperationSpec) *v1alpha1.OnecloudOperation {
	e.Helper()
	spec.Cloud = Name
	o := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	e.Create(o)
	return o
}

// Operations returns the operations of the cloud, the latest last.
func (e *Env) Operations() []*v1alpha1.OnecloudOperation {
	e.Helper()
	all, err := operation.Of(e.Context(), e.Client, client.ObjectKey{Namespace: e.Namespace, Name: Name})
	e.Must(err)
	return all
}

// UntilOperation waits until an operation is as wanted.
func (e *Env) UntilOperation(name string, wanted func(*v1alpha1.OnecloudOperation) bool) (last *v1alpha1.OnecloudOperation) {
	e.Helper()
	e.Until(&v1alpha1.OnecloudOperation{}, name, func(object client.Object) (bool, string) {
		o, there := kube.As[v1alpha1.OnecloudOperation](object)
		if !there {
			return false, "it does not exist"
		}
		last = o.DeepCopy()
		return wanted(o), fmt.Sprintf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
	})
	return last
}

// Ended reports whether an operation has ended.
func Ended(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase.Final() }

// LoginSecret is the name of the Secret with the key, which Joinable writes.
const LoginSecret = "login"

// Joinable prepares the cluster for joining machines, as kubeadm leaves it. key is the login key for the machines.
func (e *Env) Joinable(key []byte) {
	e.Helper()
	authority, err := pki.NewCA(time.Now(), "kubernetes", nil)
	e.Must(err)
	config := map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: 192.0.2.1:6443\nkubernetesVersion: v1.36.3\nimageRepository: registry.k8s.io\n"}
	info := map[string]string{"kubeconfig": fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: %s}\n",
		base64.StdEncoding.EncodeToString(authority.CertPEM()))}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"}, Data: config},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: info},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: LoginSecret}, Data: map[string][]byte{v1alpha1.SecretKeyPrivate: key}},
	} {
		e.Must(client.IgnoreAlreadyExists(e.Client.Create(e.Context(), o)))
	}
}

var inScript = regexp.MustCompile(`"onecloud.yunion.io/machine=([^"]*)".*"name":"([^"]*)"`)

// Register plays ocadm join: it creates the Ready Node of the machine for which the bootstrap script was made.
func (e *Env) Register(ctx context.Context, script string) error {
	found := inScript.FindStringSubmatch(script)
	if found == nil {
		return errors.New("the script has no configuration")
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: found[2], Labels: map[string]string{v1alpha1.LabelMachine: found[1]}}}
	if err := client.IgnoreAlreadyExists(e.Client.Create(ctx, n)); err != nil {
		return err
	}
	status := `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.7"}],"conditions":[{"type":"Ready","status":"True"}]}}`
	return e.Client.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(status)))
}
