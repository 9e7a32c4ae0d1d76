// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
)

// tokenTTL is the lifetime of a join token. The data get a new one when tokenMargin is left. It is short because the operator cannot revoke a token:
// permission to delete one is permission to delete every Secret in kube-system.
const (
	tokenTTL    = 2 * time.Hour
	tokenMargin = time.Hour
)

// Annotations of the Secret with bootstrap data. The last one names the join whose rejected token these data replace.
const (
	annotationExpires  = "onecloud.yunion.io/expires"
	annotationInputs   = "onecloud.yunion.io/inputs"
	annotationReplaces = "onecloud.yunion.io/replaces-token-of"
)

// groupOfNodes is the group that kubeadm allows to join.
const groupOfNodes = bootstrapapi.BootstrapDefaultGroup + ":kubeadm:default-node-token"

// Bootstrap is the controller that creates the data with which machines join. Its request is a machine.
type Bootstrap struct {
	Options

	mu sync.Mutex
	// known caches what was read about the cluster for machines of a namespace.
	known map[string]knownCluster
}

type knownCluster struct {
	bootstrap.Cluster
	read time.Time
}

// knownFor is how long the data about the cluster are reused for other machines: hundreds of them may be added at the same time.
const knownFor = 10 * time.Second

// clusterOf returns the data about the cluster that a machine needs, cached for a moment.
func (c *Bootstrap) clusterOf(ctx context.Context, m *v1alpha1.OnecloudMachine) (bootstrap.Cluster, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.known[m.Namespace]; ok && time.Since(k.read) < knownFor {
		return k.Cluster, nil
	}
	now, err := ClusterOf(ctx, c.Direct, m)
	if err == nil {
		c.known = map[string]knownCluster{m.Namespace: {now, time.Now()}}
	}
	return now, err
}

func (c *Bootstrap) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := &v1alpha1.OnecloudMachine{}
	if err := c.Client.Get(ctx, req.NamespacedName, m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // Kubernetes deletes the data with it
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.BootstrapSecret()}}
	there, err := kube.Find(ctx, c.Client, client.ObjectKeyFromObject(secret), secret, "the bootstrap data")
	if err != nil {
		return ctrl.Result{}, err
	}
	operations, _, err := operationsOn(ctx, c.Client, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	underway := joining(m, operations) != nil // another attempt or another pod needs them
	if m.DeletionTimestamp != nil || m.Status.NodeRef != nil && !underway || len(m.Finalizers) == 0 {
		if there && belongs(secret, m) && m.Status.NodeRef != nil && !underway { // they have been used
			return ctrl.Result{}, client.IgnoreNotFound(c.Client.Delete(ctx, secret))
		}
		return ctrl.Result{}, nil
	}
	cloud := &v1alpha1.OnecloudCluster{}
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.Cloud}, cloud); err != nil {
		return ctrl.Result{RequeueAfter: remake}, conflicts(c.report(ctx, m, fmt.Errorf("reading cloud %s: %w", m.Spec.Cloud, err)))
	}
	var key sharedKey
	if m.ControlPlane() {
		node := &corev1.Node{}
		switch err := c.Client.Get(ctx, client.ObjectKey{Name: m.Name}, node); {
		case err == nil && !(underway && joined(node, m)): // handed over, or another's Node: a new key would replace one that a join uses
			return ctrl.Result{RequeueAfter: remake}, nil
		case client.IgnoreNotFound(err) != nil:
			return ctrl.Result{}, fmt.Errorf("reading node %s: %w", m.Name, err)
		}
		if key, err = c.share(ctx, m, cloud); err != nil {
			return ctrl.Result{RequeueAfter: remake}, conflicts(c.report(ctx, m, err))
		}
	}
	cluster, err := c.clusterOf(ctx, m)
	if err != nil {
		return ctrl.Result{RequeueAfter: remake}, conflicts(c.report(ctx, m, err))
	}
	inputs, err := inputsOf(m, cloud, cluster, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	refused := refusal(operations)
	if there && belongs(secret, m) && secret.Annotations[annotationInputs] == inputs && accepted(secret, refused) {
		if left := time.Until(expires(secret)) - tokenMargin; left > 0 {
			return ctrl.Result{RequeueAfter: min(left, remake)}, conflicts(c.report(ctx, m, nil))
		}
	}
	notes := map[string]string{annotationInputs: inputs}
	if refused != "" {
		notes[annotationReplaces] = refused
	}
	cluster.Settings, cluster.CertificateKey = cloud.Spec.Machines.Settings, key.key
	return ctrl.Result{RequeueAfter: remake}, conflicts(c.report(ctx, m, c.make(ctx, m, cluster, notes, key)))
}

// remake is the delay before failed data are created again, and the interval at which data are compared with the cluster: its CAs may be replaced. A new
// cloud triggers an event.
const remake = time.Minute

