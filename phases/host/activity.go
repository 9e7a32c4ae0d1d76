// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
)

// WhilePodsMove waits for something that pods bring about. As long as they move on, or images are pulled for them, the phase keeps its
// patience.
func WhilePodsMove(ctx context.Context, c client.WithWatch, r workflow.Reporter, wait func() error) error {
	following, stop := context.WithCancel(ctx)
	var g sync.WaitGroup
	g.Go(func() {
		kube.Activity(following, c, func(pulling string) {
			r.Alive()
			if pulling != "" {
				pulling += " is being pulled"
			}
			r.Waiting("images", pulling)
		})
	})
	defer g.Wait()
	defer stop()
	return wait()
}
