// SPDX-License-Identifier: Apache-2.0

package nodefiles

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// volumeTest runs the script in its own mount namespace, as its container does, and runs step once the volume is visible at dir. The namespace ends with
// the script, so nothing stays mounted.
func volumeTest(t *testing.T, volume, dir, step string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	const harness = `
same() { [ -d "$2" ] && [ "$(stat -c %d:%i "$1")" = "$(stat -c %d:%i "$2")" ]; }
# It has to have its trap, too: the volume may be mounted before it starts. SIGTERM is bit 14 of the caught signals.
ready() { same "$1" "$2" && [ $((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$pid/status) & 0x4000)) -ne 0 ]; }
run() { $SH -c "$SCRIPT" volume-on-node "$1" "$2" & pid=$!; until ready "$1" "$2"; do kill -0 $pid; sleep 0.02; done; }
end() { kill -TERM $pid; wait $pid; }
V=$1 D=$2
`
	shell := "sh"
	if busybox, err := exec.LookPath("busybox"); err == nil {
		shell = busybox + " sh" // what the container runs
	}
	c := exec.CommandContext(t.Context(), "unshare", "-m", "--propagation", "private", "sh", "-euc", harness+step, "test", volume, dir)
	c.Env = append(os.Environ(), "SCRIPT="+VolumeOnNode, "SH="+shell)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func put(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

func content(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func TestVolumeIsOnTheNodeWhileItsPodRuns(t *testing.T) {
	top := t.TempDir()
	volume, dir := filepath.Join(top, "pvc"), filepath.Join(top, "node", "glance")
	put(t, filepath.Join(volume, "images", "a"), "from the volume")
	out := volumeTest(t, volume, dir, `
run "$V" "$D"; cat "$D/images/a"
echo written below >"$D/images/b"
end
if mountpoint -q "$D"; then echo "still mounted"; fi
run "$V" "$D"; end
if mountpoint -q "$D"; then echo "still mounted"; fi
`)
	if !strings.Contains(out, "from the volume") || strings.Contains(out, "still mounted") {
		t.Error(out)
	}
	if got := content(t, filepath.Join(volume, "images", "b")); got != "written below\n" {
		t.Errorf("the volume has %q", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left on the node, %v", left, err)
	}
}

// The process of a pod can be killed before it unmounts. Its successor must not mount the same volume a second time.
func TestVolumeIsMountedOnce(t *testing.T) {
	top := t.TempDir()
	volume, dir := filepath.Join(top, "pvc"), filepath.Join(top, "glance")
	put(t, filepath.Join(volume, "a"), "")
	out := volumeTest(t, volume, dir, `
for i in 1 2 3; do run "$V" "$D"; kill -KILL $pid; wait $pid || true; done
echo "mounts: $(grep -c " $D " /proc/self/mountinfo)"
run "$V" "$D"; end
echo "afterwards: $(grep -c " $D " /proc/self/mountinfo || true)"
`)
	if !strings.Contains(out, "mounts: 1\n") || !strings.Contains(out, "afterwards: 0\n") {
		t.Error(out)
	}
}

// A deleted volume whose mount was left behind makes room for the next one.
func TestDeletedVolumeIsUnmounted(t *testing.T) {
	top := t.TempDir()
	old, volume, dir := filepath.Join(top, "pvc-old"), filepath.Join(top, "pvc"), filepath.Join(top, "glance")
	for _, d := range []string{old, volume, dir} {
		require.NoError(t, os.MkdirAll(d, 0o755))
	}
	out := volumeTest(t, volume, dir, `
run "$V-old" "$D"; kill -KILL $pid; wait $pid || true
rmdir "$V-old"
run "$V" "$D"; echo "mounts: $(grep -c " $D " /proc/self/mountinfo)"; end
`)
	if !strings.Contains(out, "mounts: 1\n") {
		t.Error(out)
	}
}

// Files on the node from before the component had a volume are copied into the volume, once, and the originals stay.
func TestFilesOfTheNodeAreCopiedIntoTheVolume(t *testing.T) {
	top := t.TempDir()
	volume, dir := filepath.Join(top, "pvc"), filepath.Join(top, "glance")
	put(t, filepath.Join(dir, "images", "one"), "1")
	put(t, filepath.Join(dir, "images", "with a space"), "2")
	put(t, filepath.Join(dir, "images", "newer"), "old")
	put(t, filepath.Join(volume, "images", "newer"), "new")
	put(t, filepath.Join(volume, "images", "one.part"), "what a copy that was cut off left")
	out := volumeTest(t, volume, dir, `run "$V" "$D"; end; run "$V" "$D"; end`)
	for file, want := range map[string]string{"one": "1", "with a space": "2", "newer": "new"} {
		if got := content(t, filepath.Join(volume, "images", file)); got != want {
			t.Errorf("%s in the volume is %q, want %q\n%s", file, got, want, out)
		}
	}
	kept, err := filepath.Glob(dir + ".copied-*")
	if err != nil || len(kept) != 1 {
		t.Fatalf("originals: %v, %v", kept, err)
	}
	if content(t, filepath.Join(kept[0], "images", "newer")) != "old" || content(t, filepath.Join(kept[0], "images", "one")) != "1" {
		t.Error("an original was changed")
	}
	if n := strings.Count(out, "copied "); n != 2 {
		t.Errorf("copied %d files, want 2:\n%s", n, out)
	}
}

// A failed copy changes nothing, and ends the container with the reason.
func TestFailedCopyChangesNothing(t *testing.T) {
	top := t.TempDir()
	volume, dir := filepath.Join(top, "pvc"), filepath.Join(top, "glance")
	put(t, filepath.Join(dir, "images", "big"), strings.Repeat("x", 1<<20))
	put(t, filepath.Join(volume, "keep"), "")
	out := volumeTest(t, volume, dir, `
mount -t tmpfs -o size=64k none "$V"
if $SH -c "$SCRIPT" volume-on-node "$V" "$D"; then echo succeeded; else echo "failed"; fi
if mountpoint -q "$D"; then echo "mounted all the same"; fi
`)
	if !strings.Contains(out, "No space left") || !strings.Contains(out, "failed\n") || strings.Contains(out, "mounted all the same") {
		t.Error(out)
	}
	if got := content(t, filepath.Join(dir, "images", "big")); len(got) != 1<<20 {
		t.Errorf("%d bytes are left of the original", len(got))
	}
}

// If the provisioner created the volume in that very directory, there is nothing to copy and nothing to mount.
func TestVolumeThatIsTheDirectoryItself(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "glance")
	put(t, filepath.Join(dir, "images", "a"), "1")
	out := volumeTest(t, dir, dir, `run "$V" "$D"; echo "mounts: $(grep -c " $D " /proc/self/mountinfo || true)"; end`)
	if !strings.Contains(out, "mounts: 0\n") || content(t, filepath.Join(dir, "images", "a")) != "1" {
		t.Error(out)
	}
}

// The container that mounts the volume shares a directory with its node. Its mounts there are visible on the node and in the containers that share the
// directory, and end with it. Mounts of a container without propagation at the same place stay private.
func TestVolumeReachesTheNodeAndItsAgents(t *testing.T) {
	top := t.TempDir()
	volume, dir := filepath.Join(top, "pvc"), filepath.Join(top, "cloud", "glance")
	put(t, filepath.Join(volume, "a"), "")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	out := volumeTest(t, volume, dir, `
cloud=$(dirname "$D")
mount --bind "$cloud" "$cloud"
mount --make-shared "$cloud"
until_file() { until [ -e "$1" ]; do sleep 0.02; done; }
unshare -m --propagation unchanged sh -c 'until [ -e "$1/go" ]; do sleep 0.02; done; ls "$1" >"$2/seen"; : >"$2/done"' x "$D" "$V" & agent=$!
unshare -m --propagation private sh -c 'mount --bind "$1" "$2"; : >"$1/mine"; until [ -e "$1/go" ]; do sleep 0.02; done' x "$V" "$D" & main=$!
until_file "$V/mine"
if mountpoint -q "$D"; then echo "the main container's mount is on the node"; fi
unshare -m --propagation unchanged $SH -c "$SCRIPT" volume-on-node "$V" "$D" & pid=$!
until mountpoint -q "$D"; do kill -0 $pid; sleep 0.02; done
: >"$V/go"
until_file "$V/done"
wait $agent $main
echo "agent: $(tr '\n' ' ' <"$V/seen")"
end
if mountpoint -q "$D"; then echo "still on the node"; fi
umount "$cloud"
`)
	if !strings.Contains(out, "agent: a go mine ") || strings.Contains(out, "still on the node") || strings.Contains(out, "main container's mount") {
		t.Error(out)
	}
}
