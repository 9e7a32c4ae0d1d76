// SPDX-License-Identifier: Apache-2.0

// Package rotation replaces the certificate authorities (CAs) of a running cluster in steps: all nodes trust the new ones, then the new ones sign,
// then the old ones are dropped. Its record is a Secret, so any control-plane node can continue.
package rotation

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Stage is a stage of a rotation.
type Stage string

// The stages. In Trust, both CAs are trusted and the old one signs; in Sign, the new one signs; in Drop, only the new one is trusted.
const (
	Trust Stage = "trust"
	Sign  Stage = "sign"
	Drop  Stage = "drop"
)

// order lists the stages in order.
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
	// Prefixes of the keys that hold the data of each CA.
	oldPrefix, newPrefix = "old-", "new-"
	wrapped              = "wrapped-"
	// answerPatience is how long a request may go unanswered. A virtual address moves in seconds; a single API server is back within a minute.
	answerPatience = 3 * time.Minute
)

// Record is the stored state of a rotation.
type Record struct {
	ID    string    `json:"id"`
	Stage Stage     `json:"stage"`
	Began time.Time `json:"began"`
	// Authorities are the CAs that it replaces.
	Authorities []string `json:"authorities"`
	// Reverting is set if the CAs were swapped to go back to the old ones.
	Reverting bool `json:"reverting,omitempty"`
	// Nodes maps nodes to the stage that they have applied.
	Nodes map[string]Stage `json:"nodes,omitempty"`
	// Left lists the kubeconfigs on each node that the old CA has signed.
	Left map[string][]string `json:"left,omitempty"`
	// Published is when every namespace had the CAs of a stage; older pods trust others.
	Published map[Stage]time.Time `json:"published,omitempty"`
}

// material is the content of the Secret apart from the record.
type material struct {
	// certs holds PEM certificates by "old-ca", "new-ca" and so on.
	certs map[string][]byte
	// sealed holds the keys, by the same names, encrypted with a key that is wrapped for holders of the cluster CA's old or new key.
	sealed  []byte
	wrapped map[string][]byte
}

// authorities are the CAs that can be replaced, that of etcd only on request.
var authorities = []string{kubernetes.ClusterAuthority, kubernetes.FrontProxyAuthority, kubernetes.EtcdAuthority}

// dataKey returns the key of a CA's certificate in the Secret, whose keys cannot contain a slash.
func dataKey(prefix, name string) string { return prefix + strings.ReplaceAll(name, "/", "-") }

// bundle returns the trusted certificates of a CA in a stage, the signing one first.
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

// signer returns the key prefix of the CAs that sign in a stage.
func signer(stage Stage) string {
	if stage == Trust {
		return oldPrefix
	}
	return newPrefix
}

// swapped returns the material for the way back to the old CAs.
func (m material) swapped(keys map[string][]byte) (map[string][]byte, map[string][]byte) {
	swap := func(in map[string][]byte) map[string][]byte {
		out := map[string][]byte{}
		for _, name := range authorities {
			if in[newPrefix+name] != nil {
				out[oldPrefix+name], out[newPrefix+name] = in[newPrefix+name], in[oldPrefix+name]
			}
		}
		return out
	}
	return swap(m.certs), swap(keys)
}

// seal encrypts the keys for holders of one of the cluster CA's keys.
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

