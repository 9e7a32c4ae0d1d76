// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/executor/apis"
	"yunion.io/x/ocadm/test/require"
)

// Whatever bytes an argument, a variable or a directory contains, the program receives exactly these, or is not started.
func FuzzCommand(f *testing.F) {
	for _, s := range [][3]string{{"", "A=1", "/"}, {"-n", "=", ""}, {"a\x00b", "A", "."}, {"$(id) `id` ;\n", "A=\xff\n", "/tmp"}, {"%s\\n", "A=\x00", "/no"}, {"0", "", "."}} {
		f.Add([]byte(s[0]), []byte(s[1]), []byte(s[2]))
	}
	e := connect(f, serve(f, Options{}))
	f.Fuzz(func(t *testing.T, arg, env, dir []byte) {
		const script = `printf '%s\0' "$@"; cat /proc/$$/environ`
		c := &apis.Command{Path: []byte("/bin/sh"), Args: [][]byte{[]byte("-c"), []byte(script), []byte("sh"), arg}, Env: [][]byte{env}, Dir: dir}
		sn, err := e.ExecCommand(t.Context(), c)
		require.NoError(t, err)
		res, err := e.Start(t.Context(), &apis.StartInput{Sn: sn.GetSn(), HasStdout: true})
		require.NoError(t, err)
		if !res.GetSuccess() {
			w, err := e.Wait(t.Context(), sn)
			if err != nil || !bytes.Equal(w.GetErrContent(), res.GetError()) || len(res.GetError()) == 0 {
				t.Fatalf("%v %v, wait %v %v", res, err, w, err)
			}
			return
		}
		if bytes.ContainsRune(arg, 0) || bytes.ContainsRune(env, 0) {
			t.Fatal("a program was started with a NUL in an argument or a variable")
		}
		want := string(arg) + "\x00"
		if len(env) > 0 { // os/exec drops an empty variable, which is none
			want += string(env) + "\x00"
		}
		if got := stdout(t, e, sn); got != want && !strings.HasPrefix(got, want) {
			t.Errorf("printed %q, want %q", got, want)
		}
		if _, err := e.Wait(t.Context(), sn); err != nil {
			t.Fatal(err)
		}
	})
}

// Calls in any order, with existing and unknown numbers, neither crash the server nor leave anything in it.
func FuzzOrder(f *testing.F) {
	f.Add([]byte{0, 1, 3, 4, 5, 6})
	f.Add([]byte{0, 0, 1, 6, 6, 5, 1, 2})
	f.Add([]byte{0, 17, 33, 2, 3, 3, 4, 4, 7, 5})
	socket := serve(f, Options{AbandonAfter: time.Millisecond, MaxCommands: 64})
	f.Fuzz(func(t *testing.T, calls []byte) {
		e, conn := connectClosable(t, socket)
		// Calls that would wait forever end here.
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var numbers []uint32
		for i, b := range calls {
			if i == 32 {
				break
			}
			sn := &apis.Sn{Sn: uint32(b >> 4)}
			if n := int(b >> 4); n < len(numbers) {
				sn.Sn = numbers[n]
			}
			go func() {
				switch b & 7 {
				case 1:
					_, _ = e.Start(ctx, &apis.StartInput{Sn: sn.Sn, HasStdin: b&16 != 0, HasStdout: b&32 != 0, HasStderr: b&64 != 0})
				case 2:
					if s, err := e.SendInput(ctx); err == nil {
						_ = s.Send(&apis.Input{Sn: sn.Sn, Input: calls})
						_, _ = s.CloseAndRecv()
					}
				case 3:
					if s, err := e.FetchStdout(ctx, sn); err == nil {
						_, _ = s.Recv()
						_, _ = s.Recv()
					}
				case 4:
					if s, err := e.FetchStderr(ctx, sn); err == nil {
						_, _ = s.Recv()
					}
				case 5:
					_, _ = e.Wait(ctx, sn)
				case 6:
					_, _ = e.Kill(ctx, sn)
				case 7:
					if s, err := e.SendInput(ctx); err == nil {
						_, _ = s.CloseAndRecv()
					}
				}
			}()
			if b&7 == 0 {
				if sn, err := e.ExecCommand(ctx, spec("/bin/cat")); err == nil {
					numbers = append(numbers, sn.GetSn())
				}
			}
		}
		<-ctx.Done()
		_ = conn.Close()
		eventually(t, "an empty server", func() bool { return len(children(t)) == 0 })
		if _, err := connect(t, socket).ExecCommand(t.Context(), spec("true")); err != nil {
			t.Error(err)
		}
	})
}
