// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/secrets"
)

// gatherSecrets reads the Secrets of a cloud. If the cache has no CA, it asks the API server: a stale cache or a lost label must not replace the CA
// of a running cloud.
func (r reader) gatherSecrets(ctx context.Context, m *cloud, s *State) error {
	name := s.Cloud.Name
	s.Secrets.credentials = s.Live.secret(secrets.CredentialsSecret(name))
	if missing := wantedCredentials(*s).Missing(s.Secrets.credentials); len(missing) > 1 || len(missing) == 1 && missing[0] != component.CloudID {
		cm := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: s.Cloud.Namespace, Name: name + "-" + adopt.ClusterConfig}
		if found, err := kube.Find(ctx, r.direct, key, cm, "the earlier operator's passwords"); err != nil {
			return err
		} else if found {
			s.Secrets.record = cm
		}
	}
	if err := r.gatherCertificates(ctx, m, s); err != nil {
		return fmt.Errorf("reading the certificates: %w", err)
	}
	return nil
}

func (r reader) gatherCertificates(ctx context.Context, m *cloud, s *State) error {
	s.Secrets.certificates = map[string]*corev1.Secret{}
	read := func(name, key string, mustAsk bool) error {
		found := s.Live.secret(name)
		if found != nil && key != "" && len(found.Data[key]) == 0 {
			found = nil
		}
		if provided := m.provided; found == nil && provided != nil && provided.Name == name && !s.Audit {
			found = provided // it may lack our labels
		}
		if found == nil && mustAsk {
			found = &corev1.Secret{}
			if _, err := kube.Find(ctx, r.direct, client.ObjectKey{Namespace: s.Cloud.Namespace, Name: name}, found, "Secret "+name); err != nil {
				return err
			}
			if m.provided = nil; secrets.IsProvided(found) {
				m.provided = found
			}
		}
		if found != nil && len(found.Data) > 0 {
			s.Secrets.certificates[name] = found
		}
		return nil
	}
	ca := secrets.CertsSecret(s.Cloud.Name)
	if err := read(ca, corev1.ServiceAccountRootCAKey, true); err != nil {
		return err
	}
	own := s.Secrets.certificates[ca]
	if err := read(secrets.EtcdCASecret(s.Cloud.Name), corev1.ServiceAccountRootCAKey, own == nil || secrets.IsProvided(own)); err != nil {
		return err
	}
	found := len(s.Secrets.certificates) > 0 // without a CA, there is nothing to keep
	for _, name := range secrets.EtcdSecrets(s.Cloud.Name) {
		if err := read(name, "", found); err != nil {
			return err
		}
	}
	key := certificatesKey(*s)
	if c := m.memos.issued; key != "" && c.valid && c.key == key && s.Now.Before(c.value.RenewAt) {
		s.Secrets.current, s.Secrets.issued = c.value, true
	}
	return nil
}

func wantedCredentials(s State) secrets.Values {
	v := secrets.Values{ID: idOf(s), Chosen: map[string]string{}}
	if now := s.Releases.current; now != nil { // it outlives the Secret
		v.Names = now.From.CredentialNames
	}
	for _, one := range s.Catalog.components {
		v.Keys = append(v.Keys, component.CredentialKeys(one)...)
		if one.ChosenCredentials != nil {
			maps.Copy(v.Chosen, one.ChosenCredentials(s.Cloud.Spec))
		}
	}
	v.Keys = slices.DeleteFunc(v.Keys, s.comesWithUpdate)
	return v
}

// comesWithUpdate reports whether only this build needs a password, not the release.
func (s State) comesWithUpdate(credential string) bool {
	if s.Releases.current == nil || s.Releases.free {
		return false
	}
	_, had := s.Releases.current.From.Credentials[credential]
	return !had
}

// certificatesKey returns a hash of all inputs of the certificates; "" if any is missing, or is a user's.
func certificatesKey(s State) string {
	h := sha256.New()
	fmt.Fprintln(h, s.Cloud.UID, s.Cloud.Generation, s.address(), s.Last.served)
	for _, name := range append([]string{secrets.CertsSecret(s.Cloud.Name)}, secrets.EtcdSecrets(s.Cloud.Name)...) {
		found := s.Secrets.certificates[name]
		if found == nil || secrets.IsProvided(found) {
			return ""
		}
		fmt.Fprintln(h, found.UID, found.ResourceVersion)
	}
	return string(h.Sum(nil))
}

func certificateNames(s State) []string {
	names := func(address string, spec v1alpha1.OnecloudClusterSpec) []string {
		return secrets.ServiceNames(s.Cloud.Name, s.Cloud.Namespace, s.Catalog.components, append([]string{address}, spec.CertSANs...)...)
	}
	now := names(s.address(), s.Cloud.Spec)
	if s.Releases.current == nil || s.Releases.free {
		return now
	}
	// A name that only another build adds comes with the update: every pod mounts the certificate.
	base := names(s.Releases.current.From.Address, s.Releases.current.From.Cloud.Spec)
	now = slices.DeleteFunc(now, func(n string) bool { return slices.Contains(base, n) && !slices.Contains(s.Releases.current.Names, n) })
	added := lists.Filter(s.Releases.current.Names, func(n string) bool { return !slices.Contains(now, n) && !slices.Contains(base, n) })
	return append(now, added...)
}

// certificateObjects returns the Secrets of certificates. The cloud owns them, but they outlive it where databases do.
func certificateObjects(s State) []client.Object {
	var out []client.Object
	for _, made := range s.Secrets.current.Secrets {
		secret := &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: made.Name, Namespace: s.Cloud.Namespace, Labels: labels(s)},
			Data:       made.Data,
		}
		if made.Name == secrets.IngressSecret(s.Cloud.Name) {
			secret.Type = corev1.SecretTypeTLS
		}
		out = append(out, own(s.Cloud, secret))
	}
	return out
}
