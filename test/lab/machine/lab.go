// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/lab/cache"
	"yunion.io/x/ocadm/test/lab/debian"
)

// DefaultName is the name of a lab if the user gives none.
const DefaultName = "default"

// Options configure a lab.
type Options struct {
	// Name distinguishes labs on one host; empty means DefaultName.
	Name  string `json:"-"`
	Nodes int    `json:"nodes"`
	// Ocadm and Bundle are files of this host. Every machine sees their current version as /usr/local/bin/ocadm and /bundle/ocadm.bundle. Their directories must exist.
	Ocadm  string `json:"ocadm,omitempty"`
	Bundle string `json:"bundle,omitempty"`
	// Distro is the code name of the machines' Debian release; empty means Debian 12.
	Distro string `json:"distro,omitempty"`
	// Hostname is the prefix of the machines' host names, followed by their number; empty means "node".
	Hostname string `json:"hostname,omitempty"`
	// Packages are additional Debian packages of the machines.
	Packages []string   `json:"packages,omitempty"`
	Logf     cache.Logf `json:"-"`
}

// Lab is a set of machines.
type Lab struct {
	Layout
	state state
	logf  cache.Logf
	// lock is held while the lab is created.
	lock *os.File
}

// state holds what the lab's name does not determine.
type state struct {
	Options
	Index int    `json:"index"`
	Root  string `json:"root"`
	// Complete reports whether all machines have booted once.
	Complete bool `json:"complete"`
}

// ErrNoLab means that no lab has that name.
var ErrNoLab = errors.New("no such lab")

// ErrNotRoot means that the user is not root.
var ErrNotRoot = errors.New("the lab makes network interfaces, mounts and containers: run it as root")

// Up creates the lab and boots its machines, unless they are already running.
func Up(ctx context.Context, o Options) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	o.Name = cmp.Or(o.Name, DefaultName)
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	if o.Nodes < 1 || o.Nodes > maxNodes || !validName.MatchString(o.Name) {
		return nil, fmt.Errorf("making the lab %q with %d machines: 1 to %d machines, and a name of small letters, digits and dashes",
			o.Name, o.Nodes, maxNodes)
	}
	lock, err := lockLab(ctx, o.Name, o.Logf)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	if lab, err := Open(o.Name, o.Logf); err == nil {
		if reusable, err := lab.reuse(o); reusable || err != nil {
			return lab, err
		}
		if err := lab.remove(ctx); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, ErrNoLab) {
		return nil, err
	}
	if err := debian.Prepare(ctx, o.Logf); err != nil {
		return nil, err
	}
	root, err := debian.Root(ctx, o.Distro, o.Packages, o.Logf)
	if err != nil {
		return nil, err
	}
	lab, err := reserve(ctx, o, root)
	if err != nil {
		return nil, err
	}
	lab.lock = lock
	if err := lab.boot(ctx); err != nil {
		return nil, fmt.Errorf("booting the lab %q: %w", o.Name, err)
	}
	lab.lock = nil
	lab.state.Complete = true
	return lab, lab.writeState()
}

// lockLab prevents two runs from creating or removing the same lab at the same time. Children inherit the lock: those of a killed run must end before
// another run may touch the lab.
func lockLab(ctx context.Context, name string, logf cache.Logf) (*os.File, error) {
	return cache.Lock(ctx, "/run/ocadm-lab-"+name+".lock", func() {
		logf("waiting for another run that makes or removes the lab %q", name)
	})
}

// reuse reports whether the running lab matches the options. It also returns false for what a crash or a reboot left, which is unusable.
func (l *Lab) reuse(o Options) (bool, error) {
	stopped := lists.Pick(l.Nodes(), func(n *Node) (string, bool) { return n.Name, !l.running(n.index) })
	if !l.state.Complete || len(stopped) == l.state.Nodes {
		l.logf("the lab %q does not run any more, or was never finished: it is recreated", l.Name)
		return false, nil
	}
	if len(stopped) > 0 {
		return false, fmt.Errorf("using the lab %q: %s stopped while others run; start it with \"start\", or remove the lab with \"down\"", l.Name, strings.Join(stopped, ", "))
	}
	if l.state.Nodes != o.Nodes {
		return false, fmt.Errorf("using the lab %q: it runs with %d machines, not %d; remove it with \"down\" first", l.Name, l.state.Nodes, o.Nodes)
	}
	if was, want := cmp.Or(l.state.Distro, debian.Release), cmp.Or(o.Distro, debian.Release); was != want {
		return false, fmt.Errorf("using the lab %q: its machines run Debian %s, not %s; remove it with \"down\" first", l.Name, was, want)
	}
	if !slices.Equal(l.state.Packages, o.Packages) {
		return false, fmt.Errorf("using the lab %q: its machines have the packages %q, not %q; remove it with \"down\" first", l.Name, l.state.Packages, o.Packages)
	}
	if l.state.Ocadm != o.Ocadm || l.state.Bundle != o.Bundle {
		return false, fmt.Errorf("using the lab %q: it runs with the ocadm %q and the bundle %q; remove it with \"down\" first",
			l.Name, l.state.Ocadm, l.state.Bundle)
	}
	l.logf("the lab %q runs already, with %d machines", l.Name, l.state.Nodes)
	return true, nil
}

