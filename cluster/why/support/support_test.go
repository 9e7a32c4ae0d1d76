// SPDX-License-Identifier: Apache-2.0

package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/test/require"
)

func snapshot() *why.Snapshot {
	return &why.Snapshot{Format: why.Format, Time: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Namespace: "onecloud", Name: "default", Logs: []why.Log{
		{Namespace: "onecloud", Pod: "a", Container: "main", Previous: true, Lines: []string{"one", "two"}},
		{Namespace: "onecloud", Pod: "a", Container: "main", Lines: []string{"three"}},
	}}
}

func TestThereAndBack(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	for name, keys := range map[string][]age.Recipient{"open": nil, "encrypted": {key.Recipient()}} {
		var b bytes.Buffer
		require.NoError(t, Write(&b, snapshot(), why.Report{}, keys...))
		raw := b.Bytes()
		if _, err := Read(bytes.NewReader(raw)); keys != nil && !errors.Is(err, ErrEncrypted) {
			t.Errorf("%s without a key: %v", name, err)
		}
		got, err := Read(bytes.NewReader(raw), key)
		if err != nil || !reflect.DeepEqual(got, snapshot()) {
			t.Errorf("%s: %v %+v", name, err, got)
		}
		if _, err := Read(bytes.NewReader(raw[:len(raw)-20]), key); err == nil {
			t.Errorf("%s: a truncated bundle is read", name)
		}
	}
	if _, err := Read(bytes.NewReader([]byte("no bundle"))); err == nil {
		t.Error("another file is read")
	}
}

// A small file may unpack to any size: it is refused instead of read into memory.
func TestUnpackedSize(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := range 3 {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: logDir + "a/b/" + strconv.Itoa(i) + ".log", Mode: 0o600, Size: 1 << 20}))
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	require.NoError(t, errors.Join(w.Close(), z.Close()))
	if _, err := read(&b, 2<<20); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
}

// TestFullDisk checks that the cause of a failure is in the error once: the writers of the archive return it again when they are closed.
func TestFullDisk(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	for name, keys := range map[string][]age.Recipient{"open": nil, "encrypted": {key.Recipient()}} {
		s := snapshot()
		s.Missing = make([]string, 1<<20) // more than the buffers hold
		for i := range s.Missing {
			s.Missing[i] = strconv.Itoa(i * 7919)
		}
		if err := Write(full{}, s, why.Report{}, keys...); err == nil || strings.Count(err.Error(), "no space") != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAnotherFormat(t *testing.T) {
	s := snapshot()
	s.Format = 99
	var b bytes.Buffer
	require.NoError(t, Write(&b, s, why.Report{}))
	if _, err := Read(&b); err == nil {
		t.Error("another format is read")
	}
}
