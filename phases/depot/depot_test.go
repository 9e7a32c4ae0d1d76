// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/test/require"
)

func image(t *testing.T) v1.Image {
	t.Helper()
	img, err := random.Image(2000, 1)
	require.NoError(t, err)
	c, err := img.ConfigFile()
	require.NoError(t, err)
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

func machine(t *testing.T) (*host.Host, *host.Recorder) {
	t.Helper()
	c := config.Default()
	config.Complete(&c, config.Machine{Hostname: "node", Address: "192.0.2.7"})
	rec := &host.Recorder{}
	h, err := host.Fake(t.Context(), t.TempDir(), &c, rec)
	require.NoError(t, err)
	h.Facts.Arch = runtime.GOARCH
	put(t, h, h.Self, "the program")
	img := image(t)
	h.Own = func() (v1.Image, error) { return img, nil }
	return h, rec
}

func put(t *testing.T, h *host.Host, name, data string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(h.Files.Path(name)), 0o755))
	require.NoError(t, os.WriteFile(h.Files.Path(name), []byte(data), 0o600))
}

const busybox = "docker.io/library/busybox:1.37"

func useBundle(t *testing.T, h *host.Host) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle")
	err := bundle.Create(t.Context(), file, bundle.Info{OS: "linux", Arch: runtime.GOARCH, KubernetesVersion: "v1.36.3"},
		[]bundle.FileSource{{Path: "/usr/local/bin/kubelet", Mode: 0o755, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("kubelet")), nil
		}}},
		[]bundle.ImageSource{{Name: busybox, Image: image(t)}})
	require.NoError(t, err)
	b, err := bundle.Open(t.Context(), file)
	require.NoError(t, err)
	h.Bundle = b
	t.Cleanup(func() { _ = b.Close() })
}

// run runs the phase that fills the depot until nothing is left to do, and returns the depot's content.
func run(t *testing.T, h *host.Host, want ...string) depot.Root {
	t.Helper()
	p := fillPhase(nil)
	plan, err := p.Plan(t.Context(), h)
	if err != nil || len(plan) != len(want) {
		t.Errorf("plan %q, %v; want %q", plan, err, want)
	}
	for i, w := range want {
		if !strings.HasPrefix(plan[i], "store "+w) {
			t.Errorf("plan %q, want %q", plan[i], w)
		}
	}
	require.NoError(t, p.Run(t.Context(), h, workflow.Discard{}))
	if done, err := p.Check(t.Context(), h); !done || err != nil {
		t.Errorf("not done after it ran: %v", err)
	}
	s, err := Open(h)
	require.NoError(t, err)
	c, err := s.Contents(t.Context())
	require.NoError(t, err)
	return c
}

func TestFillFromBundle(t *testing.T) {
	h, _ := machine(t)
	useBundle(t, h)
	c := run(t, h, "ocadm-", "bundle-")
	if c.Images[busybox].Size == 0 || c.Images[h.Config.OperatorImage()].Size == 0 {
		t.Errorf("images %v", c.Images)
	}
	for _, f := range []string{"/usr/local/bin/kubelet", ProgramPath} {
		if _, ok := c.Files["linux/"+runtime.GOARCH+f]; !ok {
			t.Errorf("no %s", f)
		}
	}
	// Another build of this program replaces the earlier one and keeps its names.
	put(t, h, h.Self, "a newer program")
	h.Config.Cluster.ImageRepository = "registry.example.org/cloud"
	c = run(t, h, "ocadm-")
	if len(c.Images) != 3 || c.Files["linux/"+runtime.GOARCH+ProgramPath].Size != int64(len("a newer program")) {
		t.Errorf("contents %v", c)
	}
	// A damaged blob is noticed when it is read, and stored again.
	require.NoError(t, os.Remove(h.Files.Path(depot.DefaultDir+"/blobs/sha256/"+c.Images[busybox].Digest.Hex)))
	run(t, h, "bundle-")
}

