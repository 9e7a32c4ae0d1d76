// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/mod/semver"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// SoftwarePhase is the name of Software, for the After of other phases.
const SoftwarePhase = "node-files"

// Software installs the programs of a node: first containerd, its shim, ctr and runc, so that images can be imported while the CNI plugins, kubelet and
// kubectl are installed. They come from the bundle, on join from the cluster's depot, or from the addresses in artifacts.yaml.
func Software() host.Phase {
	return host.Phase{
		Name: SoftwarePhase, Short: "Install containerd, runc, CNI plugins, kubelet and kubectl",
		Long: "Installs the programs of a node into " + binDir + " and " + cniDir + ", from the bundle or, without one, from the projects' release\n" +
			"pages (--mirror names another server). A program that is already on the machine in a suitable version is used and not changed.",
		Example: "  ocadm init phase node-files --bundle ocadm.bundle",
		After:   []string{"preflight"},
		Phases: []host.Phase{
			programSet{name: "runtime", short: "Install containerd, ctr and runc", has: isRuntime}.phase(),
			programSet{name: "kubelet", short: "Install kubelet, kubectl and the CNI plugins", has: func(n string) bool { return !isRuntime(n) }}.phase(),
		},
	}
}

// programSet is one half of the software: the programs for whose names has returns true.
type programSet struct {
	name, short string
	has         func(name string) bool
}

func isRuntime(name string) bool { return slices.Contains([]string{containerd, shim, ctr, runc}, name) }

func (p programSet) phase() host.Phase {
	return host.Phase{
		Name: p.name, Short: p.short,
		Timeout: time.Hour,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			todo, err := p.outstanding(ctx, h)
			return err == nil && len(todo) == 0 && len(p.unnoted(h)) == 0, err
		},
		Plan: func(ctx context.Context, h *host.Host) ([]string, error) {
			todo, err := p.outstanding(ctx, h)
			return lists.Map(todo, func(i piece) string { return i.plan }), err
		},
		Run:    p.install,
		Verify: p.verify,
		Undo:   p.remove,
	}
}

// piece is a unit of installation: a file of the bundle, or a downloaded artifact with several files.
type piece struct {
	plan    string
	size    int64
	install func(ctx context.Context, h *host.Host, r workflow.Reporter, p fetch.Progress) error
}

// outstanding returns what must still be installed.
func (p programSet) outstanding(ctx context.Context, h *host.Host) ([]piece, error) {
	if h.Source() == nil {
		return outstandingArtifacts(ctx, h, p.has)
	}
	if l := lacking(h); len(l) > 0 {
		return nil, l
	}
	var out []piece
	for _, f := range h.Source().Contents().Files {
		name := target(f.Path)
		if name == "" || !p.has(path.Base(name)) || skipFile(h, name) {
			continue
		}
		got, err := h.Files.Digest(name)
		if err == nil && got == f.Digest {
			continue
		}
		out = append(out, piece{plan: "install " + name, size: f.Size,
			install: func(ctx context.Context, h *host.Host, r workflow.Reporter, p fetch.Progress) error {
				return installBundled(ctx, h, r, p, f.Path, name)
			}})
	}
	return out, nil
}

// skipFile reports whether a file is not installed, because the machine has a suitable one or would not use it.
func skipFile(h *host.Host, name string) bool {
	if path.Dir(name) == cniDir {
		st, err := h.Files.Stat(name)
		return err == nil && st.Size() > 0 && !h.Ledger.Has(host.KindFile, name) // a power cut may have left it empty
	}
	_, ok := theirs(h, path.Base(name))
	return ok || !needed(h, path.Base(name))
}

func installBundled(ctx context.Context, h *host.Host, r workflow.Reporter, p fetch.Progress, source, name string) error {
	in, err := h.Source().OpenFile(ctx, source)
	if err != nil {
		return err
	}
	err = errors.Join(h.Files.WriteFrom(name, fetch.Reader(ctx, in, p.Done), programMode), in.Close())
	if err != nil {
		return fmt.Errorf("installing %s: %w", name, err)
	}
	r.Changed("installed %s", name)
	return nil
}

