// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/lab/cache"
)

// Down removes the lab and all that it or a crashed run left behind, and checks that nothing is left.
func (l *Lab) Down(ctx context.Context) error {
	lock, err := lockLab(ctx, l.Name, l.logf)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	return l.remove(ctx)
}

func (l *Lab) remove(ctx context.Context) error {
	// Killing a machine's first process kills all others in it, including those in its containers.
	if err := emptyCgroups(ctx, l.cgroup()); err != nil {
		return err
	}
	var g errgroup.Group
	g.Go(func() error { return removeNetworks(l.Layout) })
	g.Go(func() error { return l.removeFiles() })
	if err := g.Wait(); err != nil {
		return fmt.Errorf("removing the lab %q: %w", l.Name, err)
	}
	l.logf("removed the lab %q", l.Name)
	return nothing(l.Residue())
}

// nothing returns an error if something is left.
func nothing(left []string, err error) error {
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left of the lab:\n  %s", strings.Join(left, "\n  "))
	}
	return err
}

// Down removes the lab with that name. A missing lab is not an error.
func Down(ctx context.Context, name string, logf cache.Logf) error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	lab, err := Open(name, logf)
	if errors.Is(err, ErrNoLab) {
		name = cmp.Or(name, DefaultName)
		logf("there is no lab %q", name)
		return removeEmpty(newLayout(name, 0))
	}
	if err != nil {
		return err
	}
	return lab.Down(ctx)
}

// removeEmpty removes what is left of a run that was killed before it wrote the lab's state.
func removeEmpty(l Layout) error {
	for _, path := range []string{l.stateFile() + ".new", l.Dir, filepath.Dir(l.Dir)} {
		err := os.Remove(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("removing what an unfinished lab left: %w", err)
		}
	}
	return nil
}

// DownAll removes every lab, and leftovers whose state was lost, and checks that nothing is left.
func DownAll(ctx context.Context, logf cache.Logf) error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	labs, err := labNames()
	if err != nil {
		return err
	}
	for _, name := range labs {
		if err := Down(ctx, name, logf); err != nil {
			return err
		}
	}
	for index := range maxLabs {
		orphan := &Lab{Layout: newLayout(fmt.Sprintf("lost-%d", index), index), logf: logf}
		left, err := orphan.Residue()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			continue
		}
		if err := orphan.Down(ctx); err != nil {
			return err
		}
	}
	return nothing(residue())
}

func removeNetworks(l Layout) error {
	links, names, err := networkResidue(l)
	if err != nil {
		return err
	}
	for _, link := range links {
		if err := removeLink(link); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := removeNamespace(name); err != nil {
			return err
		}
	}
	return nil
}

// networkResidue returns the lab's links and network namespaces, with cables before the bridge.
func networkResidue(l Layout) (links, namespaces []string, err error) {
	all, err := netlink.LinkList()
	if err != nil {
		return nil, nil, fmt.Errorf("listing the links: %w", err)
	}
	cable := regexp.MustCompile(`^ocl` + strconv.Itoa(l.Index) + `n\d+$`)
	present := lists.Map(all, func(link netlink.Link) string { return link.Attrs().Name })
	links = append(lists.Filter(present, cable.MatchString), lists.Filter(present, func(name string) bool { return name == l.Bridge() })...)
	entries, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("listing the network namespaces: %w", err)
	}
	namespaces = lists.Pick(entries, func(e os.DirEntry) (string, bool) { return e.Name(), strings.HasPrefix(e.Name(), l.Bridge()+"-") })
	return links, namespaces, nil
}

// mountsBelow returns the mounts at or below a directory, the last one first.
func mountsBelow(dir string) ([]string, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	paths := lists.Pick(mounts, func(m disk.Mount) (string, bool) { return m.At, m.At == dir || strings.HasPrefix(m.At, dir+"/") })
	slices.Reverse(paths)
	return paths, nil
}

// removeFiles unmounts and removes the lab's directories. It removes nothing while something is mounted there, which could be the host's.
func (l *Lab) removeFiles() error {
	for _, dir := range []string{l.Dir, l.RunDir} {
		mounted, err := mountsBelow(dir)
		if err != nil {
			return err
		}
		for _, path := range mounted {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("unmounting %s: %w", path, err)
			}
		}
		if mounted, err = mountsBelow(dir); err != nil {
			return err
		}
		if len(mounted) > 0 {
			return fmt.Errorf("unmounting %s: still mounted", mounted[0])
		}
	}
	// The state is removed last, so that an interrupted removal can be repeated.
	if err := firstError(
		func() error { return os.RemoveAll(filepath.Join(l.Dir, "nodes")) },
		func() error { return os.RemoveAll(l.RunDir) },
		func() error { return os.RemoveAll(l.Dir) },
	); err != nil {
		return fmt.Errorf("removing the lab's files: %w", err)
	}
	for _, parent := range []string{filepath.Dir(l.RunDir), filepath.Dir(l.Dir)} {
		_ = os.Remove(parent) // succeeds only for the last lab
	}
	return nil
}

// Residue lists what exists of the lab on this host, one line each. After Down the list is empty.
func (l *Lab) Residue() ([]string, error) {
	links, namespaces, err := networkResidue(l.Layout)
	if err != nil {
		return nil, err
	}
	named := func(kind string, names []string) []string {
		return lists.Map(names, func(name string) string { return kind + " " + name })
	}
	left := append(named("link", links), named("network namespace", namespaces)...)
	groups, err := cgroupDirs(l.cgroup())
	if err != nil {
		return nil, err
	}
	left = slices.Concat(left, named("process", lists.Map(processesIn(groups), strconv.Itoa)), named("control group", groups))
	for _, dir := range []string{l.Dir, l.RunDir} {
		mounted, err := mountsBelow(dir)
		if err != nil {
			return nil, err
		}
		left = append(left, directory(dir, mounted)...)
	}
	return left, nil
}

// residue lists what exists of any lab on this host.
func residue() ([]string, error) {
	var left []string
	for index := range maxLabs {
		lost := &Lab{Layout: newLayout("*", index)}
		more, err := lost.Residue()
		if err != nil {
			return nil, err
		}
		left = append(left, more...)
	}
	mounted, err := mountsBelow(stateRoot())
	if err != nil {
		return nil, err
	}
	return append(left, directory(stateRoot(), mounted)...), nil
}

// directory describes what exists of a directory with these mounts.
func directory(dir string, mounted []string) []string {
	left := lists.Map(mounted, func(path string) string { return "mount " + path })
	if _, err := os.Stat(dir); err == nil {
		left = append(left, "directory "+dir)
	}
	return left
}
