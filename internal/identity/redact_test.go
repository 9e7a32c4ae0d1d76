// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// A service may quote its request in any way: a key has several lines, which JSON escapes and an error joins.
func TestSecretsOfSeveralLines(t *testing.T) {
	first, second := strings.Repeat("Ab1+", 16), strings.Repeat("cD2/", 16)
	key := "-----BEGIN EC PRIVATE KEY-----\n" + first + "\n" + second + "\n-----END EC PRIVATE KEY-----\n"
	inJSON, err := json.Marshal(map[string]string{"private_key": key, "name": "etcd"})
	require.NoError(t, err)
	for name, said := range map[string]string{
		"as it is":        "bad key " + key,
		"body":            "cannot store " + string(inJSON),
		"quoted":          fmt.Sprintf("cannot store %q", key),
		"its beginning":   "cannot store " + key[:len(key)/2+16],
		"quoted twice":    fmt.Sprintf("cannot store %q", inJSON),
		"a line in a log": "line 2: " + second,
	} {
		t.Run(name, func(t *testing.T) {
			details, err := json.Marshal(map[string]any{"class": "InputParameterError", "details": said})
			require.NoError(t, err)
			e := statusError(request{op: "storing"}, 400, details, []string{"", key})
			for _, part := range []string{first, second} {
				if strings.Contains(e.Error(), part) {
					t.Errorf("a line of the key is in %q", e)
				}
			}
			if !strings.Contains(e.Title, "***") {
				t.Errorf("%q: nothing was taken out", e.Title)
			}
		})
	}
}
