// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// pullPatience is longer than containerd's own: it ends a pull that has received nothing for five minutes.
	pullPatience = 10 * time.Minute
	pullTries    = 3
	pullPause    = 2 * time.Second
	// pullInterval is how often the bytes that have arrived are counted.
	pullInterval = time.Second
)

// pull has containerd pull images one after the other, and reports how far it is. Registries are configured in containerd, so the pull
// goes through CRI, as the kubelet's would.
func (g ImageGroup) pull(ctx context.Context, h *host.Host, r workflow.Reporter, names []string) error {
	conn, err := h.CRI()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing was written that could be lost
	credentials, err := credentialsOf(h)
	if err != nil {
		return err
	}
	arrived := &arrivals{content: contentapi.NewContentClient(conn), layers: map[string]*contentapi.Status{}}
	var failed finding.List
	for i, name := range names {
		r.Info("pulling image %d of %d: %s", i+1, len(names), name)
		counting, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			arrived.watch(counting, r)
		}()
		auth, err := login(credentials, name)
		if err == nil {
			err = pullImage(ctx, cri.NewImageServiceClient(conn), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: name}, Auth: auth}, r)
		}
		stop()
		<-ended
		switch {
		case err != nil && canceled(ctx):
			return context.Cause(ctx)
		case err != nil && g.Optional:
			r.Info("%s is pulled when it is needed: %v", name, err)
		case err != nil:
			failed = append(failed, notPulled(name, err))
		default:
			r.Changed("pulled %s", name)
		}
	}
	return failed.Err()
}

// pullImage pulls one image. Registries fail now and then: only an image that does not exist is not tried again.
func pullImage(ctx context.Context, images cri.ImageServiceClient, request *cri.PullImageRequest, r workflow.Reporter) error {
	for try := 1; ; try++ {
		_, err := images.PullImage(ctx, request, grpc.WaitForReady(true))
		if err == nil || try == pullTries || status.Code(err) == codes.NotFound || canceled(ctx) {
			return err
		}
		r.Info("trying %s again: %v", request.GetImage().GetImage(), err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(try) * pullPause):
		}
	}
}

func notPulled(name string, err error) finding.Finding {
	cause := err.Error()
	if s, ok := status.FromError(err); ok {
		cause = s.Message()
	}
	return finding.Finding{
		Code: CodePull, Severity: finding.Error, What: "The image " + name + " cannot be pulled", Cause: cause,
		Remedy: "see whether this machine reaches the registry, and whether it has the image; give --registry-mirror REGISTRY=URL, " +
			"--registry-config FILE, --https-proxy URL, --image-repository HOST/PATH or --bundle FILE; then repeat the command",
		Err: err,
	}
}

// arrivals counts the bytes that have arrived of all images. CRI does not report them; containerd's content store does.
type arrivals struct {
	content contentapi.ContentClient
	layers  map[string]*contentapi.Status
}

func (d *arrivals) watch(ctx context.Context, r workflow.Reporter) {
	tick := time.NewTicker(pullInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list, err := d.content.ListStatuses(metadata.AppendToOutgoingContext(ctx, "containerd-namespace", k8sNamespace), &contentapi.ListStatusesRequest{})
		if err != nil {
			continue // there is no better source
		}
		if done, total := d.count(list.GetStatuses()); total > 0 {
			r.Progress(done, total, "B")
		}
	}
}

// count adds up what has arrived and what is known to come. A layer that is listed no more has arrived.
func (d *arrivals) count(active []*contentapi.Status) (done, total int64) {
	for _, l := range d.layers {
		l.Offset = l.GetTotal()
	}
	for _, l := range active {
		d.layers[l.GetRef()] = l
	}
	for _, l := range d.layers {
		done += l.GetOffset()
		total += l.GetTotal()
	}
	return done, total
}
