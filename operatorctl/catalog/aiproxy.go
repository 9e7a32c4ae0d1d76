// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func aiproxy() component.Component {
	return service(31513, component.Component{
		Name: "aiproxy", Summary: "gateway to language models",
		Single:   "it registers itself in its database as one node",
		Releases: component.Releases{First: "v4.0.4"},
		Products: withAI,
		Config:   &component.Config{Options: aiproxyOptions, Secrets: aiproxySecrets},
		Database: &component.Database{Name: "aiproxy"},
		Account:  &component.Account{User: "aiproxy-admin"},
		Service:  &component.Service{Annotations: ingressOverHTTPS},
		Ingress: &component.Ingress{Path: "/ai/", Annotations: map[string]string{
			"nginx.ingress.kubernetes.io/backend-protocol":   "HTTPS",
			"nginx.ingress.kubernetes.io/proxy-ssl-verify":   "off",
			"nginx.ingress.kubernetes.io/proxy-read-timeout": "600",
			"nginx.ingress.kubernetes.io/proxy-buffering":    "off",
		}},
	})
}

// aiproxyOptions returns the options. With the monitoring stack, its object store keeps the requests and answers.
func aiproxyOptions(in component.Inputs) map[string]any {
	o := syncTables(in)
	if in.Cluster.Runs(monitorStackName) {
		o["api_log_s3_endpoint"] = "http://" + monitorMinio
		o["api_log_s3_access_key"] = monitorMinioKey(in)
	}
	return o
}

func aiproxySecrets(in component.Inputs) map[string]any {
	if !in.Cluster.Runs(monitorStackName) {
		return nil
	}
	return map[string]any{"api_log_s3_secret_key": component.MonitorStack(in.Cluster.Spec).SecretKey(in.Credentials)}
}
