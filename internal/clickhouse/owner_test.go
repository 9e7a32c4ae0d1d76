// SPDX-License-Identifier: Apache-2.0

package clickhouse

import (
	"strings"
	"testing"

	fakeclickhouse "yunion.io/x/ocadm/test/fakecloud/clickhouse"
)

func TestBelongs(t *testing.T) {
	acc := Account{User: "glance", Password: "ours", Database: "glance"}
	byHand := "CREATE USER `glance` IDENTIFIED WITH sha256_hash BY '" + strings.Repeat("0", 64) + "'"
	own := "CREATE USER `glance` IDENTIFIED WITH sha256_hash BY '" + hash("ours") + "'"
	for _, c := range []struct {
		name string
		made []string
		want Belonging
	}{
		{"nothing", nil, Free},
		{"a database", []string{"CREATE DATABASE IF NOT EXISTS `glance`"}, Foreign},
		{"an account", []string{byHand}, Foreign},
		{"ours, before its database", []string{own}, Ours},
		{"ours, beside a database of others", []string{own, "CREATE DATABASE IF NOT EXISTS `glance`"}, Foreign},
		{"ours", []string{own, "GRANT SELECT ON `glance`.*, MYSQL ON *.* TO `glance`", "CREATE DATABASE IF NOT EXISTS `glance`"}, Ours},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := fakeclickhouse.Start(t)
			a, _ := open(t, s)
			by(t, s, c.made...)
			if got, err := a.Belongs(t.Context(), snapshot(t, a), acc); err != nil || got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}
