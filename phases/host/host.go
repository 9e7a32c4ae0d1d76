// SPDX-License-Identifier: Apache-2.0

// Package host is the interface of phases to the one machine that ocadm runs on: its files, programs, facts and cluster. It decides nothing.
package host

import (
	"context"
	"fmt"
	"os"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
)

// Host is the state that the phases of init, join and reset share.
type Host struct {
	// Config is resolved and validated; phases never change it.
	Config *config.Config
	Files  Files
	Exec   exec.Runner
	// Facts are gathered once, before the first phase.
	Facts Facts
	// Cluster is set instead when a command works on a cluster that others built.
	Cluster *Cluster
	// Ledger records what this tool made on the machine, so that reset removes only that.
	Ledger *Ledger
	// Bundle is open if --bundle was given, else nil.
	Bundle *bundle.Bundle
	// Depot is the cluster's depot when a joining node installs from it, or the server that --bundle names, else nil.
	Depot *depot.Remote
	// Restore is the backup that init restores the cloud from, already read and checked, else nil.
	Restore *cluster.Restore
	// Self is the path of this program, for re-executing it as kubeadm.
	Self string
	// Own packs Self into an image, only once.
	Own func() (v1.Image, error)
	// Kube returns a client of the cluster with admin permissions; it fails until the API server answers. Kubeconfig() is its file.
	Kube func(ctx context.Context) (client.WithWatch, error)
	REST func(ctx context.Context) (*rest.Config, error)
}

// Phase is one phase of the installer.
type Phase = workflow.Phase[*Host]

// New returns the machine that this process runs on, with its facts gathered and its ledger open; its clients wait for a kubeconfig. With
// Config.Run.DryRun, the result cannot be used to change the machine. The caller opens and closes Bundle.
func New(ctx context.Context, c *config.Config) (*Host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return build(ctx, c, "", self, exec.Machine{})
}

func build(ctx context.Context, c *config.Config, root, self string, run exec.Runner) (*Host, error) {
	files := Files{Root: root, DryRun: c.Run.DryRun}
	ledger, err := OpenLedger(files)
	if err != nil {
		return nil, err
	}
	files.Ledger = ledger
	if files.DryRun {
		run = ReadOnly(run)
	}
	h := &Host{Config: c, Files: files, Exec: run, Ledger: ledger, Self: self, Facts: Gather(ctx, files, run)}
	h.Own = sync.OnceValues(func() (v1.Image, error) { return ownimage.Pack(h.Self) })
	h.Reopen()
	return h, nil
}

// Fake returns a machine for tests: its files are under root, and rec records commands and answers instead of running them.
func Fake(ctx context.Context, root string, c *config.Config, rec *Recorder) (*Host, error) {
	return build(ctx, c, root, "/usr/local/bin/ocadm", rec)
}
