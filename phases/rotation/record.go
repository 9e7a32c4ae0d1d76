// SPDX-License-Identifier: Apache-2.0

// Package rotation replaces the certificate authorities of a running cluster in steps: all nodes trust the new ones, then the new ones sign, then the old
// ones go. Its record is a Secret, so any control-plane node can continue.
package rotation

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Stage is how far a rotation is.
type Stage string

// The stages. In Trust, both authorities are trusted and the old one signs; in Sign, the new one does; in Drop, the new one alone is trusted.
const (
	Trust Stage = "trust"
	Sign  Stage = "sign"
	Drop  Stage = "drop"
)

// order of the stages.
var order = []Stage{Trust, Sign, Drop}

// reached reports whether a is b or after it.
func reached(a, b Stage) bool {
	i := slices.Index(order, b)
	return i >= 0 && slices.Index(order, a) >= i
}

const (
	secretName = "ocadm-ca-rotation"
	recordKey  = "rotation.json"
	sealedKey  = "keys"
	// These begin the names of what is kept of each authority.
	oldPrefix, newPrefix = "old-", "new-"
	wrapped              = "wrapped-"
)

// Record is what is known of a rotation.
type Record struct {
	ID    string    `json:"id"`
	Stage Stage     `json:"stage"`
	Began time.Time `json:"began"`
	// Reverting is set when the authorities were swapped to go back.
	Reverting bool `json:"reverting,omitempty"`
	// Nodes have taken over a stage.
	Nodes map[string]Stage `json:"nodes,omitempty"`
	// Left are kubeconfigs on nodes that the old authority has signed.
	Left map[string][]string `json:"left,omitempty"`
	// Published is when every namespace had the authorities of a stage; pods that are older trust others.
	Published map[Stage]time.Time `json:"published,omitempty"`
}

// material is what the Secret holds in addition to the record.
type material struct {
	// certs are PEM by "old-ca", "new-ca" and so on.
	certs map[string][]byte
	// sealed are the keys, by the same names, encrypted with a key that is wrapped for those who have the old or the new key of the cluster's authority.
	sealed  []byte
	wrapped map[string][]byte
}

var authorities = []string{kubernetes.ClusterAuthority, kubernetes.FrontProxyAuthority}

// bundle is what is trusted of an authority in a stage, first that which signs.
func (m material) bundle(stage Stage, name string) []byte {
	before, after := m.certs[oldPrefix+name], m.certs[newPrefix+name]
	switch stage {
	case Trust:
		return slices.Concat(before, after)
	case Sign:
		return slices.Concat(after, before)
	}
	return after
}

// signer is the beginning of the names of what signs in a stage.
func signer(stage Stage) string {
	if stage == Trust {
		return oldPrefix
	}
	return newPrefix
}

// swapped is the material of the way back.
func (m material) swapped(keys map[string][]byte) (map[string][]byte, map[string][]byte) {
	swap := func(in map[string][]byte) map[string][]byte {
		out := map[string][]byte{}
		for _, name := range authorities {
			out[oldPrefix+name], out[newPrefix+name] = in[newPrefix+name], in[oldPrefix+name]
		}
		return out
	}
	return swap(m.certs), swap(keys)
}

// seal encrypts the keys for those who have one of the keys of the cluster's authority.
func seal(keys map[string][]byte) (sealed []byte, wraps map[string][]byte, err error) {
	plain, err := json.Marshal(keys)
	if err != nil {
		return nil, nil, fmt.Errorf("writing the keys: %w", err)
	}
	data := []byte(rand.Text())
	if sealed, err = kubernetes.Seal(plain, data); err != nil {
		return nil, nil, err
	}
	wraps = map[string][]byte{}
	for _, prefix := range []string{oldPrefix, newPrefix} {
		if wraps[prefix], err = kubernetes.Seal(data, keys[prefix+kubernetes.ClusterAuthority]); err != nil {
			return nil, nil, err
		}
	}
	return sealed, wraps, nil
}