// belongs reports whether a Secret holds the bootstrap data of a machine.
func belongs(s *corev1.Secret, m *v1alpha1.OnecloudMachine) bool { return metav1.IsControlledBy(s, m) }

// accepted reports whether the cluster has not rejected the token of bootstrap data. refused is the latest join with a rejected token, "" for none.
func accepted(s *corev1.Secret, refused string) bool {
	return refused == "" || s.Annotations[annotationReplaces] == refused
}

// expires returns when bootstrap data expire.
func expires(s *corev1.Secret) time.Time {
	t, err := time.Parse(time.RFC3339, s.Annotations[annotationExpires])
	if err != nil {
		return time.Time{}
	}
	return t
}

// inputsOf returns a digest of the inputs to the data of a machine.
func inputsOf(m *v1alpha1.OnecloudMachine, cloud *v1alpha1.OnecloudCluster, cluster bootstrap.Cluster, key sharedKey) (string, error) {
	text, err := json.Marshal([]any{m.Spec.Roles, m.Spec.Labels, m.Spec.HostNetworks, m.Spec.Settings, cloud.Spec.Machines.Settings, m.CallsIn(), key.key, cluster})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))[:16], nil
}

// make creates a token and the data with it. notes are annotations, to which it adds the token's expiry.
func (c *Bootstrap) make(ctx context.Context, m *v1alpha1.OnecloudMachine, cluster bootstrap.Cluster, notes map[string]string, key sharedKey) error {
	live := &corev1.Secret{}
	switch err := c.Direct.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.BootstrapSecret()}, live); {
	case err == nil && !belongs(live, m):
		return fmt.Errorf("writing the bootstrap data: Secret %s is not the operator's: name another one in spec.bootstrap.dataSecretName", live.Name)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading the bootstrap data: %w", err)
	}
	script, token, end, err := newScript(ctx, c.Client, m, cluster)
	if err != nil {
		return err
	}
	value, err := bootstrap.CloudConfig(script)
	if err != nil {
		return err
	}
	if m.ControlPlane() && key.expires.Before(end) {
		end = key.expires
	}
	if m.CallsIn() {
		if err := c.listen(ctx, m, token); err != nil {
			return err
		}
	}
	notes[annotationExpires] = end.Format(time.RFC3339)
	data := corev1ac.Secret(m.BootstrapSecret(), m.Namespace).
		WithLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelClusterName: m.Spec.Cloud}).
		WithAnnotations(notes).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(v1alpha1.MachineKind).
			WithName(m.Name).WithUID(m.UID).WithController(true)).
		WithType(corev1.SecretTypeOpaque).
		WithData(map[string][]byte{
			v1alpha1.BootstrapFormat: []byte("cloud-config"), v1alpha1.BootstrapValue: []byte(value), v1alpha1.BootstrapScript: []byte(script),
		})
	if err := c.Client.Apply(ctx, data, client.FieldOwner(v1alpha1.ManagerOperator), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing the bootstrap data: %w", err)
	}
	return nil
}

// newScript creates a token and the script with which a machine joins. The token is valid until end.
func newScript(ctx context.Context, c client.Client, m *v1alpha1.OnecloudMachine, cluster bootstrap.Cluster) (script, token string, end time.Time, err error) {
	if token, err = bootstraputil.GenerateBootstrapToken(); err != nil {
		return "", "", end, fmt.Errorf("generating a join token: %w", err)
	}
	if script, err = bootstrap.Script(m, cluster, token); err != nil {
		return "", "", end, err
	}
	end = time.Now().Add(tokenTTL).UTC().Truncate(time.Second)
	if err := c.Create(ctx, tokenSecret(token, m, end), client.FieldOwner(v1alpha1.ManagerOperator)); err != nil {
		return "", "", end, fmt.Errorf("creating a join token: %w", err)
	}
	return script, token, end, nil
}

// tokenSecret returns a join token in the form that kubeadm uses.
func tokenSecret(token string, m *v1alpha1.OnecloudMachine, end time.Time) *corev1.Secret {
	id, secret, _ := strings.Cut(token, ".")
	groups := groupOfNodes
	if m.CallsIn() {
		groups += "," + groupOfReports
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: bootstraputil.BootstrapTokenSecretName(id)},
		Type:       bootstrapapi.SecretTypeBootstrapToken,
		StringData: map[string]string{
			bootstrapapi.BootstrapTokenIDKey: id, bootstrapapi.BootstrapTokenSecretKey: secret,
			bootstrapapi.BootstrapTokenExpirationKey:       end.Format(time.RFC3339),
			bootstrapapi.BootstrapTokenUsageAuthentication: "true", bootstrapapi.BootstrapTokenUsageSigningKey: "true",
			bootstrapapi.BootstrapTokenExtraGroupsKey: groups,
			bootstrapapi.BootstrapTokenDescriptionKey: "of machine " + m.Namespace + "/" + m.Name,
		},
	}
}

