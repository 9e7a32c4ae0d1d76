// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
)

// shortest is the minimum length of a word. Shorter ones may occur by chance.
const shortest = 8

// Leaks reports which words occur in which texts, both keyed by a description. It searches for a word as such, as quoted in JSON or in a log, and for
// each line of a word with several lines. It also reports an empty text and a word that is too short, which would make the check meaningless.
func Leaks(words, texts map[string]string) []string {
	out := lists.Pick(slices.Sorted(maps.Keys(words)), func(what string) (string, bool) {
		return what + " is too short to look for", len(words[what]) < shortest
	})
	for _, where := range slices.Sorted(maps.Keys(texts)) {
		text := texts[where]
		if text == "" {
			out = append(out, "nothing to look at in "+where)
		}
		for _, what := range slices.Sorted(maps.Keys(words)) {
			for _, form := range forms(words[what]) {
				if strings.Contains(text, form) {
					out = append(out, fmt.Sprintf("%s is in %s", what, where))
					break
				}
			}
		}
		if strings.Contains(text, "PRIVATE KEY") {
			out = append(out, "a private key is in "+where)
		}
	}
	return out
}

func forms(word string) []string {
	lines := strings.Split(strings.TrimSpace(word), "\n")
	if len(lines) > 1 { // the first and the last are the same in all keys
		lines = slices.DeleteFunc(lines, func(l string) bool { return len(l) < 32 || strings.HasPrefix(l, "-----") })
	}
	out := lines
	for _, l := range lines {
		quoted := strconv.Quote(l)
		inJSON, err := json.Marshal(l)
		if err != nil {
			inJSON = []byte(quoted)
		}
		out = append(out, quoted[1:len(quoted)-1], string(inJSON[1:len(inJSON)-1]))
	}
	return slices.DeleteFunc(out, func(f string) bool { return len(f) < shortest })
}
