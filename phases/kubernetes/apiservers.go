// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/phases/host"
)

// APIServers asks each API server of the cluster for its version and returns the versions by address. It works with a kubelet's permissions, which cover these
// Endpoints but not the Nodes and Pods of others.
func APIServers(ctx context.Context, h *host.Host, c client.Client) (map[string]string, error) {
	var endpoints corev1.Endpoints //nolint:staticcheck // nodes may not read EndpointSlices
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, &endpoints); err != nil {
		return nil, fmt.Errorf("listing the API servers: %w", err)
	}
	ca, err := h.Files.ReadFile(pkiDir + "/ca.crt")
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's certificate authority: %w", err)
	}
	out := map[string]string{}
	for _, s := range endpoints.Subsets {
		for _, a := range s.Addresses {
			for _, p := range s.Ports {
				at := net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port)))
				if out[at], err = versionAt(ctx, ca, at); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("listing the API servers: there are none")
	}
	return out, nil
}

// APIPorts returns the port of each API server by node, read from its Pod. Nodes without such a Pod are missing.
func APIPorts(ctx context.Context, c client.Client) (map[string]int, error) {
	pods, err := podsOf(ctx, c, constants.KubeAPIServer)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of the API servers: %w", err)
	}
	out := map[string]int{}
	for _, p := range pods {
		if _, port, ok := endpointOf(&p); ok {
			out[p.Spec.NodeName] = port
		}
	}
	return out, nil
}

// endpointOf returns the address and port that kubeadm's API server Pod advertises.
func endpointOf(p *corev1.Pod) (address string, port int, ok bool) {
	address, number, err := net.SplitHostPort(p.Annotations[constants.KubeAPIServerAdvertiseAddressEndpointAnnotationKey])
	if err != nil {
		return "", 0, false
	}
	port, err = strconv.Atoi(number)
	return address, port, err == nil
}

func versionAt(ctx context.Context, ca []byte, endpoint string) (string, error) {
	a, err := ask(ctx, pinned(ca), endpoint, "/version", "")
	if err != nil {
		return "", fmt.Errorf("reading the version of the API server at %s: %w", endpoint, err)
	}
	var v struct{ GitVersion string }
	if err := json.Unmarshal(a.body, &v); err != nil || a.status != http.StatusOK || v.GitVersion == "" {
		return "", fmt.Errorf("reading the version of the API server at %s: it answered %d", endpoint, a.status)
	}
	return v.GitVersion, nil
}
