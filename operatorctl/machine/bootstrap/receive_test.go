// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// TestReceiveAgain checks that a file arrives while the script of a connection that was lost notices it. Nothing else is left.
func TestReceiveAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keep")
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	start := func() (*exec.Cmd, io.WriteCloser) {
		c := exec.CommandContext(t.Context(), "sh", "-c", ReceiveScript, "sh", BundleName, fmt.Sprintf("%x", sha256.Sum256(data)), "plain")
		c.Env = append(os.Environ(), "OCADM_BOOTSTRAP_DIR="+dir)
		in, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err == nil {
			_, err = in.Write(data[:1<<17])
		}
		require.NoError(t, err)
		return c, in
	}
	first, lost := start()
	second, in := start()
	require.NoError(t, lost.Close())
	if err := first.Wait(); first.ProcessState.ExitCode() != ExitNoDownload {
		t.Errorf("half of a file: %v", err)
	}
	if _, err := in.Write(data[1<<17:]); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, in.Close())
	if err := second.Wait(); err != nil {
		t.Errorf("the entire file: %v", err)
	}
	left, err := filepath.Glob(dir + "/*")
	if err != nil || len(left) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
	if got, err := os.ReadFile(left[0]); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%s has %d bytes, %v", left[0], len(got), err)
	}
}