// The bundle of a newer release is added to the depot of a running cluster: its content stays.
func TestFillFromAnotherBundle(t *testing.T) {
	h, _ := machine(t)
	useBundle(t, h)
	run(t, h, "ocadm-", "bundle-")
	first := bundleName(h)
	useBundle(t, h) // with another image
	if bundleName(h) == first {
		t.Fatal("both bundles have one name")
	}
	run(t, h, "bundle-")
	s, err := Open(h)
	require.NoError(t, err)
	st, err := s.Status(t.Context())
	if err != nil || len(st.Roots) != 3 {
		t.Fatalf("%+v, %v", st, err)
	}
	for _, r := range st.Roots {
		if !r.Complete {
			t.Errorf("%s is not complete", r.Name)
		}
	}
}

// Without a bundle, the depot has what the node has installed and pulled, but nothing from other sources.
func TestFillFromNode(t *testing.T) {
	h, rec := machine(t)
	const kubelet = "/usr/local/bin/kubelet"
	require.NoError(t, h.Files.WriteFile(kubelet, []byte("kubelet"), 0o755))
	put(t, h, "/usr/local/bin/kubectl", "of others")
	require.NoError(t, h.Ledger.Record(host.Entry{Kind: host.KindImage, Name: busybox, Op: host.Created}))
	rec.Answer = func(c exec.Command) (exec.Result, error) {
		if slices.Contains(c.Args, "export") {
			if !slices.Contains(c.Args, busybox) || slices.Contains(c.Args, "registry.example.org/theirs:v1") {
				t.Errorf("ctr %q", c.Args)
			}
			return exec.Result{}, bundle.WriteImage(t.Context(), c.Stdout, bundle.ImageSource{Name: busybox, Image: image(t)})
		}
		return exec.Result{Stdout: busybox + " type sha256:1 1 KiB linux/amd64 -\nregistry.example.org/theirs:v1 type sha256:2 1 KiB linux/amd64 -\n"}, nil
	}
	c := run(t, h, "ocadm-", "node")
	if len(c.Files) != 2 || c.Files["linux/"+runtime.GOARCH+kubelet].Size != 7 || c.Images[busybox].Size == 0 || len(c.Images) != 2 {
		t.Errorf("contents %v", c)
	}
	// A program installed by another release is stored as well.
	require.NoError(t, h.Files.WriteFile(kubelet, []byte("newer kubelet"), 0o755))
	run(t, h, "node")
	rec.Answer = func(c exec.Command) (exec.Result, error) { // a truncated archive
		return exec.Result{}, tar.NewWriter(c.Stdout).WriteHeader(&tar.Header{Name: "blobs/sha256/x", Typeflag: tar.TypeReg, Size: 5})
	}
	if err := node.Export(t.Context(), h, []string{busybox}, func(in io.Reader) error {
		s, err := Open(h)
		if err == nil {
			_, err = s.AddArchive(t.Context(), in)
		}
		return err
	}); err == nil {
		t.Error("a broken archive was stored")
	}
}

