// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func apigateway() component.Component {
	return component.Component{
		Name: "apigateway", SpecKey: "apiGateway", StatusKey: "apiGateway", Summary: "API gateway of the web console",
		After: []string{"keystone"},
		Image: component.Image{EE: "apigateway-ee", EEFor: eeSupport, Hyper: true},
		Workload: component.Workload{
			ContainerName: "api", Ping: true, PriorityClass: cloudCritical, EECommand: gatewayCommand("yunionapi"),
			Sidecars: []component.Sidecar{{Name: "ws", Editions: eeSupport, Command: gatewayCommand("ws"), Mounts: true}},
			Mounts:   []component.Mount{{Name: "data", Path: "/etc/yunion/data"}},
		},
		Config:  &component.Config{Groups: []component.Group{component.GroupTLS, component.GroupCommon}, Options: apigatewayOptions},
		Account: &component.Account{User: "yunionapi"},
		Service: &component.Service{Ports: []component.Port{
			{Name: "api", Port: 30300, SpecKey: "apiService.nodePort"},
			{Name: "ws", Port: 30443, SpecKey: "wsService.nodePort"},
		}},
		Endpoints: []component.Endpoint{
			{Service: "yunionapi", Type: "yunionapi"},
			{Service: "websocket", Type: "websocket", Port: "ws"},
		},
	}
}

func apigatewayOptions(in component.Inputs) map[string]any {
	o := map[string]any{"ws_port": in.Cluster.NodePort("apigateway", "ws"), "show_captcha": true, "enable_totp": true}
	if hosts := in.Cluster.Spec.APIGateway.CorsHosts; len(hosts) > 0 {
		o["cors_hosts"] = hosts
	}
	return o
}

// gatewayCommand returns the command of the enterprise image, which splits the program in two.
func gatewayCommand(name string) []string {
	return []string{"/opt/yunion/bin/" + name, "--config", "/etc/yunion/apigateway.conf"}
}
