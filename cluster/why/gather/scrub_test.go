// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/test/require"
)

func secretNamed(name string, kind corev1.SecretType, data map[string]string) corev1.Secret {
	s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name}, Type: kind, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

// namesakes returns Secrets with values that are names in every cloud.
func namesakes() []corev1.Secret {
	return []corev1.Secret{
		secretNamed("default-token", corev1.SecretTypeServiceAccountToken, map[string]string{"namespace": "onecloud", "token": "a-token-of-an-account"}),
		secretNamed("main-credentials", "", map[string]string{"cloud-id": "7d0f2a9e-cloud", "keystone.database-user": "db-user-of-keystone",
			"keystone.database-name": "identity-tables", "keystone.database-password": "keystone"}),
		secretNamed("bad", "", map[string]string{"username": "administrator", "password": "onecloud"}),
		secretNamed("worse", "", map[string]string{"password": "operator"}),
	}
}

// Names survive, whatever Secrets hold: the operator's Deployment is found, and the commands in a report name the namespace.
func TestNamesSurvive(t *testing.T) {
	one := int32(1)
	list := append(objects(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "onecloud-operator"}, Spec: appsv1.DeploymentSpec{Replicas: &one}})
	for _, s := range namesakes() {
		list = append(list, &s)
	}
	list[0].SetUID("7d0f2a9e-cloud")
	list[0].(*v1alpha1.OnecloudCluster).Status.Components = []v1alpha1.ComponentStatus{{Name: "keystone", State: v1alpha1.Available}}
	o := options()
	o.Log = func(_ context.Context, _, _ string, _ *corev1.PodLogOptions) ([]byte, error) {
		return []byte("GET default-keystone.onecloud as db-user-of-keystone of identity-tables, administrator\npassword: onecloud\nmysql://u:keystone@db/x\n" +
			"IDENTIFIED BY 'operator'\nauth --password onecloud with a-token-of-an-account"), nil
	}
	s := Snapshot(t.Context(), build(t, list, interceptor.Funcs{}), o)
	if s.Namespace != "onecloud" || s.Cloud.UID != "7d0f2a9e-cloud" || len(s.Deployments) != 1 || s.Deployments[0].Name != "onecloud-operator" || len(s.Logs) == 0 {
		t.Fatalf("%s %s %+v", s.Namespace, s.Cloud.UID, s.Deployments)
	}
	if r, _ := why.Diagnose(s, ""); slices.ContainsFunc(append(r.Others, r.Consequences...), func(x why.Found) bool { return x.ID == "operator-missing" }) {
		t.Errorf("the operator is gone: %+v", r)
	}
	want := []string{"GET default-keystone.onecloud as db-user-of-keystone of identity-tables, administrator", "password: ***", "mysql://u:***@db/x",
		"IDENTIFIED BY '***'", "auth --password *** with ***"}
	if got := s.Logs[0].Lines; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Anything with a secret's name or form is removed from every text, short ones where they are words, including those in the spec.
