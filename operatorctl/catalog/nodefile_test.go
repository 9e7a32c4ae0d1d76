// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/require"
)

// Agents create their file on the node, several concurrently, if it is missing; an existing one belongs to the node.
func TestNodeFileIsCreatedOnce(t *testing.T) {
	cluster := cloud(t, everything, "ce", "FullStack")
	dir := t.TempDir()
	inits := map[string]string{}
	for agent, file := range map[string]string{"host": "host.conf", "host-deployer": "host.conf", "host-image": "host.conf", "lbagent": "lbagent.conf"} {
		r := cluster.Components[agent]
		for _, c := range podSpec(objectsOf(t, cluster, r).Workload).InitContainers {
			if c.Name == "node-conf" {
				inits[agent] = strings.ReplaceAll(c.Command[2], "/etc/yunion", dir)
			}
		}
		owner := agent
		if r.Config.Of != "" {
			owner = r.Config.Of
		}
		text := cluster.Components[owner].Config.Files(component.Inputs{Cluster: cluster})[file]
		var options map[string]any
		if err := yaml.Unmarshal([]byte(text), &options); err != nil || len(options) == 0 {
			t.Fatalf("%s of %s: %v, %v", file, agent, options, err)
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "common"), 0o755))
		write(t, filepath.Join(dir, "common", file), text)
	}
	if len(inits) != 4 {
		t.Fatalf("only %v prepare their file", inits)
	}
	all := func() {
		var wg sync.WaitGroup
		for agent, script := range inits {
			wg.Go(func() {
				if out, err := exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", agent, err, out)
				}
			})
		}
		wg.Wait()
	}
	all()
	left, err := filepath.Glob(filepath.Join(dir, ".*.conf.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	mine := filepath.Join(dir, "host.conf")
	if text, err := os.ReadFile(mine); err != nil || !strings.Contains(string(text), "networks: []") {
		t.Errorf("host.conf: %q, %v", text, err)
	}
	write(t, mine, "networks: [eth0/br0/192.0.2.10]\n")
	all()
	if st, err := os.Stat(mine); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("an agent without networks writes its password into a file that everyone may read: %v, %v", st, err)
	}
	if text, err := os.ReadFile(mine); err != nil || string(text) != "networks: [eth0/br0/192.0.2.10]\n" {
		t.Errorf("the node's file was changed: %q, %v", text, err)
	}
}

// The Open vSwitch commands that the installer puts on a node find the image by these container names.
func TestCommandsOfTheNodeFindTheSwitch(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "..", "phases", "compute", "files", "ovs.sh"))
	require.NoError(t, err)
	cluster := cloud(t, everything, "ce", "FullStack")
	var names []string
	for _, component := range []string{"host-ovs-vswitchd", "host-ovsdb-server"} {
		names = append(names, podSpec(objectsOf(t, cluster, cluster.Components[component]).Workload).Containers[0].Name)
	}
	if loop := "for container in " + strings.Join(names, " ") + "; do"; !strings.Contains(string(script), loop) {
		t.Errorf("ovs.sh has no line %q", loop)
	}
}
