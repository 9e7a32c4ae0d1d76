// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

const (
	// secretMin is the minimum length of a secret that is removed anywhere: shorter ones occur within words.
	secretMin = 8
	// shortMin is the minimum length of a secret that is removed where it is a whole word.
	shortMin = 6
	// secretMax excludes what appears in no log: stored releases.
	secretMax = 16 << 10
)

var (
	// secretKey matches the name of a field that holds a secret.
	secretKey = regexp.MustCompile(`(?i)(pass(?:word|wd|phrase)|(?:^|[_.-])(?:pass|pwd)|token|secret[_-]?key|access[_-]?key|private[_-]?key|client[_-]?secret|credential|apikey)s?$`)
	// publicKey matches the name of a Secret entry that is not secret.
	publicKey = regexp.MustCompile(`(?i)^(user|user[_-]?name|namespace)$`)
	// plainWord matches what may be an ordinary word in a log.
	plainWord = regexp.MustCompile(`^[a-z]+$`)
)

// secretTexts holds the texts to remove from a snapshot.
type secretTexts struct {
	known *strings.Replacer
	short []shortSecret
}

type shortSecret struct {
	text string
	word *regexp.Regexp
}

// secretTextsOf collects the values of Secrets and of the password fields in the snapshot itself, as in the spec of a cloud.
//
// A value that is part of a name in the snapshot is kept: removing the password "onecloud", or a token's namespace of that name, would turn the
// operator's name into "***-operator" and spoil every conclusion and command. Such a value is public as a name, and nothing shows a reader that it is
// also a password: in a field, a URL or after "password:", it is removed by its form.
func secretTextsOf(tree any, list []corev1.Secret) secretTexts {
	var names strings.Builder
	namesIn(tree, false, func(n string) { names.WriteString(n + "\n") })
	public := names.String()
	var long []string
	var short []shortSecret
	add := func(key, v string) {
		switch v = strings.TrimSpace(v); {
		case len(v) > secretMax || len(v) < shortMin || strings.Contains(public, v):
		case len(v) >= secretMin:
			long = append(long, forms(v)...)
		case secretKey.MatchString(key) && !plainWord.MatchString(v) && !slices.ContainsFunc(short, func(s shortSecret) bool { return s.text == v }):
			short = append(short, shortSecret{v, wholeWord(v)})
		}
	}
	inFields(tree, add)
	for _, s := range list {
		ofSecret(s, add)
	}
	// Longest first: a secret may be part of another one.
	slices.SortFunc(long, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(long))
	for _, v := range long {
		pairs = append(pairs, v, hidden)
	}
	return secretTexts{strings.NewReplacer(pairs...), short}
}

// forms returns the ways in which programs write a secret.
func forms(v string) []string {
	quoted := strconv.Quote(v)
	return []string{v, base64.StdEncoding.EncodeToString([]byte(v)), url.QueryEscape(v), url.PathEscape(v), quoted[1 : len(quoted)-1]}
}

func wholeWord(v string) *regexp.Regexp {
	edge := func(c byte) string {
		if c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			return `\b`
		}
		return ""
	}
	return regexp.MustCompile(edge(v[0]) + regexp.QuoteMeta(v) + edge(v[len(v)-1]))
}

// ofSecret calls add for the secrets in a Secret. Certificates are public, and so are names: a token's namespace, the names of databases and
// accounts, and the identifiers of a cloud on its databases.
func ofSecret(s corev1.Secret, add func(key, v string)) {
	for k, v := range s.Data {
		text := string(v)
		certificate := strings.Contains(text, "BEGIN CERTIFICATE") && !strings.Contains(text, "PRIVATE KEY")
		if certificate || publicKey.MatchString(k) || k == component.CloudID || component.IsName(k) {
			continue
		}
		add(k, text)
		if strings.Contains(text, "PRIVATE KEY") {
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "-----") && len(strings.TrimSpace(line)) >= secretMin {
					add(k, line)
				}
			}
		}
		var tree any
		if strings.HasPrefix(text, "{") && json.Unmarshal(v, &tree) == nil { // registry passwords
			inFields(tree, add)
		}
	}
}

// inFields calls add for the values of secret fields in a JSON value. A path is not secret: it locates a file with one.
func inFields(tree any, add func(key, v string)) {
	switch v := tree.(type) {
	case []any:
		for _, e := range v {
			inFields(e, add)
		}
	case map[string]any:
		name, _ := v["name"].(string)
		for k, e := range v {
			text, is := e.(string)
			switch key := fieldOf(k, name); {
			case !is:
				inFields(e, add)
			case (secretKey.MatchString(key) || k == "auth") && !strings.HasPrefix(text, "/"):
				add(key, text)
			}
		}
	}
}

// fieldOf returns the meaning of a field: the name of a container's variable is in another field.
func fieldOf(key, name string) string {
	if key == "value" && name != "" {
		return name
	}
	return key
}

// naming lists the fields that contain names; labels lists those whose values are all names.
var (
	naming = []string{"name", "generateName", "namespace", "uid", "kind", "node", "nodeName", "host", "pod", "container", "component", "claimName", "volumeName",
		"storageClassName", "serviceAccountName", "username", "hostname", "address", "hostIP", "podIP"}
	labels = []string{"labels", "matchLabels", "nodeSelector"}
)

// namesIn calls add for the names in a JSON value. If label is true, all its values are label names.
func namesIn(tree any, label bool, add func(string)) {
	switch v := tree.(type) {
	case []any:
		for _, e := range v {
			namesIn(e, label, add)
		}
	case map[string]any:
		for k, e := range v {
			if text, is := e.(string); is && (label || slices.Contains(naming, k)) {
				add(text)
			}
			namesIn(e, slices.Contains(labels, k), add)
		}
	}
}

func (s secretTexts) takeOut(text string) string {
	if s.known != nil {
		text = s.known.Replace(text)
	}
	for _, x := range s.short {
		if strings.Contains(text, x.text) {
			text = x.word.ReplaceAllLiteralString(text, hidden)
		}
	}
	return text
}
