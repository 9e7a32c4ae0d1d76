// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/status"
)

// The output of the real host agent when it exits.
const fatalTrace = `[info 2026-11-22 05:10:01 service.(*SHostService).InitService(service.go:61)] exec socket path: /var/run/onecloud/exec.sock
[fatal 2026-11-22 05:10:02 service.(*SHostService).RunService(service.go:104)] NewHostInfo: Get docker info: Run command 'docker info'
goroutine 1 [running]:
yunion.io/x/log.Fatalf({0x2a5b1c3, 0x2}, {0xc000a11f28, 0x1, 0x1})
	/root/go/src/yunion.io/x/onecloud/vendor/yunion.io/x/log/log.go:101 +0x5d
main.main()
	/root/go/src/yunion.io/x/onecloud/cmd/host/main.go:30 +0xc5
`

const panicTrace = `[error 2026-11-22 05:10:01 db.go:12] lost connection
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x1b2c3d4]

goroutine 1 [running]:
yunion.io/x/pkg/errors.Wrapf({0x0, 0x0}, {0x2a5b1c3, 0x14}, {0x0, 0x0, 0x0})
	/root/go/src/yunion.io/x/pkg/errors/errors.go:55 +0x2a
created by main.main in goroutine 1
	…/cmd/host/main.go:30 +0xc5
exit status 2`

func TestWhyAContainerEnded(t *testing.T) {
	for _, c := range []struct{ name, log, want string }{
		{"a fatal line above its stack trace", fatalTrace,
			"[fatal service.(*SHostService).RunService(service.go:104)] NewHostInfo: Get docker info: Run command 'docker info'"},
		{"a panic is stronger than an error before it", panicTrace, "panic: runtime error: invalid memory address or nil pointer dereference"},
		{"the panic of a panic", "panic: first [recovered]\n\tpanic: second\n\ngoroutine 7 [running]:\nmain.main()\n\t/x/main.go:3 +0x1d\n", "panic: second"},
		{"[fatal is stronger than fatal", "[fatal 2026-11-22 05:10:02 a.go:1] no key\nit was fatal\n", "[fatal a.go:1] no key"},
		{"fatal is stronger than error", "FATAL: password authentication failed\nerror: shutting down\n", "FATAL: password authentication failed"},
		{"the last of two errors", "Error 1045 (28000): Access denied\nError 1049 (42000): Unknown database 'glance'\nbye\n", "Error 1049 (42000): Unknown database 'glance'"},
		{"an error after the trace of a goroutine", "goroutine 1 [running]:\n\t/x/errors/errors.go:55 +0x2a\nerror: bind: address already in use", "error: bind: address already in use"},
		{"a package of errors in a trace is no error", "cannot read /etc/yunion/host.conf\nyunion.io/x/pkg/errors.Wrap(0x1, 0x2)\n\t/x/errors.go:5 +0x2a\n", "cannot read /etc/yunion/host.conf"},
		{"no mark at all", "starting\nusage: climc [flags]\n", "usage: climc [flags]"},
		{"nothing but a trace", "\t/x/main.go:3 +0x1d\n", "/x/main.go:3 +0x1d"},
		{"nothing", "\n \n", ""},
		{"times of all kinds", "2026/11/22 05:10:02 fatal: x\n", "fatal: x"},
		{"a time in brackets", "[2026-11-22 05:10:02.123] [fatal] database schema not in sync!\n", "[fatal] database schema not in sync!"},
		{"too long", "error: " + strings.Repeat("é", 200), "error: " + strings.Repeat("é", 146) + "…"},
	} {
		crash := waiting("CrashLoopBackOff", "back-off")
		crash.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Message: c.log}
		want := "container glance: CrashLoopBackOff, last exit 2"
		if c.want != "" {
			want += ": " + c.want
		}
		if got := status.Trouble(pod(crash), t0); got != want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, want)
		}
	}
}
