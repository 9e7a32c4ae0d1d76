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

// CodePush is the finding of an image that a registry did not take.
const CodePush = "OCA-2202"

// Options say how an image is pushed.
type Options struct {
	// Insecure allows plain HTTP, and HTTPS with a certificate of an unknown CA.
	Insecure bool
	// Keychain has the credentials; nil stands for ~/.docker/config.json, or that of $DOCKER_CONFIG or $REGISTRY_AUTH_FILE.
	Keychain authn.Keychain
	// Progress, which may be nil, gets the number of bytes that the registry has, and that it will have.
	Progress func(done, total int64)
}

// Reference reads the name of an image: HOST/PATH:TAG, without HOST one of Docker Hub, without TAG with the given one.
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

// FullName is the name by which containerd and Kubernetes know an image.
func FullName(ref name.Tag) string {
	if rest, hub := strings.CutPrefix(ref.Name(), name.DefaultRegistry+"/"); hub {
		return "docker.io/" + rest
	}
	return ref.Name()
}

// Push pushes an image and tries again what a registry refuses for a moment. A failure is a finding with CodePush.
func Push(ctx context.Context, ref name.Tag, img v1.Image, o Options) error {
	if o.Keychain == nil {
		o.Keychain = authn.DefaultKeychain
	}
	opts := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(o.Keychain), remote.WithUserAgent("ocadm")}
	if o.Insecure {
		t := remote.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // that is what --insecure asks for
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
	remedy := "see that the registry " + host + " runs and that this machine reaches it, then push again"
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
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // the registry client keeps no type
		remedy = "the registry speaks plain HTTP: add --insecure"
	}
	return finding.Errorf(CodePush, fmt.Sprintf("The image %s cannot be pushed", FullName(ref)), remedy, "%w", err)
}
