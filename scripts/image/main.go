// SPDX-License-Identifier: Apache-2.0

// Command image builds the operator's image, which is the static binary and the host's CA certificates, and pushes it or writes it to a
// file. It needs no container engine. See "make image", "make image-push" and "make deploy-dev".
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// certificates is where Debian and its descendants keep the CA bundle; the image has it at the same path.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

// nobody is the numeric user the operator runs as.
const nobody = "65534"

func main() {
	binary := flag.String("binary", "bin/ocadm", "static binary")
	image := flag.String("image", "", "reference: HOST/PATH/ocadm:TAG; without HOST it is Docker Hub's. \"content\" as TAG names it after its content")
	output := flag.String("output", "", "write a docker-archive (docker save) to this file instead of pushing")
	insecure := flag.Bool("insecure", false, "push over plain HTTP (a development registry)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *binary, *image, *output, *insecure)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, image, output string, insecure bool) error {
	opts := []name.Option{name.WeakValidation}
	if insecure {
		opts = append(opts, name.Insecure)
	}
	ref, err := name.NewTag(image, opts...)
	if err != nil {
		return fmt.Errorf("reading -image: %w", err)
	}
	img, err := build(binary)
	if err != nil {
		return err
	}
	if ref.TagStr() == "content" {
		digest, err := img.Digest()
		if err != nil {
			return err
		}
		ref = ref.Context().Tag("dev-" + digest.Hex[:12])
	}
	if output != "" {
		if err := tarball.WriteToFile(output, ref, img); err != nil {
			return fmt.Errorf("writing %s: %w", output, err)
		}
		fmt.Println(ref)
		return nil
	}
	if err := remote.Write(ref, img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", ref, digest)
	return nil
}

// build makes the image; the same binary and certificates give the same digest.
func build(binary string) (v1.Image, error) {
	layer, err := layerOf(map[string]string{"ocadm": binary, certificates[1:]: certificates}, []string{"ocadm", certificates[1:]})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("building the image: %w", err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("building the image: %w", err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	cfg.Config.Entrypoint, cfg.Config.User = []string{"/ocadm"}, nobody
	return mutate.ConfigFile(img, cfg)
}

func layerOf(files map[string]string, order []string) (v1.Layer, error) {
	var buf bytes.Buffer
	t := tar.NewWriter(&buf)
	for _, path := range order {
		data, err := os.ReadFile(files[path])
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", files[path], err)
		}
		if err := t.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := t.Write(data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithCompressedCaching) // it is read for the digest and to be written
}
