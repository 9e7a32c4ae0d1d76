// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/lists"
)

// commonService is the record of the options that all services share.
const commonService = "common"

// storedTimeout bounds the requests to the identity service, which may be unreachable from here.
const storedTimeout = 5 * time.Second

// StoredOptions returns the options that the identity service stores for a service and for all services, under their names there. A stored value
// overrides the service's file.
func StoredOptions(ctx context.Context, c client.Client, cloud client.ObjectKey, service string) (map[string]any, error) {
	if service == "" {
		return nil, nil
	}
	id, err := identityOf(ctx, c, cloud)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, storedTimeout)
	defer cancel()
	out := map[string]any{}
	for _, record := range []string{service, commonService} {
		stored, err := id.GetServiceConfig(ctx, record)
		if err != nil && !identity.IsNotFound(err) {
			return nil, err
		}
		maps.Copy(out, stored["default"])
	}
	return out, nil
}

// identityOf logs in to the identity service of a cloud as its administrator.
func identityOf(ctx context.Context, c client.Client, cloud client.ObjectKey) (*identity.Client, error) {
	vars, err := RCAdmin(ctx, c, cloud)
	if err != nil {
		return nil, err
	}
	login := lists.Index(vars, func(v Variable) (string, string) { return v.Name, v.Value })
	certs := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: cloud.Namespace, Name: cloud.Name + "-" + v1alpha1.SecretCerts}, certs); err != nil {
		return nil, fmt.Errorf("reading the certificates of cloud %s: %w", cloud, err)
	}
	return identity.New(identity.Options{
		AuthURL: login["OS_AUTH_URL"], Username: login["OS_USERNAME"], Password: login["OS_PASSWORD"], Project: login["OS_PROJECT_NAME"],
		CAPEM: certs.Data["ca.crt"], ServerName: cloud.Name + "-keystone", Timeout: storedTimeout,
	})
}
