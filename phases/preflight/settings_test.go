// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"testing"

	"yunion.io/x/ocadm/cluster"
)

func TestDifferencesOfTheCloud(t *testing.T) {
	was := cluster.Options{Region: "region0", Zone: "zone0", Database: cluster.Database{Host: "10.0.0.5", Port: 3306}}
	if got := differences(was, was); got != nil {
		t.Errorf("the same settings differ: %q", got)
	}
	now := was
	now.Database.Host = "ocadm-mysql.onecloud.svc"
	now.Version = "v4.0.5" // may change
	want := []string{"--mysql-host was 10.0.0.5 and is now ocadm-mysql.onecloud.svc"}
	if got := differences(was, now); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := differences(cluster.Options{}, now); got != nil {
		t.Errorf("nothing is known of the earlier settings, and yet they differ: %q", got)
	}
}
