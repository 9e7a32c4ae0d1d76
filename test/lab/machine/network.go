// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const inMachine = "eth0"

// addBridge creates the lab's bridge with this machine's address, unless it exists.
func addBridge(l Layout) error {
	link, err := netlink.LinkByName(l.Bridge())
	if isNoLink(err) {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: l.Bridge()}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return fmt.Errorf("creating the bridge %s: %w", l.Bridge(), err)
		}
		link, err = netlink.LinkByName(l.Bridge())
	}
	if err != nil {
		return fmt.Errorf("finding the bridge %s: %w", l.Bridge(), err)
	}
	if err := netlink.AddrReplace(link, address(l, l.Host().AsSlice())); err != nil {
		return fmt.Errorf("giving the bridge %s its address: %w", l.Bridge(), err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting the bridge %s up: %w", l.Bridge(), err)
	}
	return nil
}

func address(l Layout, ip net.IP) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(l.Subnet().Bits(), 32)}}
}

// addNetwork creates machine i's network namespace and connects it to the bridge.
func addNetwork(l Layout, i int) error {
	ns, err := newNamespace(l.netns(i))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	bridge, err := netlink.LinkByName(l.Bridge())
	if err != nil {
		return fmt.Errorf("finding the bridge %s: %w", l.Bridge(), err)
	}
	attrs := netlink.LinkAttrs{Name: l.veth(i), MasterIndex: bridge.Attrs().Index}
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: inMachine, PeerNamespace: netlink.NsFd(ns)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("creating the cable %s: %w", l.veth(i), err)
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("setting the cable %s up: %w", l.veth(i), err)
	}
	if err := configureInside(l, i, ns); err != nil {
		return fmt.Errorf("configuring the network of %s: %w", nodeName(i), err)
	}
	return nil
}

func configureInside(l Layout, i int, ns netns.NsHandle) error {
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer inside.Close()
	lo, err := inside.LinkByName("lo")
	if err != nil {
		return err
	}
	eth, err := inside.LinkByName(inMachine)
	if err != nil {
		return err
	}
	gateway := &netlink.Route{LinkIndex: eth.Attrs().Index, Gw: l.Host().AsSlice()}
	return firstError(
		func() error { return inside.LinkSetUp(lo) },
		func() error { return inside.AddrReplace(eth, address(l, l.NodeAddress(i).AsSlice())) },
		func() error { return inside.LinkSetUp(eth) },
		func() error { return inside.RouteReplace(gateway) },
	)
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// newNamespace creates a named network namespace. It never returns its thread to the Go runtime: the thread stays in the new namespace and ends with the goroutine.
func newNamespace(name string) (ns netns.NsHandle, err error) {
	err = alone(func() error {
		if err := dropNamespace(name); err != nil { // left by an interrupted run: the lab's number is ours
			return err
		}
		if err := shareNamespaces(); err != nil {
			return err
		}
		done := make(chan error)
		go func() {
			runtime.LockOSThread()
			var err error
			ns, err = netns.NewNamed(name)
			done <- err
		}()
		return <-done
	})
	if err != nil {
		return 0, fmt.Errorf("creating the network namespace %s: %w", name, err)
	}
	return ns, nil
}

// alone calls do while no other lab or goroutine changes the directory of names, which is mounted with the first name and unmounted with the last.
func alone(do func() error) (err error) {
	lock, err := os.OpenFile("/run/ocadm-lab-netns.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	return do()
}

// namespaces is the directory in which "ip netns" keeps the names of network namespaces.
const namespaces = "/run/netns"

// shareNamespaces makes the directory of names a shared mount, as "ip netns" does. Otherwise the first "ip netns add" of another test would do that
// while the lab runs, and the lab's names would be mounted twice. One of the two mounts would be inaccessible, and the file could not be removed.
func shareNamespaces() error {
	if err := os.MkdirAll(namespaces, 0o755); err != nil {
		return err
	}
	const shared = unix.MS_SHARED | unix.MS_REC
	err := unix.Mount("", namespaces, "none", shared, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := unix.Mount(namespaces, namespaces, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", namespaces, "none", shared, "")
}

// cable calls do with the lab's end of the cable of machine i.
func cable(l Layout, i int, do func(netlink.Link) error) error {
	link, err := netlink.LinkByName(l.veth(i))
	if err == nil {
		err = do(link)
	}
	if err != nil {
		return fmt.Errorf("setting the cable of %s: %w", nodeName(i), err)
	}
	return nil
}

func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if isNoLink(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding the link %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !isNoLink(err) {
		return fmt.Errorf("removing the link %s: %w", name, err)
	}
	return nil
}

// removeNamespace removes a named network namespace, or a name without a namespace that an interrupted run left.
func removeNamespace(name string) error {
	err := alone(func() error {
		if err := dropNamespace(name); err != nil {
			return err
		}
		if left, err := os.ReadDir(namespaces); err == nil && len(left) == 0 {
			_ = unix.Unmount(namespaces, 0) // see shareNamespaces; another program may be adding a name
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("removing the network namespace %s: %w", name, err)
	}
	return nil
}

func dropNamespace(name string) error {
	file := filepath.Join(namespaces, name)
	err := unix.Unmount(file, unix.MNT_DETACH)
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, os.ErrNotExist) {
		err = os.Remove(file)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func isNoLink(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound)
}
