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
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// pullPatience is longer than containerd's own limit: it ends a pull that has received nothing for five minutes.
	pullPatience = 10 * time.Minute
	pullTries    = 3
	pullPause    = 2 * time.Second
	// pullInterval is how often the received bytes are counted.
	pullInterval = time.Second
)

// pull makes containerd pull images one at a time, and reports the progress. containerd has the configuration of the registries, so the pull goes through
// CRI, like the kubelet's.
func (g ImageGroup) pull(ctx context.Context, h *host.Host, r workflow.Reporter, names []string) error {
	conn, err := h.CRI()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // no pending writes
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

// pullImage pulls one image. Registries sometimes fail, so it retries unless the image does not exist.
func pullImage(ctx context.Context, images cri.ImageServiceClient, request *cri.PullImageRequest, r workflow.Reporter) error {
	for try := 1; ; try++ {
		_, err := images.PullImage(ctx, request, grpc.WaitForReady(true))
		if err == nil || try == pullTries || status.Code(err) == codes.NotFound || canceled(ctx) {
			return err
		}
		r.Info("trying %s again: %v", request.GetImage().GetImage(), err)
		if err := wait.Sleep(ctx, time.Duration(try)*pullPause); err != nil {
			return err
		}
	}
}

func notPulled(name string, err error) finding.Finding {
	cause := err.Error()
	if s, ok := status.FromError(err); ok {
		cause = s.Message()
	}
	return finding.New(CodePull, "The image "+name+" cannot be pulled", cause,
		"check whether this machine can reach the registry, and whether the registry has the image; give --registry-mirror REGISTRY=URL, "+
			"--registry-config FILE, --https-proxy URL, --image-repository HOST/PATH or --bundle FILE; then repeat the command").Wrap(err)
}

// arrivals counts the received bytes of all images. CRI does not report them, but containerd's content store does.
type arrivals struct {
	content contentapi.ContentClient
	layers  map[string]*contentapi.Status
}

func (d *arrivals) watch(ctx context.Context, r workflow.Reporter) {
	for wait.Sleep(ctx, pullInterval) == nil {
		list, err := d.content.ListStatuses(metadata.AppendToOutgoingContext(ctx, "containerd-namespace", k8sNamespace), &contentapi.ListStatusesRequest{})
		if err != nil {
			continue // no better source
		}
		if done, total := d.count(list.GetStatuses()); total > 0 {
			r.Progress(done, total, "B")
		}
	}
}

// count adds up the received bytes and the known total. A layer that is no longer listed has been received.
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
