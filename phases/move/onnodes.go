// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/nodepod"
	"yunion.io/x/ocadm/phases/vip"
)

// Part is what every control-plane node must do itself when the virtual address moves.
type Part string

// The parts.
const (
	Certificates Part = "certificates"
	Files        Part = "files"
)

const (
	// partLife bounds the life of the pod that does a part on another node.
	partLife = 5 * time.Minute
	// leaveTimeout bounds the removal of that pod.
	leaveTimeout = 30 * time.Second
	dialTimeout  = 2 * time.Second
	partPod      = "ocadm-move"
)

// PartSteps returns the steps that do a part on the machine of a control-plane node.
func PartSteps(p Part, from, to string) []host.Phase {
	return []host.Phase{{
		Name: string(p), Short: "Do the part of this node in a move of the virtual address", Timeout: partLife,
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error { return p.do(ctx, h, r, from, to) },
	}}
}

func (p Part) do(ctx context.Context, h *host.Host, r workflow.Reporter, from, to string) error {
	switch p {
	case Certificates:
		if err := kubernetes.AddNames(ctx, h, r, []string{kubernetes.APIServerCertificate}, to); err != nil { // the API server reloads it by itself
			return err
		}
		return depot.Rename(ctx, h, r)
	case Files:
		files, err := changes(h, from, to)
		if err != nil {
			return err
		}
		// Static pods contain the address among names that stay.
		files = slices.DeleteFunc(files, func(f host.File) bool { return strings.HasPrefix(f.Name, path.Dir(vip.ManifestFile)+"/") })
		_, err = files.Write(h, r)
		return err
	}
	return fmt.Errorf("a move has no part %q", p)
}

// onNodesStep does a part on every control-plane node where it is not done.
func onNodesStep(p Part, short string, done func(context.Context, *Move, corev1.Node) bool) Step {
	todo := func(ctx context.Context, m *Move) []corev1.Node {
		return lists.Filter(m.controlPlanes(), func(n corev1.Node) bool { return !m.Moved() && !done(ctx, m, n) })
	}
	return Step{
		Name: string(p), Short: short, Timeout: 20 * time.Minute,
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			k, err := kubernetes.AdminClient(m.Host)
			if err != nil {
				return err
			}
			for _, n := range todo(ctx, m) {
				if err := m.onNode(ctx, k, r, p, n.Name); err != nil {
					return err
				}
				if p == Files {
					if err := mark(ctx, k, n.Name, m.To); err != nil {
						return err
					}
				}
				r.Changed("changed the %s of node %s", p, n.Name)
			}
			return m.until(ctx, r, "the "+string(p), func(ctx context.Context) (bool, string, error) {
				err := m.look(ctx, k)
				return err == nil && len(todo(ctx, m)) == 0, "they are not in use yet", err
			})
		},
	}.Todo(func(ctx context.Context, m *Move) ([]string, error) {
		return lists.Map(todo(ctx, m), func(n corev1.Node) string { return fmt.Sprintf("change the %s of node %s", p, n.Name) }), nil
	})
}

// onNode does a part here, or through a pod that enters the root of another control-plane node. It repeats a part that an earlier run left unfinished.
func (m *Move) onNode(ctx context.Context, k client.Client, r workflow.Reporter, p Part, node string) error {
	if node == m.Host.Config.Node.Name {
		return p.do(ctx, m.Host, r, m.From, m.To)
	}
	waiting := func(why string) { r.Waiting("node "+node, why) }
	if err := nodepod.Delete(ctx, k, partPod, waiting); err != nil {
		return err
	}
	pod := nodepod.New(partPod, m.Host.Config.OperatorImage(), node, partLife, "move", "part", string(p), m.From, m.To)
	if err := k.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating pod %s: %w", partPod, err)
	}
	_, err := nodepod.Await(ctx, k, partPod, finding.New("OCA-4168", "Node "+node+" does not take part in the move of the virtual address", "",
		"correct the cause, then run the same command again"), waiting)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	return errors.Join(err, nodepod.Delete(last, k, partPod, waiting))
}

// named reports whether the server on a port of a node has a certificate with the name. It also returns true if no server listens.
func named(ctx context.Context, n corev1.Node, port int, name string) bool {
	at := ""
	if has := kube.InternalIPs(&n); len(has) > 0 {
		at = net.JoinHostPort(has[0], strconv.Itoa(port))
	}
	cert, err := kubernetes.Shown(ctx, at) // the step that waits for the endpoint verifies it
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	return cert.VerifyHostname(name) == nil
}
