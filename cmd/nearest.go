// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// askNearest makes the clients use this control-plane node's API server while the cluster's endpoint does not answer, and prints that.
func (a *app) askNearest(ctx context.Context, h *host.Host) (why string) {
	if why = kubernetes.AskNearest(ctx, h); why != "" {
		a.sayNearest(why)
	}
	return why
}

func (a *app) sayNearest(why string) {
	fmt.Fprintf(a.Err, "The endpoint of the cluster does not answer: %s\nocadm uses the API server of this node instead.\n", why)
}

// awaitAPI calls ask until it succeeds, at most for the limit, and prints why it does not.
func (a *app) awaitAPI(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return wait.Until(limited, "the API server", time.Second, func(ctx context.Context) (bool, string, error) {
		err := ask(ctx)
		return err == nil, "", err
	}, func(why string) { fmt.Fprintln(a.Err, "waiting for the API server: "+why) })
}

// silentAPI reports whether err is the finding for an API server that does not answer, or cannot at the moment. Waiting does not make a certificate valid.
func silentAPI(err error) bool {
	l := finding.Of(err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return len(l) > 0 && l[0].Code == "OCA-4203" && !untrusted
}

// noAccess explains why a command on a control-plane node cannot reach the cluster. There, another account or machine does not help.
func noAccess(h *host.Host, err error) error {
	if _, _, ok := kubernetes.OwnEndpoint(h); !ok {
		return noCluster(err)
	}
	what := "The cluster cannot be read from this control-plane node"
	if l := finding.Of(kube.Explain(err)); len(l) > 0 {
		if l[0].Code != "OCA-4203" {
			return l[0]
		}
		what = "Neither the endpoint of the cluster nor the API server of this node answers"
	}
	return finding.Errorf("OCA-4203", what, "ocadm why", "%w", err)
}
