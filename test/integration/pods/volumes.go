// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// materialise makes the root and the volumes of a pod, and returns the mounts of each container.
func (p *pod) materialise(ctx context.Context) (map[string][]mount, error) {
	root := filepath.Join(p.dir(), "root")
	for _, dir := range []string{"etc", binDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil { //nolint:gosec // a root like any other
			return nil, fmt.Errorf("making a root: %w", err)
		}
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o777); err != nil { //nolint:gosec // as above
			return nil, fmt.Errorf("making a root: %w", err)
		}
	}
	resolv := fmt.Sprintf("search %[1]s.svc.cluster.local svc.cluster.local cluster.local\nnameserver 127.0.0.1\noptions ndots:5\n", p.object.Namespace)
	if err := os.WriteFile(filepath.Join(root, "etc/resolv.conf"), []byte(resolv), 0o644); err != nil { //nolint:gosec // as above
		return nil, fmt.Errorf("making a root: %w", err)
	}
	sources := map[string]string{}
	for _, v := range p.object.Spec.Volumes {
		source, err := p.volume(ctx, v)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", v.Name, err)
		}
		sources[v.Name] = source
	}
	account, err := p.account(ctx)
	if err != nil {
		return nil, fmt.Errorf("service account %q: %w", p.object.Spec.ServiceAccountName, err)
	}
	all := map[string][]mount{}
	for _, c := range p.containers {
		mounts, err := p.mounts(c, sources)
		if err != nil {
			return nil, fmt.Errorf("container %q: %w", c.spec.Name, err)
		}
		if account != "" {
			mounts = append(mounts, mount{source: account, target: accountDir, readOnly: true})
		}
		all[c.spec.Name] = mounts
	}
	return all, nil
}

