// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
)

// TestCopyToTheSameServer checks that databases are not replaced with copies of themselves: a server may have two addresses.
func TestCopyToTheSameServer(t *testing.T) {
	e := setUp(t)
	alias := open(t, server, cloud, func(c *mysql.Config) { c.Host = "localhost" })
	if _, err := Copy(t.Context(), workflow.Discard{}, e.admin, alias, []string{"keystone"}); mysql.ClassOf(err) != mysql.Refused {
		t.Errorf("%v", err)
	}
	if n := strings.TrimSpace(e.run("SELECT COUNT(*) FROM keystone.user")); n != "2" {
		t.Errorf("%s users are left", n)
	}
	if left := e.run("SHOW DATABASES LIKE 'ocadm\\_probe%'"); left != "" {
		t.Errorf("%s is left", left)
	}
}
