// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"io"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"golang.org/x/sync/errgroup"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/test/require"
)

// nodes is the number of machines that join concurrently.
const nodes = 20

// joinAll makes each node download every image over its own connection, and returns the bytes per node.
func joinAll(tb testing.TB, s *site, names []string) (perNode int64) {
	tb.Helper()
	got := make([]int64, nodes)
	var g errgroup.Group
	for i := range nodes {
		g.Go(func() error {
			r, err := s.client().Remote(tb.Context(), "amd64")
			if err != nil {
				return err
			}
			_, write, err := r.Archive(tb.Context(), names)
			if err != nil {
				return err
			}
			return write(writerFunc(func(p []byte) (int, error) {
				got[i] += int64(len(p))
				return io.Discard.Write(p)
			}))
		})
	}
	require.NoError(tb, g.Wait())
	for _, n := range got {
		if n != got[0] {
			tb.Fatalf("the nodes got %v bytes", got)
		}
	}
	return got[0]
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// stocked returns a depot with images of the given total size.
func stocked(tb testing.TB, images int, size int64) (*Store, []string) {
	tb.Helper()
	s, err := Open(tb.TempDir(), 0)
	require.NoError(tb, err)
	r := Root{Name: "bundle", Images: map[string]v1.Descriptor{}}
	var names []string
	for i := range images {
		img, err := random.Image(size/int64(images), 1)
		require.NoError(tb, err)
		name := "registry.example/image:v" + string(rune('a'+i))
		if r.Images[name], err = s.AddImage(tb.Context(), img); err != nil {
			tb.Fatal(err)
		}
		names = append(names, name)
	}
	require.NoError(tb, s.SetRoot(tb.Context(), r))
	return s, names
}

// With twenty nodes at once, none fails, and each receives everything.
func TestManyNodes(t *testing.T) {
	const size = 1 << 20
	s, names := stocked(t, 4, size)
	if got := joinAll(t, listen(t, s, nil), names); got < size {
		t.Errorf("a node got %d bytes", got)
	}
}

// Throughput of twenty nodes that join from one depot, with both ends of TLS on one machine.
func BenchmarkJoins(b *testing.B) {
	const size = 64 << 20
	s, names := stocked(b, 8, size)
	site := listen(b, s, nil)
	var got int64
	for b.Loop() {
		got = joinAll(b, site, names)
	}
	b.SetBytes(nodes * got)
	b.ReportMetric(float64(got), "B/node")
}
