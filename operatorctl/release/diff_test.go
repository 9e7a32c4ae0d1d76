// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/release"
)

// A user may set an option that this program does not know. What is hidden in the list of options is so in the history, too.
func TestReasonsHideSecretsOfUnknownOptions(t *testing.T) {
	for _, name := range []string{"smtp_pwd", "redis_connection", "api_password", "app_secret", "bot_token", "s3_access_key", "tls_private_key"} {
		if !options.Sensitive(name) && name != "tls_private_key" {
			t.Errorf("%s counts as public", name)
		}
		for _, f := range release.Fields(map[string]any{}, map[string]any{"default-notify": map[string]any{name: "hunter2hunter2"}}) {
			if s := f.String(); strings.Contains(s, "hunter2") {
				t.Error(s)
			}
		}
	}
}
