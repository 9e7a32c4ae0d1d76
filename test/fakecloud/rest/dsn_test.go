// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"testing"

	"yunion.io/x/ocadm/test/fakecloud/rest"
)

func TestParseDSN(t *testing.T) {
	for _, tc := range []struct {
		dsn, user, password, address, database string
		wrong                                  bool
	}{
		{dsn: "mysql+pymysql://glance:pw@db:3306/glance?charset=utf8", user: "glance", password: "pw", address: "db:3306", database: "glance"},
		{dsn: "mysql+pymysql://glance:p@w@db/glance", user: "glance", password: "p@w", address: "db:3306", database: "glance"},
		{dsn: "mysql+pymysql://glance:pw@[fd00::1]:3307/glance", user: "glance", password: "pw", address: "[fd00::1]:3307", database: "glance"},
		{dsn: "mysql+pymysql://glance:p:w@db:3306/glance", wrong: true},
		{dsn: "mysql+pymysql://glance:p/w@db:3306/glance", wrong: true},
		{dsn: "mysql+pymysql://glance:pw@db:3306", wrong: true},
		{dsn: "mysql://glance:pw@db:3306/glance", wrong: true},
		{dsn: "", wrong: true},
	} {
		c, err := rest.ParseDSN(tc.dsn)
		if tc.wrong != (err != nil) {
			t.Errorf("%s: error %v", tc.dsn, err)
			continue
		}
		if err == nil && (c.User != tc.user || c.Passwd != tc.password || c.Addr != tc.address || c.DBName != tc.database) {
			t.Errorf("%s: got %s %s %s %s", tc.dsn, c.User, c.Passwd, c.Addr, c.DBName)
		}
	}
}
