// SPDX-License-Identifier: Apache-2.0

package move

import (
	"strings"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// maxText is the maximum size of a text file. Larger files are programs or images, and contain no address.
const maxText = 1 << 20

// replaced returns a text in which one address replaces another. Longer addresses that contain the former one stay.
func replaced(text, from, to string) string {
	var b strings.Builder
	for {
		at := strings.Index(text, from)
		if at < 0 {
			b.WriteString(text)
			return b.String()
		}
		end := at + len(from)
		whole := (at == 0 || !partOfAddress(text[at-1], from)) && !continues(text[end:], from)
		b.WriteString(text[:at])
		if whole {
			b.WriteString(to)
		} else {
			b.WriteString(from)
		}
		text = text[end:]
		if !whole && text != "" { // the rest belongs to the same longer address
			b.WriteByte(text[0])
			text = text[1:]
		}
	}
}

// partOfAddress reports whether a character before an address makes it the end of a longer one.
func partOfAddress(c byte, address string) bool {
	if strings.Contains(address, ":") {
		return c == ':' || c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
	}
	return c == '.' || c >= '0' && c <= '9'
}

// continues reports whether the text after an address makes it the start of a longer one. A period may also end a sentence.
func continues(rest, address string) bool {
	if rest == "" {
		return false
	}
	if strings.Contains(address, ":") {
		return partOfAddress(rest[0], address)
	}
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	return digit(rest[0]) || rest[0] == '.' && len(rest) > 1 && digit(rest[1])
}

func holds(text string, address string) bool {
	return replaced(text, address, "") != text
}

// changes returns the new content of the files on this machine with the former address: those of kubeadm and those that ocadm wrote.
func changes(h *host.Host, from, to string) (host.FileSet, error) {
	names := kubernetes.AddressedFiles(h)
	for _, e := range h.Ledger.Created(host.KindFile) {
		if !strings.HasPrefix(e.Name, host.StateDir+"/") && !strings.HasSuffix(e.Name, ".crt") { // except our own records
			names = append(names, e.Name)
		}
	}
	var out host.FileSet
	for _, name := range lists.Distinct(names) {
		st, err := h.Files.Stat(name)
		if err != nil || !st.Mode().IsRegular() || st.Size() > maxText {
			continue // it no longer exists, or is not text
		}
		text := h.Files.Text(name)
		now, is := depot.Readdressed(name, text, func(s string) string { return replaced(s, from, to) })
		if !is {
			now = replaced(text, from, to)
		}
		if now != text {
			out = append(out, host.File{Name: name, Data: []byte(now), Mode: st.Mode().Perm()})
		}
	}
	return out, nil
}
