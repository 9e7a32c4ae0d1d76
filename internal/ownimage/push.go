// SPDX-License-Identifier: Apache-2.0

package ownimage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"yunion.io/x/ocadm/internal/finding"
)

// CodePush is the finding code of an image that a registry did not accept.
const CodePush = "OCA-2202"

// Options configure a push.
type Options struct {
	// Insecure allows plain HTTP, and HTTPS with a certificate of an unknown CA.
	Insecure bool
	// Keychain holds the credentials; nil means ~/.docker/config.json, or the file of $DOCKER_CONFIG or $REGISTRY_AUTH_FILE.
	Keychain authn.Keychain
	// Progress, which may be nil, receives the number of bytes that the registry has, and the total.
	Progress func(done, total int64)
}

// Reference parses an image name: HOST/PATH:TAG. HOST defaults to Docker Hub, TAG to tag.
func Reference(image, tag string, insecure bool) (name.Tag, error) {
	if strings.Contains(image, "://") {
		return name.Tag{}, fmt.Errorf("the name of an image begins with the registry's host, not with a scheme: %s", image)
	}
	opts := []name.Option{name.WithDefaultTag(tag)}
	if insecure {
		opts = append(opts, name.Insecure)
	}
	return name.NewTag(image, opts...)
}

// FullName returns the name by which containerd and Kubernetes know an image.
func FullName(ref name.Tag) string {
	if rest, hub := strings.CutPrefix(ref.Name(), name.DefaultRegistry+"/"); hub {
		return "docker.io/" + rest
	}
	return ref.Name()
}

// Push pushes an image, retrying temporary failures. A permanent failure is a finding with CodePush.
func Push(ctx context.Context, ref name.Tag, img v1.Image, o Options) error {
	if o.Keychain == nil {
		o.Keychain = authn.DefaultKeychain
	}
	opts := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(o.Keychain), remote.WithUserAgent("ocadm")}
	if o.Insecure {
		t := remote.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // requested by --insecure
		opts = append(opts, remote.WithTransport(t))
	}
	updates := make(chan v1.Update, 1) // Write closes it
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		for u := range updates {
			if o.Progress != nil && u.Error == nil {
				o.Progress(u.Complete, u.Total)
			}
		}
	}()
	err := remote.Write(ref, img, append(opts, remote.WithProgress(updates))...)
	<-reported
	if err != nil && ctx.Err() == nil {
		return notPushed(ref, err)
	}
	return err
}

func notPushed(ref name.Tag, err error) error {
	host := ref.RegistryStr()
	remedy := "make sure that the registry " + host + " runs and that this machine can reach it, then push again"
	var answer *transport.Error
	var unknown x509.UnknownAuthorityError
	var wrongHost x509.HostnameError
	switch {
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		remedy = fmt.Sprintf("log in with an account that may push to %s: docker login %s, or any tool that writes ~/.docker/config.json",
			ref.Context(), host)
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		remedy = fmt.Sprintf("create the project or repository %s in the registry, or push under another name", ref.RepositoryStr())
	case errors.As(err, &unknown) || errors.As(err, &wrongHost):
		remedy = "add the registry's CA to the certificates of this machine, or give it alone: SSL_CERT_FILE=ca.crt ocadm image push …; or use --insecure"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // the registry client returns no typed error
		remedy = "the registry speaks plain HTTP: add --insecure"
	}
	return finding.Errorf(CodePush, fmt.Sprintf("The image %s cannot be pushed", FullName(ref)), remedy, "%w", err)
}
