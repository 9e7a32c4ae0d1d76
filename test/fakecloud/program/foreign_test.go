// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"yunion.io/x/ocadm/test/fakecloud/servicespec"
	"yunion.io/x/ocadm/test/require"
)

func TestForeignPorts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "application.properties")
	require.NoError(t, os.WriteFile(file, []byte("a=b\nserver.port=30595\n"), 0o600))
	for _, tc := range []struct {
		spec servicespec.Spec
		args []string
		want []int
	}{
		{servicespec.Spec{Port: 6641, SecondPort: 6642}, nil, []int{6641, 6642}},
		{servicespec.Spec{Port: 8428}, []string{"--tls", "--httpListenAddr=:30428"}, []int{30428}},
		{servicespec.Spec{Port: 8080, PortFile: file}, nil, []int{30595}},
		{servicespec.Spec{}, []string{"-f", "/dev/null"}, []int{}},
	} {
		if got, err := (Machine{}).foreignPorts(tc.spec, tc.args); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%v: got %v, %v, want %v", tc.args, got, err, tc.want)
		}
	}
}

func TestFileOfTheMachineMayBeMissing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "host.conf")
	args := []string{"--common-config-file", "c", "--config", file}
	if got := (Machine{}).withoutMissing(args, file); !slices.Equal(got, args[:2]) {
		t.Errorf("got %v", got)
	}
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	if got := (Machine{}).withoutMissing(args, file); !slices.Equal(got, args) {
		t.Errorf("a file that is there is dropped: %v", got)
	}
}

func TestNamesOfOtherPrograms(t *testing.T) {
	for _, tc := range []struct {
		argv []string
		want string
	}{
		{[]string{"/start.sh", "north"}, "openvswitch-north"},
		{[]string{"/manager", "--config", "x"}, "onecloud-service-operator"},
		{[]string{"/usr/bin/telegraf", "-config", "x"}, "telegraf"},
	} {
		if got, _ := name(tc.argv); got != tc.want {
			t.Errorf("%v is %s, want %s", tc.argv, got, tc.want)
		}
	}
}