func TestTakenOut(t *testing.T) {
	secrets := []corev1.Secret{
		secretNamed("short", "", map[string]string{"password": "Abc123", "mode": "strict", "root.password": "server", "tiny.password": "a1b2"}),
		secretNamed("pull", corev1.SecretTypeDockerConfigJson, map[string]string{
			corev1.DockerConfigJsonKey: `{"auths":{"r":{"username":"puller","password":"registry-pw","auth":"cHVsbGVyOng="}}}`,
		}),
		secretNamed("odd", "", map[string]string{"password": `p@ss/w"ord`}),
	}
	for said, want := range map[string]string{
		"login with Abc123, not xAbc1234":                   "login with ***, not xAbc1234",
		"the server is strict":                              "the server is strict",
		"a1b2 is too short":                                 "a1b2 is too short",
		"pulling with registry-pw and cHVsbGVyOng=":         "pulling with *** and ***",
		`as p@ss/w"ord, p%40ss%2Fw%22ord and "p@ss/w\"ord"`: `as ***, *** and "***"`,
		"again inline-password":                             "again ***",
		"and plain-in-a-pod":                                "and ***",
		"at /etc/token/of/a/pod":                            "at /etc/token/of/a/pod",
		`err="container &Container{Name:main,Env:[]EnvVar{EnvVar{Name:DB_PASSWORD,Value:from the kubelet,ValueFrom:nil,},EnvVar{Name:MODE,Value:x,ValueFrom:nil,},}"`://
		`err="container &Container{Name:main,Env:[]EnvVar{EnvVar{Name:DB_PASSWORD,Value:***,ValueFrom:nil,},EnvVar{Name:MODE,Value:x,ValueFrom:nil,},}"`,
		`env {"name":"S3_SECRET_KEY","value":"abcdefg"} {\"name\":\"A_TOKEN\",\"value\":\"xyz\"}`: `env {"name":"S3_SECRET_KEY","value":"***"} {\"name\":\"A_TOKEN\",\"value\":\"***\"}`,
		`{"auths":{"r":{"auth":"dTpodW50ZXIy"}}} {\"auth\": \"dTpodW50ZXIy\"} "author":"x"`:       `{"auths":{"r":{"auth":"***"}}} {\"auth\": \"***\"} "author":"x"`,
		"secret-key: wJalrXUtn":                                                       "secret-key: ***",
		"SMTP_PASS=hunter2 MYSQL_PWD: hunter2, compass: x":                            "SMTP_PASS=*** MYSQL_PWD: ***, compass: x",
		"key AGE-SECRET-KEY-1QQPZ and AGE-SECRET-KEY-PQ-1K30MYPZAHAXHR":               "key *** and ***",
		"again hunter3-of-smtp":                                                       "again ***",
		"Access denied for user 'region'@'10.0.0.1' (using password: YES); retry":     "Access denied for user 'region'@'10.0.0.1' (using password: YES); retry",
		"denied (using password: NO), password: YES, token=abc":                       "denied (using password: NO), password: ***, token=***",
		"denied (using password: YESterday) (using password: hunter2)":                "denied (using password: *** (using password: ***",
		`body: "{\"user\":\"u\",\"password\":\"hun,ter2\",\"x\":1}"`:                  `body: "{\"user\":\"u\",\"password\":\"***\",\"x\":1}"`,
		`{"password": "hun,ter 2\"3", "x": 1}`:                                        `{"password": "***", "x": 1}`,
		`passwd='hun;ter 2' next`:                                                     `passwd='***' next`,
		`token=\"abc\" next`:                                                          `token=\"***\" next`,
		"dial redis://:hunter2@cache:6379/0":                                          "dial redis://:***@cache:6379/0",
		"opening region:hun@ter2@tcp(db:3306)/region":                                 "opening region:***@tcp(db:3306)/region",
		`-----BEGIN RSA PRIVATE KEY-----\nMIIEhunter2\n-----END RSA PRIVATE KEY-----`: `-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----`,
	} {
		s := &why.Snapshot{Cloud: &v1alpha1.OnecloudCluster{}, Logs: []why.Log{{Lines: []string{said}}},
			Machines: []why.Machine{{Journals: map[string][]string{"kubelet": {said}}}},
			Pods: []corev1.Pod{{Spec: corev1.PodSpec{Containers: []corev1.Container{{Env: []corev1.EnvVar{
				{Name: "DB_PASSWORD", Value: "plain-in-a-pod"}, {Name: "API_TOKEN", Value: "/etc/token/of/a/pod"}, {Name: "SMTP_PASS", Value: "hunter3-of-smtp"}}}}}}}}
		s.Cloud.Spec.MySQL.Password = "inline-password"
		s = Scrub(s, secrets)
		if got := s.Logs[0].Lines[0]; got != want {
			t.Errorf("%s: %s", said, got)
		}
		if got := s.Machines[0].Journals["kubelet"][0]; got != want {
			t.Errorf("journal, %s: %s", said, got)
		}
	}
}

// A private key that a program logs is not a value of a Secret, and each of its lines is a text of its own.
func TestPrivateKeyInALog(t *testing.T) {
	lines := []string{"read:", "-----BEGIN RSA PRIVATE KEY-----", "MIIEhunter2", "abcd+/=", "-----END RSA PRIVATE KEY-----", "abcd+/=", "BEGIN PRIVATE KEY-----", "it goes on", "ready"}
	s := Scrub(&why.Snapshot{Logs: []why.Log{{Lines: slices.Clone(lines)}}}, nil)
	lines[2], lines[3] = hidden, hidden
	if got := s.Logs[0].Lines; !slices.Equal(got, lines) {
		t.Errorf("%q", got)
	}
}