// The pod is complete, has only the permissions it needs, and mounts only files.
func TestManifest(t *testing.T) {
	h, rec := machine(t)
	put(t, h, "/usr/local/bin/ctr", "x")
	cluster(t, h)
	own := node.ImageGroup{Own: true, Need: func(*host.Host) ([]string, error) { return []string{h.Config.OperatorImage()}, nil }}
	p := startPhase(own)
	imported := false
	rec.Answer = func(c exec.Command) (exec.Result, error) {
		if slices.Contains(c.Args, "import") {
			imported = !h.Files.Exists(manifestFile)
		}
		return exec.Result{}, nil
	}
	if err := p.Run(t.Context(), h, workflow.Discard{}); err != nil || !imported {
		t.Fatalf("image imported before the pod: %v, %v", imported, err)
	}
	if done, err := p.Check(t.Context(), h); !done || err != nil {
		t.Errorf("not done: %v", err)
	}
	raw, err := h.Files.ReadFile(manifestFile)
	require.NoError(t, err)
	var got corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict(raw, &got))
	if len(got.Spec.Containers) != 2 || !got.Spec.HostNetwork {
		t.Errorf("the pod is %s", raw)
	}
	writes := map[string]string{"depot": depot.DefaultDir, "certificate": filepath.Dir(CertificateFile)}
	for _, c := range got.Spec.Containers {
		if c.Image != h.Config.OperatorImage() || *c.SecurityContext.AllowPrivilegeEscalation || len(c.SecurityContext.Capabilities.Add) > 0 {
			t.Errorf("container %s is %s", c.Name, raw)
		}
		for _, m := range c.VolumeMounts {
			if m.ReadOnly != (m.MountPath != writes[c.Name]) {
				t.Errorf("%s: %s: read-only %v", c.Name, m.MountPath, m.ReadOnly)
			}
			if strings.HasPrefix(m.MountPath, pkiDir) && strings.HasSuffix(m.MountPath, ".key") && c.Name != "certificate" {
				t.Errorf("%s can read %s", c.Name, m.MountPath)
			}
		}
	}
	for _, c := range got.Spec.Containers {
		request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
		if request.IsZero() || limit.Cmp(*request) <= 0 {
			t.Errorf("%s: memory %s of %s", c.Name, request, limit)
		}
	}
	copiesFromRegistries(t, h, &got)
	// On another control-plane node, "init phase depot" does not know the endpoint: the depot would copy from itself.
	h.Config.Join = config.Join{Endpoint: "192.0.2.100:6443", ControlPlane: true}
	require.NoError(t, p.Run(t.Context(), h, workflow.Discard{}))
	h.Config.Join = config.Join{}
	again, err := manifest(h)
	if err != nil || !strings.Contains(string(again[len(again)-1].Data), "\n    - 192.0.2.7:6444,192.0.2.100:6444\n") {
		t.Errorf("%s, %v", again, err)
	}
	// If the CA key is elsewhere, nothing can renew the certificate.
	require.NoError(t, os.Remove(h.Files.Path(authorityKey)))
	files, err := manifest(h)
	if err != nil || strings.Contains(string(files[len(files)-1].Data), "renew") {
		t.Errorf("%s, %v", files, err)
	}
}

// copiesFromRegistries checks that the depot asks the same registries as the node, but no depot, and none with --offline. The pod contains no secret.
func copiesFromRegistries(t *testing.T, h *host.Host, p *corev1.Pod) {
	t.Helper()
	const auth = `{"auths":{"r.example":{"auth":"YTpjYW5hcnk="}}}`
	args := strings.Join(p.Spec.Containers[0].Args, " ")
	if !strings.Contains(args, "--copy --registry-config "+CredentialsFile+" --except "+strings.Join(node.DepotAddresses(h.Config), ",")) {
		t.Errorf("the depot runs %s", args)
	}
	if got := h.Files.Text(CredentialsFile); got != "{}" {
		t.Errorf("without credentials it has %s", got)
	}
	put(t, h, "/etc/ssl/certs/ca-certificates.crt", "")
	h.Config.Node.RegistryAuth = auth
	files, err := manifest(h)
	if err != nil || len(files) != 2 || string(files[0].Data) != auth || files[0].Mode != 0o600 {
		t.Fatalf("%v, %v", files, err)
	}
	if text := string(files[1].Data); strings.Contains(text, "YTpj") || !strings.Contains(text, "path: /etc/ssl/certs\n") || !strings.Contains(text, "path: /etc/containerd\n") {
		t.Errorf("the pod is %s", text)
	}
	h.Config.Node.Offline = true
	if files, err = manifest(h); err != nil || len(files) != 1 || strings.Contains(string(files[0].Data), "--copy") || strings.Contains(string(files[0].Data), "/etc/containerd") {
		t.Errorf("with --offline: %v, %v", files, err)
	}
	h.Config.Node.Offline = false
}
