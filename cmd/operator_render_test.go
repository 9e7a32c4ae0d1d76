// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

const smallCloud = `apiVersion: onecloud.yunion.io/v1alpha1
kind: OnecloudCluster
metadata: {name: default, namespace: onecloud}
spec:
  mysql: {host: 10.0.0.5, password: not-to-be-shown}
  version: v4.0.4
`

func operator(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out, story bytes.Buffer
	c := newOperatorCommand(newApp(Streams{Out: &out, Err: &story}))
	finish(c)
	c.SetArgs(args)
	c.SetIn(strings.NewReader(stdin))
	c.SetOut(&out)
	c.SetErr(&story)
	c.SilenceUsage, c.SilenceErrors = true, true
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// As docs/configure.md says: the cloud's repository applies to every image, even those with their own versions; its version does not apply to those.
func TestRepositoryMovesEveryImage(t *testing.T) {
	const repository = "registry.example.org:5000/cloud/"
	cloud := smallCloud + "  imageRepository: " + strings.TrimSuffix(repository, "/") + "\n  backup: {disable: false}\n"
	documents, err := operator(t, cloud, "render", "-f", "-")
	require.NoError(t, err)
	images := regexp.MustCompile(`(?m)^ *(?:- )?image: (\S+)$`).FindAllStringSubmatch(documents, -1)
	if len(images) < 30 {
		t.Fatalf("only %d images are rendered", len(images))
	}
	var own []string
	for _, m := range images {
		rest, moved := strings.CutPrefix(m[1], repository)
		if !moved || strings.Contains(rest, "/") {
			t.Errorf("spec.imageRepository does not move %s", m[1])
		}
		if name, tag, _ := strings.Cut(rest, ":"); tag != "v4.0.4" {
			own = append(own, name)
		}
	}
	for _, name := range []string{"etcd", "host-health", "ocadm", "openvswitch", "telegraf"} {
		if !slices.Contains(own, name) {
			t.Errorf("spec.version moves the image of %s: %v do not move", name, own)
		}
	}
}

func TestOperatorRender(t *testing.T) {
	documents, err := operator(t, smallCloud, "render", "-f", "-")
	require.NoError(t, err)
	for _, want := range []string{"kind: StatefulSet", "kind: DaemonSet", "kind: Ingress", "<keystone.bootstrap-password>", "yunionio/keystone:v4.0.4"} {
		if !strings.Contains(documents, want) {
			t.Errorf("the documents lack %q", want)
		}
	}
	if strings.Contains(documents, "not-to-be-shown") {
		t.Error("the database password is shown")
	}
	list, err := operator(t, smallCloud, "render", "-f", "-", "-o", "json")
	require.NoError(t, err)
	var l struct {
		APIVersion, Kind string
		Items            []map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(list), &l))
	if n := strings.Count(documents, "\n---\n") + 1; l.Kind != "List" || l.APIVersion != "v1" || len(l.Items) != n {
		t.Errorf("a %s of %d items, %d documents", l.Kind, len(l.Items), n)
	}
	again, err := operator(t, smallCloud, "render", "-f", "-", "-o", "json")
	if err != nil || again != list {
		t.Errorf("the second time differs (%v)", err)
	}
}

func TestOperatorRenderRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, code string }{
		"another kind":    {"apiVersion: v1\nkind: Pod\nmetadata: {name: x}", "OCA-0311"},
		"no name":         {strings.Replace(smallCloud, "name: default, ", "", 1), "OCA-0311"},
		"a wrong type":    {strings.Replace(smallCloud, "v4.0.4", "[1]", 1), "OCA-0311"},
		"unknown product": {smallCloud + "  productVersion: Everything\n", "OCA-0312"},
		"bad affinity":    {smallCloud + "  keystone: {affinity: {nodes: 1}}\n", "OCA-0312"},
	} {
		_, err := operator(t, c.text, "render", "-f", "-")
		if l := finding.Of(err); len(l) != 1 || l[0].Code != c.code || l[0].Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOperatorComponents(t *testing.T) {
	table, err := operator(t, "", "components")
	if err != nil || !strings.HasPrefix(table, "NAME") || !strings.Contains(table, "public/30500,admin/30357") {
		t.Errorf("%v\n%s", err, table)
	}
	list, err := operator(t, "", "components", "-o", "json")
	require.NoError(t, err)
	var rows []componentRow
	if err := json.Unmarshal([]byte(list), &rows); err != nil || len(rows) != strings.Count(table, "\n")-1 {
		t.Errorf("%v, %d rows", err, len(rows))
	}
	for _, key := range []string{"name", "summary", "specKey", "kinds", "ports", "editions", "products", "offByDefault", "single"} {
		if !strings.Contains(list, `"`+key+`": `) {
			t.Errorf("no row has %s", key)
		}
	}
	if _, err := operator(t, "", "components", "-o", "xml"); err == nil {
		t.Error("an unknown format is accepted")
	}
}

func TestOperatorCRD(t *testing.T) {
	text, err := operator(t, "", "crd")
	if err != nil || strings.Count(text, "kind: \"CustomResourceDefinition\"") != 3 {
		t.Errorf("%v\n%.300s", err, text)
	}
}
