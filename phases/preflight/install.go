// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/nearest"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/operator"
)

// OldestKubernetes is the first release that supports the operator's manifests and the definition's rules.
const OldestKubernetes = "1.30.0"

// ClusterChecks check a cluster that others built before "operator install" changes it.
func ClusterChecks() []Check {
	judged := func(judge func(*config.Config, *host.Cluster) []finding.Finding) func(context.Context, *machine) []finding.Finding {
		return func(_ context.Context, m *machine) []finding.Finding { return judge(m.h.Config, m.h.Cluster) }
	}
	own := []Check{
		{Name: "ClusterVersion", Short: "the cluster runs Kubernetes 1.30 or later", Codes: []string{"OCA-4210"}, run: judged(clusterVersion)},
		{Name: "Permissions", Short: "the kubeconfig's account is allowed to apply what the operator needs", Codes: []string{"OCA-4211"},
			Timeout: accessTimeout, run: checkAccess},
		{Name: "Operators", Short: "no other operator, and no operator that Helm installed, manages clouds", Codes: []string{"OCA-7031"}, run: judged(otherOperators)},
		{Name: "Definition", Short: "the definition of OnecloudCluster is not of a later release", Codes: []string{"OCA-7032"}, run: judged(laterDefinition)},
		{Name: "StorageClass", Short: "a storage class for the cloud's volumes is known", Codes: []string{"OCA-5010"}, run: judged(checkStorageClass)},
		{Name: "IngressClass", Short: "it is known how the web console is reached", Codes: []string{"OCA-5011"}, run: judged(checkIngressClass)},
		{Name: "ControllerNodes", Short: "nodes that can run the cloud's services are known", Codes: []string{"OCA-7030"}, run: judged(checkNodes)},
		{Name: "OperatorImage", Short: "the nodes can get the operator's image, for their architecture", Codes: []string{"OCA-7033", "OCA-7034"},
			Timeout: operatorImageTimeout, run: checkOperatorImage},
	}
	return slices.Concat(own, databaseChecks(), settingsChecks())
}

// Choose fills in the settings for which the cluster or an earlier run leaves only one choice. It is pure except that it changes the configuration.
func Choose(c *config.Config, k *host.Cluster) {
	c.Addons.CNI, c.Addons.Storage, c.Addons.Ingress = config.None, config.None, config.None // the cluster has its own
	c.Node.Name, c.Node.AsController = "", true
	c.Node.RegistryAuth = cmp.Or(c.Node.RegistryAuth, k.RegistryAuth)
	keep(c, k.Settings)
	c.Cloud.StorageClass = cmp.Or(c.Cloud.StorageClass, chosen(k.StorageClasses))
	c.Cloud.IngressClass = cmp.Or(c.Cloud.IngressClass, chosen(k.IngressClasses))
	if fit := suitable(k.Nodes); len(c.Cloud.ControllerNodes) == 0 && len(withRole(k.Nodes)) == 0 && len(fit) == 1 {
		c.Cloud.ControllerNodes = fit
	}
}

// KeepStored copies what an earlier init stored in the cluster, and this one does not set. Without an answer of the cluster, it changes nothing.
func KeepStored(ctx context.Context, h *host.Host) {
	var k host.Cluster
	if h.Look(ctx, func(ctx context.Context, c client.WithWatch) error { return k.Stored(ctx, h, c) }) == nil {
		k.Settings.Database.Secret = addons.DatabaseName // another database server is given, with its password
		h.Config.Node.RegistryAuth = cmp.Or(h.Config.Node.RegistryAuth, k.RegistryAuth)
		keep(h.Config, k.Settings)
	}
	h.Reopen() // this run may replace the kubeconfig
}

// keep copies settings that an earlier run stored and this one does not set.
func keep(c *config.Config, was cluster.Options) {
	if was.Database.Host == "" {
		return // nothing is stored
	}
	if was.Database.Secret != addons.DatabaseName && c.Database.Host == "" && c.Cloud.Version != "" {
		c.Database.Host, c.Database.Port, c.Database.User = was.Database.Host, was.Database.Port, was.Database.Username
		c.Database.TLS, c.Database.CA = was.Database.TLS, was.Database.CA
	}
	for key, stored := range map[string]any{
		"cloud.name": was.Name, "cloud.namespace": was.Namespace, "cloud.region": was.Region, "cloud.zone": was.Zone, "cloud.edition": was.Edition,
		"cloud.productVersion": was.ProductVersion, "cloud.profile": was.Profile, "cloud.useHyperImage": was.UseHyperImage, "cloud.ingressClass": was.IngressClass,
		"cloud.disableResourceManagement": was.DisableResourceManagement, "cloud.loadBalancerEndpoint": was.LoadBalancerEndpoint, "cluster.imageRepository": was.ImageRepository,
	} {
		if stored != "" && !c.Gives(key) {
			reflect.ValueOf(config.Field(c, key)).Elem().Set(reflect.ValueOf(stored))
		}
	}
	c.Cloud.StorageClass = cmp.Or(c.Cloud.StorageClass, was.StorageClass, config.DefaultStorageClass)
	if was.StorageClass != "" && !c.Gives("addons.storage") { // the class of another provisioner
		c.Addons.Storage = config.None
	}
	if (was.WebHostPorts || was.IngressClass != "" && was.IngressClass != "traefik") && !c.Gives("addons.ingress") {
		c.Addons.Ingress = config.None
	}
	if was.WebHostPorts && c.Addons.Ingress == config.None {
		c.Cloud.IngressClass = cmp.Or(c.Cloud.IngressClass, config.None)
	}
}

