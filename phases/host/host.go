// SPDX-License-Identifier: Apache-2.0

// Package host is what a phase may touch: the files, programs, facts and cluster of the one machine ocadm runs on.
// It decides nothing.
package host

import (
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
)

// Host is the state that the phases of init, join and reset share.
type Host struct {
	// Config is resolved and validated; phases read it and never change it.
	Config *config.Config
	Files  Files
	Exec   exec.Runner
	// Facts are gathered once, before the first phase.
	Facts Facts
	// Ledger records what this tool made on the machine, so that reset takes back that and nothing else.
	Ledger *Ledger
	// Bundle is open when --bundle was given, else nil.
	Bundle *bundle.Bundle
	// Self is the path of this program, for re-executing it as kubeadm.
	Self string
	// Own packs Self into an image, once.
	Own func() (v1.Image, error)
	// Kube gives a client of the cluster with admin rights; it fails before the API server answers. Kubeconfig() is its file.
	Kube func(ctx context.Context) (client.WithWatch, error)
	REST func(ctx context.Context) (*rest.Config, error)
}

// Phase is a phase of the installer.
type Phase = workflow.Phase[*Host]
