// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

func service(in component.Inputs, s component.Service) *corev1.Service {
	out := &corev1.Service{ObjectMeta: meta(in, s.NameSuffix), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: ComponentLabels(in)}}
	out.Annotations = maps.Clone(s.Annotations)
	if s.ClusterIP || s.Headless || in.Self.Internal {
		out.Spec.Type = corev1.ServiceTypeClusterIP
	}
	if s.Headless {
		out.Spec.ClusterIP = corev1.ClusterIPNone
		// Members must find each other before they are ready.
		out.Spec.PublishNotReadyAddresses = true
	}
	for _, p := range s.Ports {
		number := in.Self.NodePorts[s.NameSuffix+p.Name]
		port := corev1.ServicePort{Name: p.Name, Protocol: corev1.ProtocolTCP, Port: number, TargetPort: intstr.FromInt32(target(in, s, p))}
		if p.NodePort > 0 {
			port.Port = p.Port
		}
		if out.Spec.Type == corev1.ServiceTypeNodePort {
			port.NodePort = number
		}
		out.Spec.Ports = append(out.Spec.Ports, port)
	}
	return out
}

func ingresses(in component.Inputs) []client.Object {
	k := in.Self.Ingress
	if k == nil {
		return nil
	}
	out := &networkingv1.Ingress{ObjectMeta: meta(in, "")}
	out.Annotations = maps.Clone(k.Annotations)
	if class := in.Cluster.Spec.IngressClassName; class != "" {
		out.Spec.IngressClassName = &class
	}
	certs := v1alpha1.SecretCerts
	if in.CertSupplied { // the user's Secret need not have the keys that an Ingress reads
		certs = v1alpha1.SecretIngressCerts
	}
	out.Spec.TLS = []networkingv1.IngressTLS{{SecretName: in.Cluster.Object(certs)}}
	out.Spec.Rules = []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
		Paths: []networkingv1.HTTPIngressPath{{
			Path: cmp.Or(k.Path, "/"), PathType: new(networkingv1.PathTypePrefix),
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: in.Cluster.Object(in.Self.Name), Port: networkingv1.ServiceBackendPort{Number: in.Cluster.NodePort(in.Self.Name, k.Port)},
			}},
		}},
	}}}}
	return []client.Object{out}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
