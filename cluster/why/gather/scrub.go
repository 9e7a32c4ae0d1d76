// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/cluster/why"
)

const (
	// secretMin is the shortest value of a Secret that is taken out: what is shorter is a word such as "root".
	secretMin = 8
	// secretMax leaves out what no log holds: stored releases.
	secretMax = 16 << 10
	hidden    = Hidden
)

// secretValues are the values of Secrets, and their lines and base64 forms. Certificates are public.
func secretValues(list []corev1.Secret) []string {
	var out []string
	add := func(v string) {
		if v = strings.TrimSpace(v); len(v) >= secretMin && len(v) <= secretMax {
			out = append(out, v, base64.StdEncoding.EncodeToString([]byte(v)))
		}
	}
	for _, s := range list {
		for _, v := range s.Data {
			text := string(v)
			if strings.Contains(text, "BEGIN CERTIFICATE") && !strings.Contains(text, "PRIVATE KEY") {
				continue
			}
			add(text)
			if strings.Contains(text, "PRIVATE KEY") {
				for line := range strings.Lines(text) {
					if !strings.HasPrefix(line, "-----") {
						add(line)
					}
				}
			}
		}
	}
	// The longest first: a secret may be a part of another one.
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(out)
}

// strip drops what no cause needs and what may hold a copy of a secret.
func strip(s *why.Snapshot) {
	if s.Cloud != nil {
		s.Cloud.Status.Effects = nil
		fields := s.Cloud.ManagedFields
		clean(s.Cloud)
		for _, m := range fields { // the times say when the spec was changed
			m.FieldsV1 = nil
			s.Cloud.ManagedFields = append(s.Cloud.ManagedFields, m)
		}
	}
	for i := range s.Operations {
		clean(&s.Operations[i])
	}
	for i := range s.Nodes {
		clean(&s.Nodes[i])
		s.Nodes[i].Status.Images = nil
	}
	for i := range s.Pods {
		clean(&s.Pods[i])
	}
	for i := range s.Deployments {
		clean(&s.Deployments[i])
		s.Deployments[i].Spec.Template.Annotations = nil
	}
	for i := range s.StatefulSets {
		clean(&s.StatefulSets[i])
	}
	for i := range s.DaemonSets {
		clean(&s.DaemonSets[i])
	}
	for i := range s.Claims {
		clean(&s.Claims[i])
	}
	for i := range s.Volumes {
		clean(&s.Volumes[i])
	}
	for i := range s.Events {
		clean(&s.Events[i])
	}
	for i := range s.Leases {
		clean(&s.Leases[i])
	}
	for i := range s.Classes {
		clean(&s.Classes[i])
	}
}

func clean(o metav1.Object) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	delete(annotations, appsv1.ControllerRevisionHashLabelKey)
	o.SetAnnotations(annotations)
}

var (
	// secretKey names a field whose text is a secret.
	secretKey = regexp.MustCompile(`(?i)(password|passwd|passphrase|token|secret_?key|access_?key|private_?key|credential|apikey)s?$`)
	// These are secrets by their form, whoever wrote them.
	patterns = []struct {
		re *regexp.Regexp
		to string
	}{
		{regexp.MustCompile(`(?i)((?:^|[^/])(?:password|passwd|passphrase|secret|token|api_?key|access_?key)["']?\s*[:=]\s*["']?)[^\s"',;&}]+`), "${1}" + hidden},
		{regexp.MustCompile(`(://[^:/@\s]+:)[^@/\s]+@`), "${1}" + hidden + "@"},
		{regexp.MustCompile(`(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{16,}`), "${1} " + hidden},
		{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), hidden},
		{regexp.MustCompile(`AGE-SECRET-KEY-[0-9A-Z]+`), hidden},
		{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+`), hidden},
	}
)

// Scrub takes the given secrets, and what has the form of one, out of every text of a snapshot.
func Scrub(s *why.Snapshot, secrets []string) *why.Snapshot {
	pairs := make([]string, 0, 2*len(secrets))
	for _, v := range secrets {
		pairs = append(pairs, v, hidden)
	}
	known := strings.NewReplacer(pairs...)
	raw, err := json.Marshal(s)
	if err == nil {
		var tree any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err = d.Decode(&tree); err == nil {
			if raw, err = json.Marshal(scrub(tree, known, false)); err == nil {
				out := &why.Snapshot{}
				if err = json.Unmarshal(raw, out); err == nil {
					return out
				}
			}
		}
	}
	// What cannot be scrubbed must not leave.
	return &why.Snapshot{Format: why.Format, Time: s.Time, Namespace: s.Namespace, Name: s.Name, Missing: []string{fmt.Sprintf("everything: %v", err)}}
}

// Hidden stands for a secret.
const Hidden = "***"

// Hide takes what has the name or the form of a secret out of a JSON value, which it changes.
func Hide(v any) any { return scrub(v, strings.NewReplacer(), false) }

func scrub(v any, known *strings.Replacer, secret bool) any {
	switch v := v.(type) {
	case string:
		if secret && v != "" {
			return hidden
		}
		v = known.Replace(v)
		for _, p := range patterns {
			v = p.re.ReplaceAllString(v, p.to)
		}
		return v
	case []any:
		for i := range v {
			v[i] = scrub(v[i], known, secret)
		}
	case map[string]any:
		name, _ := v["name"].(string)
		for k, e := range v {
			_, text := e.(string)
			v[k] = scrub(e, known, text && (secretKey.MatchString(k) || k == "value" && secretKey.MatchString(name)))
		}
	}
	return v
}
