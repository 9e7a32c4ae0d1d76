// SPDX-License-Identifier: Apache-2.0

package component

// Service is the Kubernetes Service <cluster>-<Name>: NodePort by default, port = nodePort = targetPort.
type Service struct {
	Ports []Port
	// ClusterIP instead of NodePort; Headless for ClusterIP None.
	ClusterIP, Headless bool
	// NameSuffix for a second Service ("-client").
	NameSuffix  string
	Annotations map[string]string
	// More are further Services.
	More []Service
}

// Port of a Service. TargetPort and NodePort 0 mean the same number as Port; a number of the CR then replaces all three.
type Port struct {
	Name                       string
	Port, TargetPort, NodePort int32
	// SpecKey is the JSON path below the component's block that overrides the number: "service.nodePort". "" = fixed.
	SpecKey string
}

// Endpoint is an address in the identity service's catalogue. The host of the public interface is the load balancer,
// that of the others the component's Service.
type Endpoint struct {
	Service, Type string
	// Port "" = first port of the Service, else a port's name. Path "" or "/v3".
	Port, Path string
	// ServiceSuffix names a further Service of the component ("-client"): it is the one that is addressed.
	ServiceSuffix string
	// Certificate is the name of a client certificate in the identity service, for whoever uses this address.
	Certificate string
	// Scheme "" = https.
	Scheme string
	// Interfaces; nil = public and internal, plus a disabled slave where ReadReplicas is set.
	Interfaces []string
	// URL is a complete fixed address instead.
	URL string
}

// CatalogService is a catalogue record without endpoints.
type CatalogService struct{ Name, Type string }

// Ingress for the component's Service.
type Ingress struct {
	Port        string
	Path        string // "" = /
	Annotations map[string]string
}
