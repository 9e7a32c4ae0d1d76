// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"testing"

	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/require"
)

// BenchmarkRenderCatalogue renders every component of a FullStack ce cloud once.
func BenchmarkRenderCatalogue(b *testing.B) {
	cluster := resolved(b, base+"/cr.yaml")
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	b.ReportAllocs()
	objects := 0
	for b.Loop() {
		objects = 0
		for _, r := range cluster.Components {
			if !r.Enabled {
				continue
			}
			o, err := render.Component(r, in)
			require.NoError(b, err)
			objects += len(render.List(o))
		}
	}
	b.ReportMetric(float64(objects), "objects")
}

// BenchmarkResolve resolves the whole catalog against a minimal spec.
func BenchmarkResolve(b *testing.B) {
	cluster := resolved(b, base+"/cr.yaml")
	cr := cloudOf(b, base+"/cr.yaml")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All()}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(cluster.Components)), "components")
}