func (p programSet) install(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if err := p.noteTheirs(h, r); err != nil {
		return err
	}
	if p.has(containerd) {
		if err := noteContainerdData(h); err != nil {
			return err
		}
	}
	todo, err := p.outstanding(ctx, h)
	if err != nil {
		return err
	}
	var total, done atomic.Int64
	for _, i := range todo {
		total.Add(i.size)
	}
	counts := fetch.Progress{
		Done: func(n int64) { r.Progress(done.Add(n), total.Load(), "B") },
		More: func(n int64) { total.Add(n) },
	}
	install := func(ctx context.Context, i piece) error { return i.install(ctx, h, r, counts) }
	if err := lists.Each(ctx, todo, max(2, runtime.GOMAXPROCS(0)), install); err != nil || h.Source() == nil {
		return err
	}
	return p.noteBundled(h)
}

// fromBundle is the ledger's detail of an artifact that came from a bundle, whatever version that has.
const fromBundle = "bundle"

// noteBundled records that the artifacts are installed, so that a later run without the bundle does not download them.
func (p programSet) noteBundled(h *host.Host) error {
	_, list, err := artifactsOf(h)
	if err != nil {
		return err
	}
	for _, a := range list {
		if e, noted := h.Ledger.Get(host.KindProgram, a.Name); !p.has(a.Name) || noted && e.Detail == fromBundle {
			continue
		}
		digests := map[string]string{}
		for _, f := range h.Source().Contents().Files {
			if t := target(f.Path); slices.Contains(a.targets(), t) {
				digests[t] = f.Digest
			}
		}
		if err := a.note(h, fromBundle, digests); err != nil {
			return err
		}
	}
	return nil
}

// unnoted returns the machine's programs that are used but not in the ledger yet.
func (p programSet) unnoted(h *host.Host) []host.Program {
	return lists.Pick(programs(), func(q program) (host.Program, bool) {
		found, ok := theirs(h, q.name)
		return found, ok && p.has(q.name) && needed(h, q.name) && !h.Ledger.Has(host.KindProgram, found.Path)
	})
}

// noteTheirs records which programs of the machine are used, so that reset leaves them and people can see it.
func (p programSet) noteTheirs(h *host.Host, r workflow.Reporter) error {
	for _, found := range p.unnoted(h) {
		if err := h.Ledger.Record(host.Entry{Kind: host.KindProgram, Name: found.Path, Op: host.Found, Detail: found.Version}); err != nil {
			return err
		}
		r.Info("using %s %s, which was already installed", found.Path, found.Version)
	}
	return nil
}

// verify runs every program once: one that prints no version does not work on this machine. The depot may have the kubelet of a later bundle, to which
// the cluster has not been upgraded yet.
func (p programSet) verify(ctx context.Context, h *host.Host) error {
	var out finding.List
	for _, q := range programs() {
		if q.name == shim || !p.has(q.name) || !needed(h, q.name) {
			continue
		}
		file := programPath(h, q.name)
		is, err := host.AskVersion(ctx, h.Exec, file)
		switch {
		case err != nil && canceled(ctx):
			return context.Cause(ctx)
		case err != nil:
			out = append(out, finding.Errorf(CodeProgramBroken, file+" does not run on this machine", file+" --version; then run the same command again", "%w", err))
		case q.name == kubelet && semver.Compare(semver.MajorMinor(is), semver.MajorMinor(kubernetesVersion(h))) > 0:
			out = append(out, finding.Of(kubernetes.VersionFits(is, kubernetesVersion(h)))...)
		}
	}
	return out.Err()
}

func (p programSet) remove(_ context.Context, h *host.Host, r workflow.Reporter) error {
	var names []string
	for _, e := range h.Ledger.Created() {
		dir, name := path.Split(e.Name)
		switch {
		case !p.has(name):
		case e.Kind == host.KindFile && (path.Clean(dir) == cniDir || path.Clean(dir) == binDir && target(e.Name) == e.Name):
			names = append(names, e.Name)
		case e.Kind == host.KindProgram:
			if err := h.Ledger.Forget(e.Kind, e.Name); err != nil {
				return err
			}
		}
	}
	_, err := h.Undo(r, names...)
	return err
}