// chosen returns the default class, or the only one; "" if there is none, or there are several without a single default.
func chosen(classes []host.Class) string {
	defaults := slices.DeleteFunc(slices.Clone(classes), func(c host.Class) bool { return !c.Default })
	if len(defaults) == 0 {
		defaults = classes
	}
	if len(defaults) == 1 {
		return defaults[0].Name
	}
	return ""
}

// orWarning turns an error about something that only a cloud needs into a warning, unless this run prepares a cloud.
func orWarning(c *config.Config, f finding.Finding) []finding.Finding {
	if !c.AsksForCloud() {
		f.Severity = finding.Warning
	}
	return []finding.Finding{f}
}

// class returns the finding for a class that is not chosen or does not exist.
func class(c *config.Config, code, kind, flag, picked, none string, classes []host.Class) []finding.Finding {
	all := lists.Map(classes, func(c host.Class) string { return c.Name })
	slices.Sort(all)
	var f finding.Finding
	switch {
	case picked != "" && slices.Contains(all, picked):
		return nil
	case picked != "":
		f = finding.New(code, fmt.Sprintf("The cluster has no %s %s", kind, picked), "it has: "+cmp.Or(strings.Join(all, ", "), "none"),
			"kubectl get "+strings.ReplaceAll(kind, " ", "")+"es")
		if near, ok := nearest.To(picked, all); ok {
			f.Remedy = "did you mean " + flag + " " + near + "?"
		}
	case len(all) == 0:
		f = finding.New(code, "The cluster has no "+kind, "the list is empty", none)
	default:
		f = finding.New(code, fmt.Sprintf("It is not clear which %s the cloud should use", kind),
			fmt.Sprintf("the cluster has %s, and does not have exactly one default", strings.Join(all, ", ")), "choose one: "+flag+" "+all[0])
	}
	return orWarning(c, f)
}

func checkStorageClass(c *config.Config, k *host.Cluster) []finding.Finding {
	return class(c, "OCA-5010", "storage class", "--storage-class", c.Cloud.StorageClass,
		"install a storage provisioner that the cluster's platform offers, then run the command again", k.StorageClasses)
}

func checkIngressClass(c *config.Config, k *host.Cluster) []finding.Finding {
	if c.Cloud.IngressClass == config.None {
		return nil
	}
	return class(c, "OCA-5011", "ingress class", "--ingress-class", c.Cloud.IngressClass,
		"install an ingress controller, or let the console use ports 80 and 443 of controller nodes: --ingress-class none", k.IngressClasses)
}

func clusterVersion(_ *config.Config, k *host.Cluster) []finding.Finding {
	v, err := version.ParseGeneric(k.Version)
	if err == nil && v.AtLeast(version.MustParseGeneric(OldestKubernetes)) {
		return nil
	}
	return []finding.Finding{finding.New("OCA-4210", "The cluster's Kubernetes is too old",
		"the API server is "+k.Version+", and the operator needs 1.30 or later", "update the cluster with the tool that built it")}
}

// otherOperators rejects other operators, because two would undo each other's work, and other installers, because each would take fields from the other.
func otherOperators(_ *config.Config, k *host.Cluster) []finding.Finding {
	var out []finding.Finding
	for _, d := range k.Operators {
		at := d.Namespace + "/" + d.Name
		switch {
		case d.Namespace != operator.Namespace:
			out = append(out, finding.New("OCA-7031", "Another operator manages clouds in this cluster", "Deployment "+at,
				"if it is not needed: kubectl -n "+d.Namespace+" delete deployment "+d.Name))
		case d.Labels[v1alpha1.LabelManagedBy] == "Helm":
			release := d.Annotations["meta.helm.sh/release-name"]
			out = append(out, finding.New("OCA-7031", "The operator was installed with Helm", "Deployment "+at+" belongs to release "+release,
				"ocadm operator manifests --chart DIR && helm -n "+operator.Namespace+" upgrade "+cmp.Or(release, "RELEASE")+" DIR"))
		case !ours(d):
			out = append(out, finding.New("OCA-7031", "The earlier operator manages clouds in this cluster", "Deployment "+at+" does not run ocadm",
				"follow \"Moving from the earlier operator\" in the documentation; it begins with: kubectl -n "+d.Namespace+" delete deployment "+d.Name))
		}
	}
	return out
}

