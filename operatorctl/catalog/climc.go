// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

func climc() component.Component {
	return component.Component{
		Name: "climc", SpecKey: "climc", Summary: "command line of the cloud",
		Single: "a shell for administrators; no service depends on it",
		After:  []string{"keystone", "region"}, // its entry point requests an SSH key from region, and exits without an answer
		Image:  component.Image{EE: "climc-ee", EEFor: eeSupport},
		// Its entry point runs dropbear on port 22. The console opens its shells there: dropbear sets the user and groups of each.
		Workload: component.Workload{Command: []string{"bash", "/opt/climc-entrypoint.sh"}, Env: climcEnv, Security: usualRights()},
		Config:   &component.Config{Plain: "rcadmin.tmpl", File: "rcadmin", Reads: []string{component.BootstrapPassword}},
	}
}

func climcEnv(in component.Inputs) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "OS_USERNAME", Value: "sysadmin"},
		{Name: "OS_PROJECT_NAME", Value: "system"},
		{Name: "OS_REGION_NAME", Value: in.Cluster.Region},
		{Name: "OS_AUTH_URL", Value: in.Cluster.AuthURL()},
		{Name: "YUNION_INSECURE", Value: "true"},
		{Name: "EDITOR", Value: "vim"},
		{Name: "OS_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: in.Cluster.Object(v1alpha1.SecretCredentials)},
			Key:                  component.BootstrapPassword,
		}}},
	}
}
