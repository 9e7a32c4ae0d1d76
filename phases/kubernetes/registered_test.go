// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"testing"

	"yunion.io/x/ocadm/phases/config"
)

func TestRegisteredAs(t *testing.T) {
	h := fakeHost(t, nil)
	if got := RegisteredAs(h); got != (Registered{}) {
		t.Errorf("a fresh machine is %v", got)
	}
	c := config.Default()
	c.Node.Name, c.Node.CRISocket, c.Node.IP, c.Join.Token = "chosen", "unix:///run/crio/crio.sock", "192.0.2.7", "abcdef.0123456789abcdef"
	want := Registered{Name: "chosen", CRISocket: "unix:///run/crio/crio.sock"}
	for _, render := range []func(*config.Config) ([]byte, error){RenderInit, RenderJoin} {
		raw, err := render(&c)
		if err != nil {
			t.Fatal(err)
		}
		write(t, h, ConfigFile, string(raw))
		if got := RegisteredAs(h); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