// Open returns a lab that an earlier Up created.
func Open(name string, logf cache.Logf) (*Lab, error) {
	name = cmp.Or(name, DefaultName)
	if logf == nil {
		logf = func(string, ...any) {}
	}
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("opening the lab %q: not a name of a lab", name)
	}
	path := newLayout(name, 0).stateFile()
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("opening the lab %q: %w; \"up\" makes it", name, ErrNoLab)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the lab %q: %w", name, err)
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return &Lab{Layout: newLayout(name, s.Index), state: s, logf: logf}, nil
}

// reserve assigns the lowest free index to the lab and saves it before anything else is created.
func reserve(ctx context.Context, o Options, root string) (*Lab, error) {
	if err := os.MkdirAll(stateRoot(), 0o755); err != nil {
		return nil, fmt.Errorf("creating the labs' directory: %w", err)
	}
	lock, err := cache.Lock(ctx, "/run/ocadm-lab.lock", func() { o.Logf("waiting for another run that makes a lab") })
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	taken, err := takenIndexes()
	if err != nil {
		return nil, err
	}
	index := 0
	for slices.Contains(taken, index) {
		index++
	}
	if index >= maxLabs {
		return nil, fmt.Errorf("making the lab %q: %d labs are there already", o.Name, maxLabs)
	}
	l := &Lab{
		Layout: newLayout(o.Name, index), logf: o.Logf,
		state: state{Options: o, Index: index, Root: root},
	}
	if err := l.writeState(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(l.RunDir, 0o711); err != nil {
		return nil, fmt.Errorf("creating runc's directory: %w", err)
	}
	return l, nil
}

func (l *Lab) writeState() error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil { // the machines' disks hold keys
		return fmt.Errorf("creating the lab's directory: %w", err)
	}
	b, err := json.Marshal(l.state)
	if err == nil {
		err = disk.Replace(l.stateFile(), b)
	}
	if err != nil {
		return fmt.Errorf("writing the lab's state: %w", err)
	}
	return nil
}

// labNames returns the names of the existing labs.
func labNames() ([]string, error) {
	files, err := filepath.Glob(newLayout("*", 0).stateFile())
	if err != nil {
		return nil, fmt.Errorf("listing the labs: %w", err)
	}
	return lists.Map(files, func(file string) string { return filepath.Base(filepath.Dir(file)) }), nil
}

// takenIndexes returns the indexes of existing labs, and of leftovers whose state was lost.
func takenIndexes() ([]int, error) {
	labs, err := labNames()
	if err != nil {
		return nil, err
	}
	var taken []int
	for _, name := range labs {
		lab, err := Open(name, nil)
		if err != nil {
			return nil, err
		}
		taken = append(taken, lab.Index)
	}
	runDirs, err := filepath.Glob("/run/ocadm-lab/*")
	if err != nil {
		return nil, fmt.Errorf("listing the labs: %w", err)
	}
	for _, dir := range runDirs {
		var index int
		if _, err := fmt.Sscanf(filepath.Base(dir), "%d", &index); err == nil {
			taken = append(taken, index)
		}
	}
	return taken, nil
}

func (l *Lab) boot(ctx context.Context) error {
	if err := addBridge(l.Layout); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := 1; i <= l.state.Nodes; i++ {
		g.Go(func() error {
			if err := l.create(ctx, i); err != nil {
				return fmt.Errorf("making %s: %w", nodeName(i), err)
			}
			return l.Node(i).waitBooted(ctx)
		})
	}
	return g.Wait()
}

// hostname returns the host name of machine i.
func (l *Lab) hostname(i int) string { return fmt.Sprintf("%s%d", cmp.Or(l.state.Hostname, "node"), i) }

// Nodes returns the lab's machines in order.
func (l *Lab) Nodes() []*Node {
	nodes := make([]*Node, l.state.Nodes)
	for i := range nodes {
		nodes[i] = l.Node(i + 1)
	}
	return nodes
}

// Node returns machine i, counted from 1.
func (l *Lab) Node(i int) *Node {
	return &Node{Name: nodeName(i), Address: l.NodeAddress(i), lab: l, index: i}
}
