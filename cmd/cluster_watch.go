// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/ui"
)

// unbounded is the timeout of a watch without --timeout: the user ends it.
const unbounded = time.Duration(math.MaxInt64)

// watchCloud shows a cloud after each change, with --wait until it is ready. Without --wait, the end of ctx is not a failure: the exit status is then
// that of the cloud.
func (a *app) watchCloud(ctx context.Context, k client.WithWatch, f *cloudFlags) error {
	first, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := cluster.Get(first, k, f.key()); err != nil { // a missing operator would be watched for ever
		return err
	}
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	show, end := a.view(f.output.String())
	var last cluster.Status
	follow := cluster.Watch
	if f.wait {
		follow = cluster.Wait
	}
	var broken error
	err := follow(watching, k, f.key(), func(s cluster.Status) {
		if last = s; broken == nil {
			broken = show(s)
		}
		if broken != nil {
			stop(broken)
		}
	})
	end()
	switch {
	case broken != nil:
		return fmt.Errorf("writing the status: %w", broken)
	case f.wait || ctx.Err() == nil || last.Name == "":
		return err
	}
	return unwell(last)
}

// view returns a function that shows each status of a cloud on standard output, and one that ends the display: a JSON document per line, a tree on a
// terminal, otherwise lines about changes.
func (a *app) view(format string) (show func(cluster.Status) error, end func()) {
	if format == "json" {
		var last []byte
		return func(s cluster.Status) error {
			raw, err := json.Marshal(s)
			if err != nil || bytes.Equal(raw, last) { // something changed that is not part of the status
				return err
			}
			last = raw
			_, err = a.Out.Write(append(raw, '\n'))
			return err
		}, func() {}
	}
	if ui.IsTerminal(a.Out) {
		p := ui.NewPicture(a.Out)
		return func(s cluster.Status) error { p.Show(s.Tree); return nil }, p.Close
	}
	var before cluster.Status
	return func(s cluster.Status) error {
		for _, line := range s.Changes(before) {
			if _, err := fmt.Fprintln(a.Out, line); err != nil {
				return err
			}
		}
		before = s
		return nil
	}, func() {}
}
