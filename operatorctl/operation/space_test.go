// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"errors"
	"strings"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/mysql"
)

func TestSpace(t *testing.T) {
	const size = 100 << 20
	room := func(free int64) mysql.Room { return mysql.Room{Directory: "/var/lib/mysql/", Free: free} }
	logged := room(3 * size)
	logged.Logged = true
	unknown := mysql.Room{Directory: "/var/lib/mysql/", Unknown: "MySQL does not report it"}
	for name, c := range map[string]struct {
		server *server
		update *v1alpha1.UpdateParameters
		want   string
	}{
		"no server":     {nil, nil, ""},
		"room for both": {&server{copies: size, room: room(2 * size)}, nil, ""},
		"no room for the way back": {&server{copies: size, room: room(2*size - 1)}, nil,
			"OCA-7073 error 200.0 MiB are free in /var/lib/mysql/, and up to 200.0 MiB are needed"},
		"what goes is free":           {&server{copies: size, old: size, room: room(size)}, nil, ""},
		"what goes is free too late":  {&server{copies: size, old: 2 * size, room: room(size - 1)}, nil, "OCA-7073 error 100.0 MiB are free in /var/lib/mysql/, and up to 100.0 MiB are needed"},
		"a binary log takes them too": {&server{copies: size, room: logged}, nil, "OCA-7073 error 300.0 MiB are free in /var/lib/mysql/, and up to 400.0 MiB are needed"},
		"not known":                   {&server{copies: size, room: unknown}, nil, "OCA-7074 warning MySQL does not report it: make sure that 200.0 MiB are free in /var/lib/mysql/"},
		"nothing is copied":           {&server{copies: size, room: room(0)}, &v1alpha1.UpdateParameters{NoBackup: true}, ""},
		"another finding":             {&server{copies: size, room: room(0), err: errors.New("no permission")}, nil, ""},
	} {
		got := ""
		for _, f := range space(facts{server: c.server, update: c.update}) {
			got += f.Code + " " + string(f.Severity) + " " + f.Cause + ": " + f.Remedy
		}
		if (c.want == "") != (got == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
