// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// minio is an object store for images. kubeserver installs it in a separate namespace; the operator only requests it.
func minio() component.Component {
	return component.Component{
		Name: "minio", Summary: "object store for images, installed by kubeserver",
		Releases:    component.Releases{First: "v3.8.0"},
		Gate:        func(s component.Spec) string { return unless(s.Minio.Enable, "spec.minio.enable is not set") },
		After:       []string{"keystone", "kubeserver"},
		Workload:    component.Workload{Kind: component.NoWorkload},
		Credentials: []string{component.MinioSecretKey},
		EarlierCredentials: func(s component.Spec) map[string]string {
			if !s.Minio.Enable {
				return nil
			}
			return map[string]string{component.MinioSecretKey: "yunionminio@admin"} // from the earlier operator's source
		},
		Setup: []string{"minio"},
	}
}

// The address and the account of the object store that kubeserver creates.
const (
	minioAddress   = "minio.onecloud-minio.svc:9000"
	minioAccessKey = "minioadmin"
)

// minioOptions returns the options with which a service finds the object store, if there is one.
func minioOptions(in component.Inputs) map[string]any {
	if !in.Cluster.Spec.Minio.Enable {
		return nil
	}
	return map[string]any{"s3_endpoint": minioAddress, "s3_use_ssl": false, "s3_access_key": minioAccessKey}
}

func minioSecret(in component.Inputs) map[string]any {
	if !in.Cluster.Spec.Minio.Enable {
		return nil
	}
	return map[string]any{"s3_secret_key": in.Credentials[component.MinioSecretKey]}
}
