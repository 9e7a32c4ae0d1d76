// SPDX-License-Identifier: Apache-2.0

// Package catalog lists the cloud's components: one file and one value each. It describes them; other packages create them.
package catalog

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

// All returns all components, in reading order. The order of deployment follows from After.
func All() []component.Component {
	return []component.Component{
		etcd(),
		keystone(),
		region(),
		scheduler(),
		glance(),
		logger(),
		yunionconf(),
		yunionagent(),
		apigateway(),
		web(),
		webconsole(),
		climc(),
		notify(),
		scheduledtask(),
		apimap(),
		regionDNS(),
		kubeserver(),

		victoriaMetrics(),
		influxdb(),
		telegraf(),
		monitor(),
		cloudmon(),
		monitorStack(),

		ansibleserver(),
		devtool(),
		cloudid(),
		cloudevent(),
		cloudproxy(),
		cloudnet(),
		cloudmux(),
		s3gateway(),
		minio(),
		serviceOperator(),

		llm(),
		mcpServer(),
		aiproxy(),

		host(),
		hostDeployer(),
		hostImage(),
		hostHealth(),
		sdnAgent(),
		ovnNorth(),
		vpcagent(),
		ovsImage(),
		ovsdbServer(),
		ovsVswitchd(),
		ovnController(),
		lbagent(),
		baremetalAgent(),
		esxiAgent(),

		meter(),
		billing(),
		suggestion(),
		report(),
		echartsSSR(),
		autoupdate(),
		bastionhost(),
		extdb(),
		itsm(),

		backup(),
	}
}

// cloudCritical is the priority of services without which the cloud is useless: a full node evicts other pods first. The class is built into Kubernetes.
const cloudCritical = "system-cluster-critical"

// The reasons why some components run once.
const (
	closedSource = "its source is not public, so it is not known whether two copies can serve at once"
	ownVolume    = "its data is in a volume with one writer"
)

// Values that many components share.
var (
	apiGroups = []component.Group{component.GroupTLS, component.GroupCommon, component.GroupDB}
	// withClickHouse allows the operation log in ClickHouse.
	withClickHouse = append(apiGroups[:3:3], component.GroupClickHouse)
	noDatabase     = []component.Group{component.GroupTLS, component.GroupCommon}
	withHosts      = []component.Product{component.FullStack, component.Edge, component.LightEdge, component.AI}
	withAI         = []component.Product{component.FullStack, component.CMP, component.Edge, component.AI}
	withoutAI      = []component.Product{component.FullStack, component.CMP, component.Edge}
	// notOnSite lists the products that manage other clouds, only or in addition.
	notOnSite = []component.Product{component.FullStack, component.CMP}
	eeOnly    = []component.Edition{component.EE}
	eeSupport = []component.Edition{component.EE, component.CESupport}
	// ingressOverHTTPS informs an ingress controller that the pods behind a Service use HTTPS.
	ingressOverHTTPS = map[string]string{"traefik.ingress.kubernetes.io/service.serversscheme": "https"}
)

// The service accounts of pods that use the Kubernetes API (templates/operator/namespace).
const (
	clusterAdmin = "onecloud-cluster-admin"
	nodeReader   = "onecloud-node-reader"
	cloudEditor  = "onecloud-cloud-editor"
	regionRights = "onecloud-region"
)

// Get returns a component, and whether there is one of that name.
func Get(name string) (component.Component, bool) {
	all := All()
	if i := slices.IndexFunc(all, func(c component.Component) bool { return c.Name == name }); i >= 0 {
		return all[i], true
	}
	return component.Component{}, false
}

// Names returns the names of the components for which which returns true.
func Names(which func(component.Component) bool) []string {
	return lists.Pick(All(), func(c component.Component) (string, bool) { return c.Name, which(c) })
}

// NeededBy returns the components that wait for another one.
func NeededBy(name string) []string {
	return Names(func(c component.Component) bool { return slices.Contains(c.After, name) })
}

// syncTables returns the configuration of an ordinary service: it creates its tables when it starts.
func syncTables(component.Inputs) map[string]any { return map[string]any{"auto_sync_table": true} }

// unless returns the reason why a component is off, for a Gate.
func unless(open bool, why string) string {
	if open {
		return ""
	}
	return why
}

// usualRights is for images that run more than the cloud's one program: a web server, ssh, ansible, a Java VM.
func usualRights() *corev1.SecurityContext {
	return &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)}
}

// pings is for services that ping addresses through raw sockets.
func pings() *corev1.SecurityContext {
	s := usualRights()
	s.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_RAW"}}
	return s
}

var (
	blocks v1alpha1.OnecloudClusterSpec
	legacy v1alpha1.Legacy
)

// service adds the defaults of an ordinary service of the cloud to its entry. It uses the block and status key of its own name, if any, starts after keystone,
// runs the cloud's image, answers /ping, creates its tables when it starts (or in an init container with DBInit), and has a Service of its own name with
// one port.
func service(port int32, c component.Component) component.Component {
	// Services of the earlier API have their own block in the spec, and a key in the status; others are set in spec.components.
	if c.SpecKey == "" && blocks.Component(c.Name) != nil {
		c.SpecKey = c.Name
	}
	if c.StatusKey == "" && legacy.Workload(c.SpecKey) != nil {
		c.StatusKey = c.SpecKey
	}
	if c.After == nil {
		c.After = []string{"keystone"}
	}
	if c.Image.Name+c.Image.EE == "" {
		c.Image.Hyper = true
	}
	c.Workload.Ping = !c.Workload.Listens
	if c.Config == nil {
		c.Config = &component.Config{}
		if !c.Workload.DBInit {
			c.Config.Options = syncTables
		}
	}
	if c.Config.Groups == nil {
		c.Config.Groups = apiGroups
	}
	c.Service = cmp.Or(c.Service, &component.Service{})
	c.Service.Ports = apiPort(port).Ports
	if c.Endpoints == nil {
		c.Endpoints = []component.Endpoint{{Service: c.Name, Type: c.Name}}
	}
	return c
}

// apiPort returns the Service of an ordinary API: one port, published on every node under its own number.
func apiPort(number int32) *component.Service {
	return &component.Service{Ports: []component.Port{{Name: "api", Port: number, SpecKey: "service.nodePort"}}}
}

func httpsGet(path string, port int32, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTPS,
		}},
		PeriodSeconds: period, TimeoutSeconds: 3, FailureThreshold: 3,
	}
}