// ours reports whether a Deployment runs "ocadm operator run".
func ours(d appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == operator.Name && len(c.Args) > 1 && c.Args[0] == "operator" && c.Args[1] == "run"
	})
}

func laterDefinition(c *config.Config, k *host.Cluster) []finding.Finding {
	if k.Definition == nil {
		return nil
	}
	live := revision(k.Definition.Annotations)
	objs, err := operator.Objects(c.OperatorImage())
	if err != nil {
		return []finding.Finding{finding.Errorf("OCA-7032", "The definition of OnecloudCluster cannot be compared", "report this as a bug", "%w", err)}
	}
	for _, o := range objs {
		if own := revision(o.GetAnnotations()); o.GetName() == k.Definition.Name && live > own {
			return []finding.Finding{finding.New("OCA-7032", "The definition of OnecloudCluster is of a later release",
				fmt.Sprintf("its revision is %d, and this ocadm has %d: fields that clouds use would be dropped", live, own),
				"use the ocadm that installed it, or a later one")}
		}
	}
	return nil
}

// revision returns the revision of a definition; 0 for the earlier operator's.
func revision(annotations map[string]string) int {
	n, err := strconv.Atoi(annotations[v1alpha1.AnnotationRevision])
	if err != nil {
		return 0
	}
	return n
}

// withRole returns the names of the nodes with the role controller.
func withRole(nodes []corev1.Node) []string {
	return lists.Pick(nodes, func(n corev1.Node) (string, bool) {
		return n.Name, n.Labels[v1alpha1.NodeRolePrefix+cluster.RoleController] == v1alpha1.Enable
	})
}

// suitable returns the names of the nodes that can run services of the cloud.
func suitable(nodes []corev1.Node) []string {
	return lists.Pick(nodes, func(n corev1.Node) (string, bool) { return n.Name, unfit(n) == "" })
}

// unfit returns why a node cannot run services of the cloud; "" if it can.
func unfit(n corev1.Node) string {
	info := n.Status.NodeInfo
	switch {
	case cmp.Or(info.OperatingSystem, "linux") != "linux":
		return "it runs " + info.OperatingSystem
	case !slices.Contains([]string{"", "amd64", "arm64"}, info.Architecture):
		return "its architecture is " + info.Architecture + ", and the cloud's images are for amd64 and arm64"
	case n.Spec.Unschedulable:
		return "it is cordoned"
	case !kube.NodeReady(&n):
		return "it is not Ready"
	}
	tolerated := []string{v1alpha1.LabelControlPlane, "node-role.kubernetes.io/controlplane", "node-role.kubernetes.io/master"} // by every pod of the cloud
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(tolerated, t.Key) {
			return "it has the taint " + t.ToString()
		}
	}
	return ""
}

func checkNodes(c *config.Config, k *host.Cluster) []finding.Finding {
	const code = "OCA-7030"
	wanted, fit := c.Cloud.ControllerNodes, suitable(k.Nodes)
	if len(wanted) == 0 {
		wanted = withRole(k.Nodes)
	}
	reasons := lists.Pick(k.Nodes, func(n corev1.Node) (string, bool) {
		why := unfit(n)
		return n.Name + ": " + why, why != ""
	})
	for _, name := range wanted {
		i := slices.IndexFunc(k.Nodes, func(n corev1.Node) bool { return n.Name == name })
		switch {
		case i < 0:
			return []finding.Finding{finding.New(code, "The cluster has no node "+name, "--controller-nodes names it", "kubectl get nodes")}
		case unfit(k.Nodes[i]) != "":
			return orWarning(c, finding.New(code, "Node "+name+" cannot run the cloud's services", unfit(k.Nodes[i]), "kubectl describe node "+name))
		}
	}
	switch {
	case len(wanted) > 0:
		return nil
	case len(fit) == 0:
		return orWarning(c, finding.New(code, "No node of the cluster can run the cloud's services", strings.Join(reasons, "; "),
			"kubectl describe nodes").With(reasons...))
	}
	return orWarning(c, finding.New(code, "It is not clear which nodes should run the cloud's services",
		"none has the label "+v1alpha1.NodeRolePrefix+cluster.RoleController+"="+v1alpha1.Enable+", and these could have it: "+strings.Join(fit, ", "),
		"choose one or more: --controller-nodes "+strings.Join(fit[:min(len(fit), 3)], ",")))
}
