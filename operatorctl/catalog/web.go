// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"yunion.io/x/ocadm/operatorctl/component"
)

func web() component.Component {
	return component.Component{
		Name: "web", SpecKey: "web", StatusKey: "web", Summary: "web console",
		// nginx resolves its upstreams when it starts; all Services are created before any workload.
		After: []string{"apigateway"},
		Image: component.Image{EE: "web-ee", EEFor: eeSupport},
		Workload: component.Workload{
			Command:  []string{"nginx", "-g", "daemon off;"},
			Probe:    httpsGet("/ocadm-ping", 443, 5),
			Security: usualRights(),
			Sidecars: []component.Sidecar{extraPage("overview", "web.Overview", "dashboard-overview", 8080), extraPage("docs", "web.Docs", "docs-ee", 8081)},
		},
		Config: &component.Config{Plain: "web.conf.tmpl", File: "default.conf", Dir: "/etc/nginx/conf.d"},
		Service: &component.Service{
			ClusterIP: true, Annotations: ingressOverHTTPS,
			Ports: []component.Port{{Name: "http", Port: 80}, {Name: "https", Port: 443}},
		},
		Ingress: &component.Ingress{Port: "https", Annotations: map[string]string{"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}},
		Adapt:   adaptWeb,
	}
}

// extraPage serves a part of the console of the enterprise editions.
func extraPage(name, key, image string, port int32) component.Sidecar {
	return component.Sidecar{
		Name: name, SpecKey: key, Image: component.Image{Name: image}, Editions: eeOnly,
		Ports: []corev1.ContainerPort{{Name: name, ContainerPort: port, Protocol: corev1.ProtocolTCP}},
	}
}

// adaptWeb opens node ports where there is no ingress controller, and serves plain HTTP behind one that terminates TLS.
func adaptWeb(o *component.Objects, in component.Inputs) error {
	d, ok := o.Workload.(*appsv1.Deployment)
	if !ok {
		return fmt.Errorf("workload is a %T", o.Workload)
	}
	c := &d.Spec.Template.Spec.Containers[0]
	if in.Cluster.Spec.Web.UseHTTP {
		for _, p := range []*corev1.Probe{c.ReadinessProbe, c.StartupProbe} {
			p.HTTPGet.Port, p.HTTPGet.Scheme = intstr.FromInt32(80), corev1.URISchemeHTTP
		}
	}
	if in.Cluster.Spec.Web.HostPorts {
		for i := range c.Ports {
			c.Ports[i].HostPort = c.Ports[i].ContainerPort
		}
		if in.Self.Replicas == 1 {
			c.Lifecycle = nil // no other pod takes over meanwhile
		}
		// The old pod must release the ports before the new one can use them.
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromInt32(1))}
	}
	return nil
}
