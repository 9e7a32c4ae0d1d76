// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// A containerd's data is removed if ocadm installed it, unless others keep something in it.
func TestDataOfContainerd(t *testing.T) {
	const data = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"
	for _, tt := range []struct {
		name   string
		before func(*testing.T, *machine)
		after  func(*testing.T, *machine)
		gone   bool
	}{
		{name: "ours", gone: true},
		{name: "there before", before: func(t *testing.T, m *machine) { m.put(t, data, "theirs") }},
		{name: "images of others", after: func(_ *testing.T, m *machine) {
			m.outputs["ctr namespaces ls -q"] = "default\nk8s.io\nempty\n"
			m.outputs["ctr -n default images ls -q"] = "docker.io/library/nginx:1\n"
		}},
		{name: "a container of others among the pods", after: func(_ *testing.T, m *machine) {
			m.outputs["ctr namespaces ls -q"] = "k8s.io\n"
			m.outputs["ctr -n k8s.io containers ls -q"] = "nerdctls\n"
		}},
		{name: "a killed Open vSwitch command", gone: true, after: func(_ *testing.T, m *machine) {
			m.outputs["ctr namespaces ls -q"] = "k8s.io\n"
			m.outputs["ctr -n k8s.io containers ls -q"] = "abc\nocadm-ovs-vsctl-4711-1764000000\n"
			m.outputs["ctr -n k8s.io containers ls -q "+podLabel] = "abc\n"
		}},
		{name: "the first release's ledger", gone: true, after: func(t *testing.T, m *machine) {
			require.NoError(t, m.Ledger.Forget(host.KindData, containerdData))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			m.use(t, writeBundle(t, nodeFiles()))
			if tt.before != nil {
				tt.before(t, m)
			}
			m.asNode(t)
			m.must(t, Software())
			m.must(t, Units())
			m.put(t, data, "x")
			m.put(t, "/run/containerd/s/abc", "a socket")
			if tt.after != nil {
				tt.after(t, m)
			}
			m.boot(t, false)
			inv, err := InventoryOf(t.Context(), m.Host)
			if err != nil || slices.ContainsFunc(inv.Removes, func(l string) bool { return strings.HasPrefix(l, containerdData) }) != tt.gone ||
				slices.ContainsFunc(inv.Keeps, func(l string) bool { return strings.HasPrefix(l, containerdData) }) == tt.gone {
				t.Errorf("the inventory is %+v, %v", inv, err)
			}
			for _, p := range ResetPhases() {
				if _, err := m.do(t, p); err != nil {
					t.Fatalf("%s: %v", p.Name, err)
				}
			}
			if m.Files.Exists(data) == tt.gone || m.Files.Exists("/run/containerd/s/abc") == tt.gone {
				t.Errorf("gone %t", !m.Files.Exists(data))
			}
		})
	}
}

// A containerd that does not answer may still hold the containers and images of others: their processes and its database show them.
func TestDataOfContainerdThatIsDown(t *testing.T) {
	shimOf := func(namespace, address string) func(*testing.T, *machine) {
		return func(t *testing.T, m *machine) {
			m.put(t, "/proc/77/cmdline", "/usr/local/bin/"+shim+"\x00-namespace\x00"+namespace+"\x00-id\x00db\x00-address\x00"+address+"\x00")
		}
	}
	database := func(buckets ...string) func(*testing.T, *machine) {
		return func(t *testing.T, m *machine) {
			m.put(t, containerdDatabase, "")
			db, err := bolt.Open(m.Files.Path(containerdDatabase), 0o600, nil)
			require.NoError(t, err)
			err = db.Update(func(tx *bolt.Tx) error {
				for _, name := range buckets {
					parts := strings.Split("v1 "+name, " ")
					b, err := tx.CreateBucketIfNotExists([]byte(parts[0]))
					for _, p := range parts[1:] {
						if key, is := strings.CutPrefix(p, "="); is {
							err = errors.Join(err, b.Put([]byte(key), []byte("container")))
						} else if err == nil {
							b, err = b.CreateBucketIfNotExists([]byte(p))
						}
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
			require.NoError(t, errors.Join(err, db.Close()))
		}
	}
	pod := "k8s.io containers pod labels =" + podLabelName
	for name, tt := range map[string]struct {
		state func(*testing.T, *machine)
		gone  bool
	}{
		"no database":                       {func(*testing.T, *machine) {}, true},
		"an unreadable database":            {func(t *testing.T, m *machine) { m.put(t, containerdDatabase, "x") }, true},
		"only pods":                         {database(pod, "k8s.io images pause", "empty containers"), true},
		"a killed Open vSwitch command":     {database(pod, "k8s.io containers ocadm-ovs-vsctl-4711-1764000000"), true},
		"an image of others":                {database(pod, "default images nginx"), false},
		"a container of others":             {database(pod, "moby containers x"), false},
		"a container of others with pods":   {database(pod, "k8s.io containers nerdctls"), false},
		"a running container of others":     {shimOf("default", socket), false},
		"one of another containerd":         {shimOf("moby", "/run/docker/containerd/containerd.sock"), true},
		"one of others, with a broken file": {func(t *testing.T, m *machine) { m.put(t, containerdDatabase, "x"); shimOf("default", socket)(t, m) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.use(t, writeBundle(t, nodeFiles()))
			m.asNode(t)
			m.must(t, Software())
			m.must(t, Units())
			tt.state(t, m)
			m.put(t, "/var/lib/containerd/x", "")
			m.boot(t, false)
			m.rec.Answer = func(c exec.Command) (exec.Result, error) {
				if path.Base(c.Path) == ctr {
					return exec.Result{}, errors.New("ctr: connection refused")
				}
				return m.answer(c)
			}
			inv, err := InventoryOf(t.Context(), m.Host)
			if err != nil || slices.ContainsFunc(inv.Removes, func(l string) bool { return strings.HasPrefix(l, containerdData) }) != tt.gone {
				t.Errorf("the inventory is %+v, %v", inv, err)
			}
			for _, p := range ResetPhases() {
				if _, err := m.do(t, p); err != nil {
					t.Fatalf("%s: %v", p.Name, err)
				}
			}
			if m.Files.Exists("/var/lib/containerd/x") == tt.gone {
				t.Errorf("gone %t", !m.Files.Exists("/var/lib/containerd/x"))
			}
		})
	}
}

// The shims of every containerd keep their sockets in one directory.
func TestDirectoriesOfAnotherContainerdStay(t *testing.T) {
	m := newMachine(t)
	m.use(t, writeBundle(t, nodeFiles()))
	m.put(t, "/opt/containerd/bin/x", "")
	m.put(t, "/run/nri/theirs", "")
	m.put(t, "/run/containerd/s/theirs", "a socket")
	m.asNode(t)
	m.must(t, Software())
	m.put(t, "/run/containerd/containerd.sock", "")
	m.put(t, "/var/lib/containerd/x", "")
	require.NoError(t, removeRuntimeData(t.Context(), m.Host, m))
	for name, stays := range map[string]bool{"/opt/containerd/bin/x": true, "/run/nri/theirs": true, "/run/containerd/s/theirs": true,
		"/run/containerd/containerd.sock": false, "/var/lib/containerd": false} {
		if m.Files.Exists(name) != stays {
			t.Errorf("%s is there: %t", name, !stays)
		}
	}
}
