// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// materialise creates the volumes of a pod and sets their mount points in each container.
func (p *pod) materialise(ctx context.Context) error {
	volumes := map[string]string{}
	for _, v := range p.object.Spec.Volumes {
		dir, err := p.volume(ctx, v)
		if err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
		volumes[v.Name] = dir
	}
	account, err := p.account(ctx)
	if err != nil {
		return fmt.Errorf("service account %q: %w", p.object.Spec.ServiceAccountName, err)
	}
	resolv := fmt.Sprintf("search %s.svc.cluster.local svc.cluster.local cluster.local\n", p.object.Namespace)
	for _, c := range p.containers {
		if err := write(filepath.Join(p.root(c), "etc"), map[string][]byte{"resolv.conf": []byte(resolv)}); err != nil {
			return err
		}
		c.mounts = map[string]string{accountDir: account}
		for _, m := range c.spec.VolumeMounts {
			dir, known := volumes[m.Name]
			if !known {
				return fmt.Errorf("container %q mounts %q, which is no volume", c.spec.Name, m.Name)
			}
			c.mounts[filepath.Clean(m.MountPath)] = filepath.Join(dir, m.SubPath)
		}
	}
	return nil
}

// write creates a directory with files.
func write(dir string, files map[string][]byte) error {
	for name, data := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // the directory above is ours alone
			return err
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
	}
	return os.MkdirAll(dir, 0o755) //nolint:gosec // as above
}

// accountDir is the directory of the service account token in a container.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// account returns a directory with the token of the pod's service account and what is needed to use it, or "" if the pod has no token.
func (p *pod) account(ctx context.Context) (string, error) {
	dir, files := filepath.Join(p.dir(), "account"), map[string][]byte{}
	name, mounts := p.object.Spec.ServiceAccountName, p.object.Spec.AutomountServiceAccountToken
	if name != "" && (mounts == nil || *mounts) {
		token, account := &authenticationv1.TokenRequest{}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.object.Namespace, Name: name}}
		if err := p.w.k.client.SubResource("token").Create(ctx, account, token); err != nil {
			return "", err
		}
		files = map[string][]byte{"token": []byte(token.Status.Token), "ca.crt": p.w.k.options.Config.CAData, "namespace": []byte(p.object.Namespace)}
	}
	return dir, write(dir, files)
}

// volume creates a volume and returns its directory. The directories of claims and of the node outlive the pod.
func (p *pod) volume(ctx context.Context, v corev1.Volume) (string, error) {
	dir, files := filepath.Join(p.dir(), "volumes", v.Name), map[string][]byte{}
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
		_, err = p.get(ctx, v.PersistentVolumeClaim.ClaimName, &corev1.PersistentVolumeClaim{}, nil)
	case v.HostPath != nil:
		dir = filepath.Join(p.w.k.dir, "node", v.HostPath.Path)
	default:
		err = errors.New("this kind of volume is not known here")
	}
	if err != nil {
		return "", err
	}
	return dir, write(dir, files)
}

// get reads an object, and reports whether it exists. One that is not optional must exist.
func (p *pod) get(ctx context.Context, name string, into client.Object, optional *bool) (there bool, err error) {
	err = p.w.k.client.Get(ctx, client.ObjectKey{Namespace: p.object.Namespace, Name: name}, into)
	if apierrors.IsNotFound(err) && ptr.Deref(optional, false) {
		return false, nil
	}
	return err == nil, err
}

func (p *pod) secret(ctx context.Context, into map[string][]byte, name string, items []corev1.KeyToPath, optional *bool) error {
	s := &corev1.Secret{}
	if there, err := p.get(ctx, name, s, optional); !there {
		return err
	}
	return project(into, s.Data, items, optional)
}

func (p *pod) configMap(ctx context.Context, into map[string][]byte, name string, items []corev1.KeyToPath, optional *bool) error {
	c, data := &corev1.ConfigMap{}, map[string][]byte{}
	if there, err := p.get(ctx, name, c, optional); !there {
		return err
	}
	maps.Copy(data, c.BinaryData)
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
		if !there && !ptr.Deref(optional, false) {
			return fmt.Errorf("references non-existent key %q", item.Key)
		}
		into[item.Path] = value
	}
	return nil
}

func (p *pod) environment(ctx context.Context, c corev1.Container) (map[string]string, error) {
	env := map[string]string{servicespec.VersionVariable: p.w.k.version(c.Image)}
	if server, err := url.Parse(p.w.k.options.Config.Host); err == nil {
		env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"] = server.Hostname(), server.Port()
	}
	for _, e := range c.Env {
		value := expand(e.Value, env)
		if from := e.ValueFrom; from != nil {
			var err error
			if value, err = p.valueFrom(ctx, from); err != nil {
				return nil, fmt.Errorf("environment variable %s: %w", e.Name, err)
			}
		}
		env[e.Name] = value
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
			"status.hostIP": "127.0.0.1", "status.podIP": p.address}
		if value, ok := known[from.FieldRef.FieldPath]; ok {
			return value, nil
		}
	}
	return "", errors.New("this kind of source is not known here")
}

var reference = regexp.MustCompile(`\$\((\w+)\)`)

// expand replaces $(NAME) with its value in the environment.
func expand(word string, env map[string]string) string {
	return reference.ReplaceAllStringFunc(word, func(r string) string {
		if value, known := env[r[2:len(r)-1]]; known {
			return value
		}
		return r
	})
}
