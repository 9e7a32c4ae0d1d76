// SPDX-License-Identifier: Apache-2.0

package component

// Service is the Kubernetes Service <cluster>-<Name>: NodePort by default, port = nodePort = targetPort.
type Service struct {
	Ports []Port
	// ClusterIP replaces NodePort; Headless means ClusterIP None.
	ClusterIP, Headless bool
	// NameSuffix is for a second Service ("-client").
	NameSuffix  string
	Annotations map[string]string
	// More are further Services.
	More []Service
}

// Port is a port of a Service. TargetPort and NodePort default to Port; a number in the CR replaces all three.
type Port struct {
	Name                       string
	Port, TargetPort, NodePort int32
	// SpecKey is the JSON path below the component's block that overrides the number: "service.nodePort". "" = fixed.
	SpecKey string
}

// Endpoint is an address in the identity service's catalog. The host of the public interface is the load balancer, that of the others is the component's
// Service.
type Endpoint struct {
	Service, Type string
	// Port is a port name, "" = the first port of the Service. Path is "" or like "/v3".
	Port, Path string
	// ServiceSuffix selects a further Service of the component ("-client").
	ServiceSuffix string
	// Certificate is the name of a client certificate in the identity service for users of this address.
	Certificate string
	// Scheme defaults to https.
	Scheme string
	// Interfaces defaults to public and internal, plus a disabled slave if ReadReplicas is set.
	Interfaces []string
	// URL is a complete fixed address that replaces the others.
	URL string
}

// CatalogService is a catalog record without endpoints.
type CatalogService struct{ Name, Type string }

// Ingress is an Ingress for the component's Service.
type Ingress struct {
	Port        string
	Path        string // "" = /
	Annotations map[string]string
}