// keys decrypts them with the key of this control-plane node.
func (m material) keys(h *host.Host) (map[string][]byte, error) {
	_, own, err := kubernetes.Authority(h, kubernetes.ClusterAuthority)
	if err != nil {
		return nil, err
	}
	for _, prefix := range []string{oldPrefix, newPrefix} {
		data, err := kubernetes.Unseal(m.wrapped[prefix], own)
		if err != nil {
			continue // it is wrapped for the other key
		}
		plain, err := kubernetes.Unseal(m.sealed, data)
		if err != nil {
			return nil, fmt.Errorf("decrypting the keys of the rotation: %w", err)
		}
		var out map[string][]byte
		if err := json.Unmarshal(plain, &out); err != nil {
			return nil, fmt.Errorf("reading the keys of the rotation: %w", err)
		}
		return out, nil
	}
	return nil, finding.New("OCA-4411", "The keys of the rotation cannot be read on this machine", "its key of the certificate authority is neither the old nor the new one",
		"copy /etc/kubernetes/pki/ca.key from a control-plane node where ocadm certs rotate-ca works, and run the same command again")
}

// trust is what this machine is to have in a stage.
func (m material) trust(h *host.Host, stage Stage) (kubernetes.Trust, error) {
	t := kubernetes.Trust{Certs: map[string][]byte{}, Keys: map[string][]byte{}}
	for _, name := range authorities {
		t.Certs[name] = m.bundle(stage, name)
	}
	if !kubernetes.IsControlPlane(h) {
		delete(t.Certs, kubernetes.FrontProxyAuthority)
		return t, nil
	}
	keys, err := m.keys(h)
	if err != nil {
		return t, err
	}
	for _, name := range authorities {
		t.Keys[name] = keys[signer(stage)+name]
	}
	return t, nil
}

// fromData reads what a Secret or its files hold.
func fromData(data map[string][]byte) (rec Record, m material, err error) {
	m = material{certs: map[string][]byte{}, sealed: data[sealedKey], wrapped: map[string][]byte{}}
	if err := json.Unmarshal(data[recordKey], &rec); err != nil {
		return rec, m, fmt.Errorf("reading the record of the rotation: %w", err)
	}
	for _, prefix := range []string{oldPrefix, newPrefix} {
		m.wrapped[prefix] = data[wrapped+prefix]
		for _, name := range authorities {
			m.certs[prefix+name] = data[prefix+name]
		}
	}
	return rec, m, nil
}

func toData(rec Record, m material) (map[string][]byte, error) {
	raw, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("writing the record of the rotation: %w", err)
	}
	out := map[string][]byte{recordKey: raw, sealedKey: m.sealed}
	for _, prefix := range []string{oldPrefix, newPrefix} {
		out[wrapped+prefix] = m.wrapped[prefix]
		for _, name := range authorities {
			out[prefix+name] = m.certs[prefix+name]
		}
	}
	return out, nil
}

// load reads the record; there is none without a rotation.
func load(ctx context.Context, c client.Reader) (*corev1.Secret, *Record, material, error) {
	s := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: secretName}, s)
	if apierrors.IsNotFound(err) {
		return nil, nil, material{}, nil
	}
	if err != nil {
		return nil, nil, material{}, fmt.Errorf("reading the record of the rotation: %w", err)
	}
	rec, m, err := fromData(s.Data)
	return s, &rec, m, err
}

// save writes the record. A conflict means that another command rotates.
func save(ctx context.Context, c client.Client, s *corev1.Secret, rec Record, m material) error {
	data, err := toData(rec, m)
	if err != nil {
		return err
	}
	same := len(data) == len(s.Data)
	for k, v := range data {
		same = same && bytes.Equal(v, s.Data[k])
	}
	if same {
		return nil
	}
	s.Data = data
	if s.UID == "" {
		s.ObjectMeta = metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: secretName, Labels: map[string]string{"app.kubernetes.io/managed-by": "ocadm"}}
		err = c.Create(ctx, s, client.FieldOwner(kube.FieldManager))
	} else {
		err = c.Update(ctx, s, client.FieldOwner(kube.FieldManager))
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return finding.Errorf("OCA-4412", "Another command rotates the certificate authorities", "let it end, then run the same command again", "%w", err)
	}
	if err != nil {
		return fmt.Errorf("writing the record of the rotation: %w", err)
	}
	return nil
}
