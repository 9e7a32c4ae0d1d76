// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The mount points of the host's files on a machine. They are directories, so that a new version of a file appears immediately.
const (
	binDir    = "/lab/bin"
	bundleDir = "/lab/bundle"
)

// create creates and starts machine i.
func (l *Lab) create(ctx context.Context, i int) error {
	dir := l.nodeDir(i)
	for _, sub := range []string{"upper/etc", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return fmt.Errorf("creating the disk: %w", err)
		}
	}
	// containerd keeps its layers in /var, and an overlay cannot lie on an overlay.
	copyVar := exec.CommandContext(ctx, "cp", "-a", filepath.Join(l.state.Root, "var"), filepath.Join(dir, "var"))
	copyVar.ExtraFiles = []*os.File{l.lock}
	if out, err := copyVar.CombinedOutput(); err != nil {
		return fmt.Errorf("creating the disk: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := l.writeIdentity(i); err != nil {
		return err
	}
	if err := addNetwork(l.Layout, i); err != nil {
		return err
	}
	return l.start(ctx, i)
}

// writeIdentity writes the files that differ between machines.
func (l *Lab) writeIdentity(i int) error {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return fmt.Errorf("inventing a machine id: %w", err)
	}
	hosts := &strings.Builder{}
	fmt.Fprintf(hosts, "127.0.0.1 localhost\n%s lab-host\n", l.Host())
	for n := 1; n <= l.state.Nodes; n++ {
		fmt.Fprintf(hosts, "%s %s\n", l.NodeAddress(n), l.hostname(n))
	}
	upper := filepath.Join(l.nodeDir(i), "upper")
	for path, content := range map[string]string{
		"etc/hostname":    l.hostname(i) + "\n",
		"etc/machine-id":  hex.EncodeToString(id) + "\n",
		"etc/hosts":       hosts.String(),
		"etc/resolv.conf": resolver(l.Host()),
		// They are built into the kernel, which has no list of built-in modules here. A distribution's modprobe succeeds for them.
		"etc/modprobe.d/lab.conf": "install tun /bin/true\ninstall ifb /bin/true\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(upper, path)), 0o755); err != nil {
			return fmt.Errorf("creating a directory: %w", err)
		}
		if err := os.WriteFile(filepath.Join(upper, path), []byte(content), 0o644); err != nil { //nolint:gosec // as on every machine
			return fmt.Errorf("writing /%s: %w", path, err)
		}
	}
	for _, link := range []struct{ name, dir, file string }{
		{"usr/local/bin/ocadm", binDir, l.state.Ocadm},
		{"bundle/ocadm.bundle", bundleDir, l.state.Bundle},
	} {
		if link.file == "" {
			continue
		}
		path := filepath.Join(upper, link.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("creating a directory: %w", err)
		}
		if err := os.Symlink(filepath.Join(link.dir, filepath.Base(link.file)), path); err != nil {
			return fmt.Errorf("linking /%s: %w", link.name, err)
		}
	}
	return nil
}

// resolver returns a resolv.conf that names this host, which has no DNS server. The lab has only the names in /etc/hosts, and a query is refused
// immediately instead of timing out. With a loopback address, CoreDNS would detect a loop.
func resolver(host netip.Addr) string {
	return fmt.Sprintf("nameserver %s\noptions attempts:1 timeout:1\n", host)
}

// start mounts machine i's disk and runs its container.
func (l *Lab) start(ctx context.Context, i int) error {
	dir := l.nodeDir(i)
	if err := mountRoot(l.state.Root, dir); err != nil {
		return err
	}
	binds := []bind{{Source: filepath.Join(dir, "var"), Target: "/var", Writable: true}}
	for target, file := range map[string]string{binDir: l.state.Ocadm, bundleDir: l.state.Bundle} {
		if file == "" {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, "root", target), 0o755); err != nil {
			return fmt.Errorf("creating a mount point: %w", err)
		}
		binds = append(binds, bind{Source: filepath.Dir(file), Target: target})
	}
	if _, err := os.Stat("/lib/modules"); err == nil {
		binds = append(binds, bind{Source: "/lib/modules", Target: "/lib/modules"})
	}
	config, err := json.Marshal(spec(container{
		Hostname: l.hostname(i), NetNS: l.netnsPath(i), CgroupsPath: l.cgroup() + "/" + nodeName(i),
		Capabilities: capabilities(), Binds: binds,
	}))
	if err != nil {
		return fmt.Errorf("describing the container: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		return fmt.Errorf("writing the container's configuration: %w", err)
	}
	return l.runContainer(ctx, i)
}

// mountRoot mounts an overlay of the machine's own files over the common ones. The mount is private; otherwise every mount of the machine would appear on the host.
func mountRoot(lower, dir string) error {
	root := filepath.Join(dir, "root")
	mounted, err := mountsBelow(root)
	if err != nil {
		return err
	}
	if len(mounted) > 0 {
		return nil
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", lower, filepath.Join(dir, "upper"), filepath.Join(dir, "work"))
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting the disk (%s must lie on a disk, not on an overlay): %w", dir, err)
	}
	if err := unix.Mount("", root, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the disk's mount private: %w", err)
	}
	return nil
}