// accountDir is where containers find the token of their service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// account writes the token of the pod's service account and what is needed to use it; "" if the pod has none.
func (p *pod) account(ctx context.Context) (string, error) {
	name := p.object.Spec.ServiceAccountName
	if mounts := p.object.Spec.AutomountServiceAccountToken; name == "" || mounts != nil && !*mounts {
		return "", nil
	}
	token, err := p.w.k.client.CoreV1().ServiceAccounts(p.object.Namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	dir := filepath.Join(p.dir(), "account")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	config := p.w.k.options.Config
	authority := config.CAData
	if len(authority) == 0 {
		if authority, err = os.ReadFile(config.CAFile); err != nil {
			return "", err
		}
	}
	for file, data := range map[string][]byte{"token": []byte(token.Status.Token), "ca.crt": authority, "namespace": []byte(p.object.Namespace)} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func (p *pod) mounts(c *container, sources map[string]string) ([]mount, error) {
	mounts := []mount{{source: p.w.k.names.file, target: "/etc/hosts", readOnly: true}}
	if c.argv != nil {
		// A second name of the file, not a link to it: the stand-in plays the program after which it is called.
		link := filepath.Join(p.dir(), "root", binDir, filepath.Base(c.argv[0]))
		if err := os.Link(p.w.k.options.Program, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	for _, m := range c.spec.VolumeMounts {
		source, known := sources[m.Name]
		if !known {
			return nil, fmt.Errorf("mounts %q, which is no volume", m.Name)
		}
		mounts = append(mounts, mount{source: filepath.Join(source, m.SubPath), target: m.MountPath, readOnly: m.ReadOnly})
	}
	return mounts, nil
}

// volume makes a volume and returns its directory. The directories of claims and of the node outlive the pod.
func (p *pod) volume(ctx context.Context, v corev1.Volume) (string, error) {
	dir := filepath.Join(p.dir(), "volumes", v.Name)
	files := map[string][]byte{}
	var err error
	switch {
	case v.Secret != nil:
		err = p.secret(ctx, files, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.ConfigMap != nil:
		err = p.configMap(ctx, files, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			switch {
			case s.Secret != nil:
				err = errors.Join(err, p.secret(ctx, files, s.Secret.Name, s.Secret.Items, s.Secret.Optional))
			case s.ConfigMap != nil:
				err = errors.Join(err, p.configMap(ctx, files, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional))
			default:
				err = errors.New("this kind of projection is not known here")
			}
		}
	case v.EmptyDir != nil:
	case v.PersistentVolumeClaim != nil:
		dir = p.w.k.Claim(v.PersistentVolumeClaim.ClaimName)
		_, err = p.w.k.client.CoreV1().PersistentVolumeClaims(p.object.Namespace).Get(ctx, v.PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
	case v.HostPath != nil:
		dir = filepath.Join(p.w.k.dir, "node", v.HostPath.Path)
	default:
		err = errors.New("this kind of volume is not known here")
	}
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the directory above is ours alone
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // as above
			return "", err
		}
		if err := os.WriteFile(file, files[name], 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func (p *pod) secret(ctx context.Context, into map[string][]byte, name string, items []corev1.KeyToPath, optional *bool) error {
	s, err := p.w.k.client.CoreV1().Secrets(p.object.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	if err != nil {
		return err
	}
	return project(into, s.Data, items, optional)
}

func (p *pod) configMap(ctx context.Context, into map[string][]byte, name string, items []corev1.KeyToPath, optional *bool) error {
	c, err := p.w.k.client.CoreV1().ConfigMaps(p.object.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	if err != nil {
		return err
	}
	data := maps.Clone(c.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, text := range c.Data {
		data[key] = []byte(text)
	}
	return project(into, data, items, optional)
}

func project(into, data map[string][]byte, items []corev1.KeyToPath, optional *bool) error {
	if len(items) == 0 {
		maps.Copy(into, data)
		return nil
	}
	for _, item := range items {
		value, there := data[item.Key]
		if !there && (optional == nil || !*optional) {
			return fmt.Errorf("references non-existent key %q", item.Key)
		}
		into[item.Path] = value
	}
	return nil
}

// environment of a container, as NAME=value.
func (p *pod) environment(ctx context.Context, c corev1.Container) ([]string, error) {
	env := []string{"PATH=" + binDir, "HOSTNAME=" + p.name, "HOME=/", "STANDIN_VERSION=" + c.Image[strings.LastIndex(c.Image, ":")+1:]}
	if server, err := url.Parse(p.w.k.options.Config.Host); err == nil {
		env = append(env, "KUBERNETES_SERVICE_HOST="+server.Hostname(), "KUBERNETES_SERVICE_PORT="+server.Port())
	}
	for _, e := range c.Env {
		value := expand([]string{e.Value}, env)[0]
		if from := e.ValueFrom; from != nil {
			var err error
			if value, err = p.valueFrom(ctx, from); err != nil {
				return nil, fmt.Errorf("environment variable %s: %w", e.Name, err)
			}
		}
		env = append(env, e.Name+"="+value)
	}
	return env, nil
}

func (p *pod) valueFrom(ctx context.Context, from *corev1.EnvVarSource) (string, error) {
	files := map[string][]byte{}
	item := func(key string) []corev1.KeyToPath { return []corev1.KeyToPath{{Key: key, Path: key}} }
	switch {
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		err := p.secret(ctx, files, r.Name, item(r.Key), r.Optional)
		return string(files[r.Key]), err
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		err := p.configMap(ctx, files, r.Name, item(r.Key), r.Optional)
		return string(files[r.Key]), err
	case from.FieldRef != nil:
		known := map[string]string{"metadata.name": p.name, "metadata.namespace": p.object.Namespace, "spec.nodeName": p.w.k.options.Node,
			"status.hostIP": "127.0.0.1", "status.podIP": "127.0.0.1"}
		if value, ok := known[from.FieldRef.FieldPath]; ok {
			return value, nil
		}
	}
	return "", errors.New("this kind of source is not known here")
}

// expand replaces $(NAME) by the environment's.
func expand(words, env []string) []string {
	var pairs []string
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		pairs = append(pairs, "$("+name+")", value)
	}
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = strings.NewReplacer(pairs...).Replace(word)
	}
	return out
}
