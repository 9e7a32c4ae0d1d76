// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"os"
	"testing"
)

// Require starts a kubelet for one test and closes it at its end; it builds the stand-in if the options name no program. Where it may
// not run the test is skipped, or fails where OCADM_TEST_REQUIRE=1 says that everything has to be there.
func Require(t testing.TB, o Options) *Kubelet {
	t.Helper()
	if err := permitted(); err != nil && os.Getenv("OCADM_TEST_REQUIRE") != "1" {
		t.Skip(err)
	}
	if o.Program == "" {
		var err error
		if o.Program, err = Build(t.Context(), t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	k, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("stopping the kubelet: %v", err)
		}
	})
	return k
}
