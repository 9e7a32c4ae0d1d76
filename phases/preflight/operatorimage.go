// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/config"
)

// operatorImageTimeout covers a registry and its token server.
const operatorImageTimeout = 20 * time.Second

// checkOperatorImage looks for the image in the running operator, because a kubelet lists only 50 images, then on the nodes and in its registry. A
// registry that this machine cannot reach is only a warning, because the nodes may reach it.
func checkOperatorImage(ctx context.Context, m *machine) []finding.Finding {
	image := m.h.Config.OperatorImage()
	if slices.ContainsFunc(m.h.Cluster.Operators, func(d appsv1.Deployment) bool {
		return ours(d) && d.Status.AvailableReplicas > 0 && d.Spec.Template.Spec.Containers[0].Image == image
	}) {
		return nil
	}
	nodes := slices.DeleteFunc(slices.Clone(m.h.Cluster.Nodes), func(n corev1.Node) bool { return unfit(n) != "" })
	if len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return !holds(n, image) }) {
		return nil
	}
	architectures, err := published(ctx, image, m.h.Config.Node.RegistryAuth)
	if err != nil {
		return []finding.Finding{noImage(m.h.Config, image, err)}
	}
	return wrongArchitecture(image, architectures, nodes)
}

// holds reports whether the kubelet lists an image among those on its node.
func holds(n corev1.Node, image string) bool {
	return slices.ContainsFunc(n.Status.Images, func(i corev1.ContainerImage) bool { return slices.Contains(i.Names, image) })
}

// published returns the architectures for which a registry has the image. Without credentials for the nodes, it uses this user's.
func published(ctx context.Context, image, credentials string) ([]string, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	as := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if credentials != "" {
		parsed, err := registry.ParseCredentials([]byte(credentials))
		if err != nil {
			return nil, err
		}
		as = remote.WithAuth(authn.Anonymous)
		if auth, ok := parsed.For(ref); ok {
			as = remote.WithAuth(authn.FromConfig(auth))
		}
	}
	d, err := remote.Get(ref, remote.WithContext(ctx), as, remote.WithUserAgent("ocadm"))
	if err != nil {
		return nil, err
	}
	if !d.MediaType.IsIndex() {
		img, err := d.Image()
		if err != nil {
			return nil, err
		}
		f, err := img.ConfigFile()
		if err != nil {
			return nil, err
		}
		return []string{f.Architecture}, nil
	}
	index, err := d.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	linux := lists.Filter(manifest.Manifests, func(one v1.Descriptor) bool { return one.Platform != nil && one.Platform.OS == "linux" })
	return lists.Map(linux, func(one v1.Descriptor) string { return one.Platform.Architecture }), nil
}

func noImage(c *config.Config, image string, err error) finding.Finding {
	const code = "OCA-7033"
	remedy := fmt.Sprintf("name an image that a registry has: --operator-image REGISTRY/PATH/%s:TAG", images.Operator)
	if c.PacksOperator() {
		remedy = fmt.Sprintf("push this program: ocadm image push REGISTRY/PATH/%[1]s:%[2]s; then add --operator-image REGISTRY/PATH/%[1]s:%[2]s",
			images.Operator, version.Version)
	}
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return finding.Warn(code, "The registry of the operator's image "+image+" does not answer this machine", err.Error(),
			"nothing to do if the nodes can reach it or have the image; otherwise "+remedy)
	}
	f := finding.Errorf(code, "The operator's image "+image+" cannot be used", remedy, "%w", err)
	if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
		f.What = "The registry refuses the operator's image " + image + " or does not have it"
		f.Remedy = "give credentials that allow pulling it: --registry-config FILE; if the nodes have their own: --ignore-preflight-errors=OperatorImage"
	}
	return f
}

// wrongArchitecture checks all nodes, because the operator's pod may be placed on any of them.
func wrongArchitecture(image string, has []string, nodes []corev1.Node) []finding.Finding {
	wrong := lists.Pick(nodes, func(n corev1.Node) (string, bool) {
		a := n.Status.NodeInfo.Architecture
		return n.Name + " (" + a + ")", a != "" && !slices.Contains(has, a)
	})
	if len(wrong) == 0 {
		return nil
	}
	f := finding.New("OCA-7034", "The operator's image "+image+" is not for every node",
		"it is for "+strings.Join(has, ", ")+"; other nodes: "+strings.Join(wrong, ", "),
		"push an image that contains each architecture, or keep the operator off the other nodes with a taint").With(wrong...)
	if len(wrong) < len(nodes) {
		f.Severity = finding.Warning
	}
	return []finding.Finding{f}
}