// keys decrypts the keys with this control-plane node's own.
func (m material) keys(h *host.Host) (map[string][]byte, error) {
	_, own, err := kubernetes.Authority(h, kubernetes.ClusterAuthority)
	if err != nil {
		return nil, err
	}
	for _, prefix := range []string{oldPrefix, newPrefix} {
		data, err := kubernetes.Unseal(m.wrapped[prefix], own)
		if err != nil {
			continue // wrapped for the other key
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
		"copy /etc/kubernetes/pki/ca.key from a control-plane node where ocadm certs rotate-ca works, then run the same command again")
}

// trust returns the CAs and keys that this machine needs in a stage.
func (m material) trust(h *host.Host, stage Stage) (kubernetes.Trust, error) {
	t := kubernetes.Trust{Certs: map[string][]byte{kubernetes.ClusterAuthority: m.bundle(stage, kubernetes.ClusterAuthority)}, Keys: map[string][]byte{}}
	if !kubernetes.IsControlPlane(h) {
		return t, nil
	}
	keys, err := m.keys(h)
	if err != nil {
		return t, err
	}
	for _, name := range authorities {
		if m.certs[newPrefix+name] != nil {
			t.Certs[name], t.Keys[name] = m.bundle(stage, name), keys[signer(stage)+name]
		}
	}
	return t, nil
}

// fromData decodes the content of a Secret or of its files.
func fromData(data map[string][]byte) (rec Record, m material, err error) {
	m = material{certs: map[string][]byte{}, sealed: data[sealedKey], wrapped: map[string][]byte{}}
	if err := json.Unmarshal(data[recordKey], &rec); err != nil {
		return rec, m, fmt.Errorf("reading the record of the rotation: %w", err)
	}
	for _, prefix := range []string{oldPrefix, newPrefix} {
		m.wrapped[prefix] = data[wrapped+prefix]
		for _, name := range authorities {
			if cert := data[dataKey(prefix, name)]; cert != nil {
				m.certs[prefix+name] = cert
			}
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
			if cert := m.certs[prefix+name]; cert != nil {
				out[dataKey(prefix, name)] = cert
			}
		}
	}
	return out, nil
}

// load reads the record, which is nil without a rotation.
func load(ctx context.Context, c client.Reader) (*corev1.Secret, *Record, material, error) {
	s := &corev1.Secret{}
	found, err := kube.Find(ctx, c, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: secretName}, s, "the record of the rotation")
	if !found {
		return nil, nil, material{}, err
	}
	rec, m, err := fromData(s.Data)
	if err == nil && !slices.Contains(order, rec.Stage) { // it would pass for the last one, in which the old CAs are no longer trusted
		err = fmt.Errorf("reading the record of the rotation: its stage %q is unknown: continue with the release of ocadm that began it", rec.Stage)
	}
	return s, &rec, m, err
}

// save writes the record. A conflict means that another command is rotating.
func save(ctx context.Context, c client.Client, s *corev1.Secret, rec Record, m material) error {
	data, err := toData(rec, m)
	if err != nil {
		return err
	}
	if maps.EqualFunc(data, s.Data, bytes.Equal) {
		return nil
	}
	next := s.DeepCopy()
	next.Data = data
	if s.ResourceVersion == "" {
		next.ObjectMeta = metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: secretName, Labels: map[string]string{"app.kubernetes.io/managed-by": "ocadm"}}
	}
	err = answered(ctx, func(ctx context.Context) error { return write(ctx, c, next) })
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return finding.Errorf("OCA-4412", "Another command rotates the certificate authorities", "wait until it ends, then run the same command again", "%w", err)
	}
	if err != nil {
		return fmt.Errorf("writing the record of the rotation: %w", err)
	}
	*s = *next
	return nil
}

// write creates or updates the Secret. If it already has the data, an earlier request wrote it, whose answer was lost.
func write(ctx context.Context, c client.Client, next *corev1.Secret) error {
	do := func(s *corev1.Secret) error { return c.Update(ctx, s, client.FieldOwner(kube.FieldManager)) }
	if next.ResourceVersion == "" {
		do = func(s *corev1.Secret) error { return c.Create(ctx, s, client.FieldOwner(kube.FieldManager)) }
	}
	sent := next.DeepCopy()
	err := do(sent)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		now := &corev1.Secret{}
		if c.Get(ctx, client.ObjectKeyFromObject(next), now) == nil && maps.EqualFunc(now.Data, next.Data, bytes.Equal) {
			sent, err = now, nil
		}
	}
	if err == nil {
		*next = *sent
	}
	return err
}

// answered repeats a request until it is answered: the API server behind the endpoint may just be restarting.
func answered(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	var err error
	_ = wait.Until(ctx, "an answer of the API server", askInterval, func(ctx context.Context) (bool, string, error) {
		err = request(ctx)
		var status apierrors.APIStatus
		return err == nil || errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError, "", nil
	}, func(string) {})
	return err // the last error says more than the timeout
}
