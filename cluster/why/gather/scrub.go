// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/literal"
)

// strip removes what no cause needs and what may hold a copy of a secret.
func strip(s *why.Snapshot) {
	if s.Cloud != nil {
		s.Cloud.Status.Effects = nil
		fields := s.Cloud.ManagedFields
		clean(s.Cloud)
		for _, m := range fields { // the times show when the spec was changed
			m.FieldsV1 = nil
			s.Cloud.ManagedFields = append(s.Cloud.ManagedFields, m)
		}
	}
	for _, o := range slices.Concat(items(s.Operations), items(s.Nodes), items(s.Pods), items(s.Deployments), items(s.StatefulSets), items(s.DaemonSets),
		items(s.Claims), items(s.Volumes), items(s.Events), items(s.Leases), items(s.Classes)) {
		clean(o)
	}
	for i := range s.Nodes {
		s.Nodes[i].Status.Images = nil
	}
	for i := range s.Deployments {
		s.Deployments[i].Spec.Template.Annotations = nil
	}
}

// object is a pointer to an item of a list.
type object[T any] interface {
	*T
	metav1.Object
}

func items[T any, P object[T]](list []T) []metav1.Object {
	out := make([]metav1.Object, len(list))
	for i := range list {
		out[i] = P(&list[i])
	}
	return out
}

func clean(o metav1.Object) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	delete(annotations, appsv1.ControllerRevisionHashLabelKey)
	o.SetAnnotations(annotations)
}

// words occur in the names of fields and variables that hold secrets.
const words = `password|passwd|(?:\b|_)(?:pass|pwd)|passphrase|token|secret|secret[_-]?key|access[_-]?key|private[_-]?key|api[_-]?key`

// pattern matches a secret by its form, whatever its origin.
type pattern struct {
	re    *regexp.Regexp
	to    string
	parts literal.Set
}

func form(expression, to string) pattern {
	re := regexp.MustCompile(expression)
	return pattern{re, to, literal.Of(re)}
}

var patterns = []pattern{
	// A value in quotes ends at the same quote: it may contain what ends one without them. JSON in a text has each quote escaped.
	form(`(?i)((?:^|[^/])(?:`+words+`)["']?\s*[:=]\s*")(?:[^"\\\n]|\\.)+`, "${1}"+hidden),
	form(`(?i)((?:^|[^/])(?:`+words+`)["']?\s*[:=]\s*')(?:[^'\\\n]|\\.)+`, "${1}"+hidden),
	form(`(?i)((?:^|[^/])(?:`+words+`)(?:\\+")?\s*[:=]\s*\\+")[^"\\]+`, "${1}"+hidden),
	form(`(?i)((?:^|[^/])(?:`+words+`)["']?\s*[:=]\s*)(?:[^\s"',;&}\\]|\\[^\s"'])+`, "${1}"+hidden),
	form(`(?i)(--(?:[\w-]+-)?(?:`+words+`)\s+)[^\s-]\S{5,}`, "${1}"+hidden),
	form(`(://[^:/@\s]*:)[^/\s]+@`, "${1}"+hidden+"@"),
	// The address of a database, as Go's driver for MySQL writes it.
	form(`(\b[\w.-]+:)\S+(@(?:tcp|unix)\()`, "${1}"+hidden+"${2}"),
	form(`(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^-]+`, "${1}"+hidden),
	form(`(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{16,}`, "${1} "+hidden),
	form(`("auth\\?":\s*\\?")[A-Za-z0-9+/=]{8,}`, "${1}"+hidden), // as in docker's config.json
	form(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`, hidden),
	form(`AGE-SECRET-KEY-[0-9A-Z-]+`, hidden),
	form(`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+`, hidden),
	form(`(?i)(identified\s+(?:with\s+\S+\s+)?(?:by|as)\s+(?:password\s+)?['"])[^'"]+`, "${1}"+hidden),
	// The kubelet logs the whole container that it cannot start.
	form(`(?i)(EnvVar\{Name:[^,]*(?:`+words+`)[^,]*,Value:)[^{}]*?(,ValueFrom:)`, "${1}"+hidden+"${2}"),
	form(`(?i)(name\\?":\s*\\?"[^"]*(?:`+words+`)\\?",\s*\\?"value\\?":\s*\\?")[^"\\]+`, "${1}"+hidden),
}

// Scrub removes the values of the given Secrets, and anything with the name or form of a secret, from every text of a snapshot.
func Scrub(s *why.Snapshot, list []corev1.Secret) *why.Snapshot {
	raw, err := json.Marshal(s)
	if err == nil {
		var tree any
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err = d.Decode(&tree); err == nil {
			if raw, err = json.Marshal(scrub(tree, secretTextsOf(tree, list), false)); err == nil {
				out := &why.Snapshot{}
				if err = json.Unmarshal(raw, out); err == nil {
					return out
				}
			}
		}
	}
	// What cannot be scrubbed must not be published.
	return &why.Snapshot{Format: why.Format, Time: s.Time, Namespace: s.Namespace, Name: s.Name, Missing: []string{fmt.Sprintf("everything: %v", err)}}
}

const (
	// Hidden replaces a secret.
	Hidden = "***"
	hidden = Hidden
)

// Hide removes anything with the name or form of a secret from a JSON value, in place.
func Hide(v any) any { return scrub(v, secretTexts{}, false) }

func scrub(v any, known secretTexts, secret bool) any {
	switch v := v.(type) {
	case string:
		if secret && v != "" {
			return hidden
		}
		return formless(known.takeOut(v))
	case []any:
		key := false // whether the line before is part of a private key, which has no spaces
		for i := range v {
			value, _ := v[i].(string)
			key = key && !strings.ContainsAny(strings.TrimSpace(value), " -")
			mine := secret || key || i > 0 && value != "" && !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "-") && isSecretFlag(v[i-1])
			v[i] = scrub(v[i], known, mine)
			key = key || strings.HasSuffix(strings.TrimSpace(value), "PRIVATE KEY-----") && !strings.Contains(value, "-----END ")
		}
	case map[string]any:
		name, _ := v["name"].(string)
		for k, e := range v {
			_, text := e.(string)
			v[k] = scrub(e, known, text && secretKey.MatchString(fieldOf(k, name)))
		}
	}
	return v
}

var secretFlag = regexp.MustCompile(`(?i)^--?(?:[\w-]+[-_])?(?:` + words + `|requirepass)$`)

// isSecretFlag reports whether an argument of a program is a flag whose value, the next argument, is a secret. A path is not.
func isSecretFlag(v any) bool {
	text, is := v.(string)
	return is && secretFlag.MatchString(text)
}

// MySQL says whether a login gave a password in words that have the form of a secret. The mark keeps them apart: no pattern matches across it.
var (
	marked   = strings.NewReplacer("(using password: YES)", "(using password\x00: YES)", "(using password: NO)", "(using password\x00: NO)")
	unmarked = strings.NewReplacer("password\x00:", "password:")
)

// formless removes anything with the form of a secret from a text.
func formless(text string) string {
	answered := strings.Contains(text, "(using password: ")
	if answered {
		text = marked.Replace(text)
	}
	lower := strings.ToLower(text)
	for _, p := range patterns {
		if p.parts.MayMatch(lower) {
			text = p.re.ReplaceAllString(text, p.to)
		}
	}
	if answered {
		text = unmarked.Replace(text)
	}
	return text
}