// Without literals, a pattern is tried on every line of a support bundle.
func TestPatternsHaveLiterals(t *testing.T) {
	for _, p := range patterns {
		if len(p.parts) == 0 {
			t.Errorf("%s has none", p.re)
		}
	}
}

// The settings of the monitoring stack have no schema. Their secrets appear neither in the REST API nor in support bundles.
func TestSecretsOfTheMonitoringStack(t *testing.T) {
	const cloud = `{"metadata":{"name":"default","namespace":"onecloud"},"spec":{"monitorStack":{
		"grafana":{"adminPassword":"visible?1234","oauth":{"enabled":true,"clientId":"grafana","clientSecret":"k7Jq9fOauthS3cr3t"}},
		"loki":{"objectStoreConfig":{"accessKey":"an-access-key","secretKey":"a-secret/key"}}}}}`
	all := []string{"visible?1234", "k7Jq9fOauthS3cr3t", "an-access-key", "a-secret/key"}
	shows := func(where string, v any) {
		t.Helper()
		b, err := json.Marshal(v)
		require.NoError(t, err)
		for _, secret := range all {
			if strings.Contains(string(b), secret) {
				t.Errorf("%s shows %s: %s", where, secret, b)
			}
		}
	}
	var tree any
	require.NoError(t, json.Unmarshal([]byte(cloud), &tree))
	shows("the REST API", Hide(tree))
	s := &why.Snapshot{Format: why.Format, Cloud: &v1alpha1.OnecloudCluster{}, Logs: []why.Log{{Lines: []string{"login with " + strings.Join(all, " and ")}}}}
	require.NoError(t, json.Unmarshal([]byte(cloud), s.Cloud))
	strip(s)
	shows("a support bundle", Scrub(s, nil))
}

// A program may get a secret as an argument after a flag. A file with one, and another flag, are no secrets.
func TestSecretArguments(t *testing.T) {
	s := &why.Snapshot{Format: why.Format, Pods: []corev1.Pod{{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Command: []string{"redis-server", "--requirepass", "hunter2", "--port", "6379"},
		Args:    []string{"--db-password", "hunter2", "--token", "/etc/token", "--secret-key", "--verbose", "--token-file", "f"}}}}}}}
	c := Scrub(s, nil).Pods[0].Spec.Containers[0]
	if got, want := strings.Join(c.Command, " "), "redis-server --requirepass *** --port 6379"; got != want {
		t.Errorf("%s", got)
	}
	if got, want := strings.Join(c.Args, " "), "--db-password *** --token /etc/token --secret-key --verbose --token-file f"; got != want {
		t.Errorf("%s", got)
	}
}

// Passwords that the cluster does not know, such as those of virtual machines and of cloud accounts, are removed by their form, as a whole.
func TestQuotedSecrets(t *testing.T) {
	for text, want := range map[string]string{
		`{"user":"a","password":"ab,cd ef;gh","x":1}`:            `{"user":"a","password":"***","x":1}`,
		`{"password":"a\"b, c"}`:                                 `{"password":"***"}`,
		`msg="sent {\"password\":\"ab,cd ef\",\"x\":\"y z\"}"`:   `msg="sent {\"password\":\"***\",\"x\":\"y z\"}"`,
		`password: "correct horse" for vm1`:                      `password: "***" for vm1`,
		`passwd = 'correct horse, battery' for vm1`:              `passwd = '***' for vm1`,
		`access_key="unfinished line, cut off`:                   `access_key="***`,
		`dial redis://:S3cretPw@host:6379/0`:                     `dial redis://:***@host:6379/0`,
		`open mysql://glance:p@ssw0rd@db:3306/glance`:            `open mysql://glance:***@db:3306/glance`,
		`open glance:p@ss/word@tcp(db:3306)/glance?charset=utf8`: `open glance:***@tcp(db:3306)/glance?charset=utf8`,
		`{"password":"","x":"y z"}`:                              `{"password":"","x":"y z"}`,
		`GET http://host:80/a?mail=b@c`:                          `GET http://host:80/a?mail=b@c`,
	} {
		if got := formless(text); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
		if again := formless(want); again != want {
			t.Errorf("%s became %s", want, again)
		}
	}
}
