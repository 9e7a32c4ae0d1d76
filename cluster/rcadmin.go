// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
)

// Variable is one variable of the administrator's environment.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// keystonePort is the default node port of the identity service's public interface.
const keystonePort = 30500

// passwordKey is the administrator's password in Secret <cloud>-credentials.
const passwordKey = "keystone.bootstrap-password"

// RCAdmin returns the environment variables with which climc and other clients log in as the cloud's administrator.
func RCAdmin(ctx context.Context, c client.Client, key client.ObjectKey) ([]Variable, error) {
	_, cr, err := load(ctx, c, key)
	if err != nil {
		return nil, err
	}
	pw, err := password(ctx, c, cr)
	if err != nil {
		return nil, err
	}
	return rcadmin(cr, pw), nil
}

func rcadmin(cr *v1alpha1.OnecloudCluster, pw string) []Variable {
	host := cmp.Or(cr.Spec.LoadBalancerEndpoint, cr.Name+"-keystone."+cr.Namespace+".svc") // the latter resolves only inside the cluster
	port := cmp.Or(int(cr.Spec.Keystone.PublicService.NodePort), keystonePort)
	return []Variable{
		{"OS_AUTH_URL", "https://" + net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port)) + "/v3"},
		{"OS_USERNAME", "sysadmin"},
		{"OS_PASSWORD", pw},
		{"OS_PROJECT_DOMAIN", "default"},
		{"OS_PROJECT_NAME", "system"},
		{"YUNION_INSECURE", "true"},
		{"OS_REGION_NAME", cmp.Or(cr.Spec.Region, "region0")},
		{"OS_ENDPOINT_TYPE", "publicURL"},
	}
}

func password(ctx context.Context, c client.Client, cr *v1alpha1.OnecloudCluster) (string, error) {
	if pw := cr.Spec.Keystone.BootstrapPassword; pw != "" {
		return pw, nil
	}
	name := client.ObjectKey{Namespace: cr.Namespace, Name: cr.Name + "-" + v1alpha1.SecretCredentials}
	s := &corev1.Secret{}
	err := c.Get(ctx, name, s)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if pw := s.Data[passwordKey]; len(pw) > 0 {
		return string(pw), nil
	}
	return "", finding.New("OCA-7010", fmt.Sprintf("The administrator password of cloud %s/%s does not exist yet", cr.Namespace, cr.Name),
		fmt.Sprintf("Secret %s has no key %s; the operator creates it when it first reconciles the cloud", name, passwordKey), "ocadm cluster status").Wrap(err)
}

// Exports formats the variables as lines for a shell.
func Exports(vars []Variable) string {
	var b strings.Builder
	for _, v := range vars {
		fmt.Fprintf(&b, "export %s=%s\n", v.Name, quote(v.Value))
	}
	return b.String()
}

var safe = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

func quote(s string) string {
	if safe.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