// ClusterOf reads the data about its cluster that a machine needs.
func ClusterOf(ctx context.Context, c client.Reader, m *v1alpha1.OnecloudMachine) (bootstrap.Cluster, error) {
	var out bootstrap.Cluster
	info := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}, info); err != nil {
		return out, fmt.Errorf("reading how the cluster is reached: %w", err)
	}
	kc, err := clientcmd.Load([]byte(info.Data[bootstrapapi.KubeConfigKey]))
	if err != nil {
		return out, fmt.Errorf("reading how the cluster is reached: %w", err)
	}
	for _, cluster := range kc.Clusters {
		if u, err := url.Parse(cluster.Server); err == nil && u.Host != "" {
			out.Endpoint, out.CA = u.Host, cluster.CertificateAuthorityData
		}
	}
	if out.Endpoint == "" {
		return out, errors.New("reading how the cluster is reached: ConfigMap kube-public/cluster-info names no server")
	}
	k, err := readClusterConfiguration(ctx, c)
	if err != nil {
		return out, err
	}
	if at := k.ControlPlaneEndpoint; at != "" {
		if _, _, err := net.SplitHostPort(at); err != nil { // kubeadm stores it as given, and adds its port
			_, port, _ := net.SplitHostPort(out.Endpoint)
			at = net.JoinHostPort(strings.Trim(at, "[]"), port)
		}
		out.Endpoint = at
	}
	out.KubernetesVersion = k.KubernetesVersion
	out.ImageRepository, err = repository(ctx, c, m)
	// As in the output of "ocadm token create": the cloud's own repository has no images of Kubernetes.
	const usual = "registry.k8s.io"
	if k.ImageRepository != out.ImageRepository && (out.ImageRepository != "" || k.ImageRepository != usual) {
		out.KubernetesImageRepository = k.ImageRepository
	}
	return out, err
}

// clusterConfiguration is the relevant part of the configuration that kubeadm keeps in the cluster.
type clusterConfiguration struct {
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint"`
	ImageRepository      string `json:"imageRepository"`
	KubernetesVersion    string `json:"kubernetesVersion"`
}

func readClusterConfiguration(ctx context.Context, c client.Reader) (clusterConfiguration, error) {
	var k clusterConfiguration
	config := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}
	if found, err := kube.Find(ctx, c, key, config, "the cluster's configuration"); !found { // join finds it by itself
		return k, err
	}
	if err := yaml.Unmarshal([]byte(config.Data["ClusterConfiguration"]), &k); err != nil {
		return k, fmt.Errorf("reading the cluster's configuration: %w", err)
	}
	return k, nil
}

// repository returns the repository of all images, "" if init was given none.
func repository(ctx context.Context, c client.Reader, m *v1alpha1.OnecloudMachine) (string, error) {
	cm := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: m.Namespace, Name: bootstrap.SettingsName}
	if found, err := kube.Find(ctx, c, key, cm, "the settings of the cluster"); !found {
		return "", err
	}
	var settings struct {
		ImageRepository string `json:"imageRepository"`
	}
	if err := yaml.Unmarshal([]byte(cm.Data[bootstrap.SettingsKey]), &settings); err != nil {
		return "", fmt.Errorf("reading the settings of the cluster in ConfigMap %s: %w", cm.Name, err)
	}
	return settings.ImageRepository, nil
}

// reasonMade is the condition's reason while there are data.
const reasonMade = "Made"

// report writes the condition. For a new machine, the other controller writes it along with the first phase.
func (c *Bootstrap) report(ctx context.Context, m *v1alpha1.OnecloudMachine, made error) error {
	if made == nil && m.Status.Phase == "" {
		return nil
	}
	after := m.DeepCopy()
	is := metav1.Condition{Type: v1alpha1.ConditionBootstrapDataReady, Status: metav1.ConditionTrue, Reason: reasonMade, ObservedGeneration: m.Generation}
	if made != nil {
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, "NotMade", made.Error()
		if l := finding.Of(made); len(l) > 0 {
			is.Reason, is.Message = reason(l[0].Code), sentence(l[0].Code, l[0].What, l[0].Cause, l[0].Remedy)
		}
	} else {
		after.Status.DataSecretName, after.Status.Initialization.DataSecretCreated = m.BootstrapSecret(), true
	}
	meta.SetStatusCondition(&after.Status.Conditions, is)
	if equality.Semantic.DeepEqual(after.Status, m.Status) {
		return nil
	}
	if err := c.Client.Status().Patch(ctx, after, kube.IfUnchanged(m), client.FieldOwner(v1alpha1.ManagerOperator)); err != nil {
		return fmt.Errorf("writing the status of machine %s: %w", m.Name, err)
	}
	return nil
}
