// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// puller is a containerd that pulls images: pull decides about each one, and successful ones are then in the store.
type puller struct {
	cri.UnimplementedImageServiceServer
	contentapi.UnimplementedContentServer
	m    *machine
	pull func(image string, try int) error

	mu     sync.Mutex
	tries  map[string]int
	pulled []string
	// users holds the names with which pulls logged in, by image.
	users map[string]string
	// servers holds the servers that the login was for.
	servers []string
}

func (r *puller) PullImage(_ context.Context, req *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	image := req.GetImage().GetImage()
	r.mu.Lock()
	r.tries[image]++
	r.users[image] = req.GetAuth().GetUsername()
	r.servers = append(r.servers, req.GetAuth().GetServerAddress())
	try := r.tries[image]
	r.mu.Unlock()
	if err := r.pull(image, try); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulled = append(r.pulled, image)
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.m.outputs["ctr -n k8s.io images ls"] += image + " application/vnd.oci.image.index.v1+json sha256:1 1.0 MiB linux/amd64 -\n"
	return &cri.PullImageResponse{ImageRef: image}, nil
}

// serve answers at containerd's socket.
func (m *machine) serve(t *testing.T, pull func(image string, try int) error) *puller {
	t.Helper()
	file := m.Files.Path(socket)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	l, err := net.Listen("unix", file)
	require.NoError(t, err)
	r := &puller{m: m, pull: pull, tries: map[string]int{}, users: map[string]string{}}
	s := grpc.NewServer()
	cri.RegisterImageServiceServer(s, r)
	contentapi.RegisterContentServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return r
}

func TestImagesArePulledWithoutABundle(t *testing.T) {
	m := newMachine(t)
	r := m.serve(t, func(image string, try int) error {
		if image == imageTwo && try == 1 {
			return status.Error(codes.Unknown, "502 Bad Gateway")
		}
		return nil
	})
	phase := ImageGroup{Name: "all", Short: "x", Need: need(imageOne, imageTwo)}.phase()
	if d := cmp.Diff([]string{"pull " + imageOne, "pull " + imageTwo}, m.plan(t, phase)); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
	m.must(t, phase)
	if d := cmp.Diff([]string{imageOne, imageTwo}, r.pulled); d != "" {
		t.Errorf("pulled (-want +got):\n%s", d)
	}
	for _, want := range []string{"pulling image 1 of 2: " + imageOne, "pulling image 2 of 2: " + imageTwo} {
		if !slices.Contains(m.said, want) {
			t.Errorf("it reported %q, without %q", m.said, want)
		}
	}
	m.done(t, phase)
	if _, ok := m.Ledger.Get(host.KindImage, imageTwo); !ok {
		t.Error("the ledger does not have the image")
	}
}

func TestPullsLogIn(t *testing.T) {
	const private, public = "registry.example.org:5000/yunionio/region:v1", "docker.io/library/busybox:1"
	for _, tc := range []struct{ name, auths, private, public, err string }{
		{"no file", "", "", "", ""},
		{"a registry", `"registry.example.org:5000":{"auth":"YWxpY2U6cHc="}`, "alice", "", ""},
		{"a path first", `"registry.example.org:5000":{"auth":"Ym9iOnB3"},"registry.example.org:5000/yunionio":{"auth":"YWxpY2U6cHc="}`, "alice", "", ""},
		{"another path", `"registry.example.org:5000/other":{"auth":"YWxpY2U6cHc="}`, "", "", ""},
		{"Docker Hub", `"https://index.docker.io/v1/":{"auth":"Ym9iOnB3"}`, "", "bob", ""},
		{"no JSON", `"`, "", "", kubeletCredentials},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t)
			r := m.serve(t, func(string, int) error { return nil })
			if tc.auths != "" {
				require.NoError(t, m.Files.WriteFile(kubeletCredentials, []byte(`{"auths":{`+tc.auths+`}}`), 0o600))
			}
			_, err := m.do(t, ImageGroup{Name: "all", Short: "x", Need: need(private, public)}.phase())
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(finding.Of(err)[0].Cause, tc.err)) {
				t.Fatalf("got %v, want %q", err, tc.err)
			}
			if r.servers = slices.Compact(r.servers); len(r.servers) > 0 && r.servers[0] != "" { // containerd would compare it with an address
				t.Errorf("meant for %v", r.servers)
			}
			if r.users[private] != tc.private || r.users[public] != tc.public {
				t.Errorf("logged in as %v", r.users)
			}
		})
	}
}

func TestMissingImage(t *testing.T) {
	m := newMachine(t)
	r := m.serve(t, func(image string, _ int) error {
		if image == imageOne {
			return status.Error(codes.NotFound, image+": not found")
		}
		return nil
	})
	group := ImageGroup{Name: "all", Short: "x", Need: need(imageOne, imageTwo)}
	_, err := m.do(t, group.phase())
	found := finding.Of(err)
	if len(found) != 1 || found[0].Code != CodePull || !strings.Contains(found[0].What, imageOne) || !strings.Contains(found[0].Cause, "not found") {
		t.Errorf("got %v", err)
	}
	if r.tries[imageOne] != 1 || !slices.Contains(r.pulled, imageTwo) {
		t.Errorf("tries %v, pulled %v", r.tries, r.pulled)
	}
	group.Optional = true
	if _, err := m.do(t, group.phase()); err != nil {
		t.Errorf("an image that can be pulled later: %v", err)
	}
}

func TestPullIsInterrupted(t *testing.T) {
	m := newMachine(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	end := make(chan struct{})
	m.serve(t, func(string, int) error {
		cancel(host.ErrDryRun) // any cause
		<-end
		return nil
	})
	err := ImageGroup{Name: "all", Need: need(imageOne)}.phase().Run(ctx, m.Host, m)
	close(end)
	if !errors.Is(err, host.ErrDryRun) {
		t.Errorf("got %v", err)
	}
}

func TestArrivals(t *testing.T) {
	layer := func(ref string, offset, total int64) *contentapi.Status {
		return &contentapi.Status{Ref: ref, Offset: offset, Total: total}
	}
	a := &arrivals{layers: map[string]*contentapi.Status{}}
	for i, step := range []struct {
		active      []*contentapi.Status
		done, total int64
	}{
		{nil, 0, 0},
		{[]*contentapi.Status{layer("a", 10, 100), layer("b", 0, 50)}, 10, 150},
		{[]*contentapi.Status{layer("b", 20, 50)}, 120, 150},
		{[]*contentapi.Status{layer("c", 1, 7)}, 151, 157},
		{nil, 157, 157},
	} {
		if done, total := a.count(step.active); done != step.done || total != step.total {
			t.Errorf("step %d: %d of %d, want %d of %d", i, done, total, step.done, step.total)
		}
	}
}
