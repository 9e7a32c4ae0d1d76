// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

func TestFindOwner(t *testing.T) {
	const resolv = "nameserver 10.96.0.10\nsearch onecloud.svc.cluster.local svc.cluster.local cluster.local\n"
	for _, tc := range []struct {
		name, component, authURL, host, resolv string
		want                                   []string
	}{
		{"short auth_url", "region", "https://default-keystone:30357/v3", "default-region-5d-x", resolv,
			[]string{"default-region", "default-region.onecloud", "default-region.onecloud.svc"}},
		{"full auth_url", "glance", "https://blue-keystone.cloud.svc:30357/v3", "node1", "",
			[]string{"blue-glance", "blue-glance.cloud", "blue-glance.cloud.svc"}},
		{"keystone in a pod", "keystone", "", "default-keystone-7c-9", resolv,
			[]string{"default-keystone", "default-keystone.onecloud", "default-keystone.onecloud.svc"}},
		{"nothing known", "logger", "https://127.0.0.1:1/v3", "laptop", "", []string{"*-logger", "*-logger.*", "*-logger.*.svc"}},
		{"agent", "", "https://default-keystone:30357/v3", "node1", "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, rest.FindOwner(tc.component, tc.authURL, tc.host, tc.resolv).Names()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
