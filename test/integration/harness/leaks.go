// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// shortest is the length below which a word may be in a text by chance.
const shortest = 8

// Leaks returns which words, by what they are, are in which texts, by where they are: as they are, as they are between the quotes of JSON or
// of a log, and of a word of several lines every line. An empty text, and a word too short to look for, are reported, too: then nothing is shown.
func Leaks(words, texts map[string]string) []string {
	var out []string
	for _, what := range slices.Sorted(maps.Keys(words)) {
		if len(words[what]) < shortest {
			out = append(out, what+" is too short to look for")
		}
	}
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
