// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"yunion.io/x/ocadm/internal/version"
)

// shell writes the files for a package: manual pages below man, completions below completion. The pages carry the date in SOURCE_DATE_EPOCH.
func shell(dir string, root *cobra.Command) error {
	man, completion := filepath.Join(dir, "man"), filepath.Join(dir, "completion")
	for _, d := range []string{man, completion} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	err := errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(completion, "ocadm.bash"), true),
		root.GenZshCompletionFile(filepath.Join(completion, "_ocadm")),
		root.GenFishCompletionFile(filepath.Join(completion, "ocadm.fish"), true),
	)
	if err != nil {
		return err
	}
	readable(root)
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "ocadm " + version.Version, Manual: "ocadm"}, man)
}

// readable turns the help of a command into Markdown, the source of manual pages. It indents tables by four, as code blocks, and omits the phases of a
// plan, which its own page lists.
func readable(c *cobra.Command) {
	blocks := strings.Split(c.Long, "\n\n")
	for i, block := range blocks {
		if strings.HasPrefix(block, "  ") {
			blocks[i] = "    " + strings.ReplaceAll(block, "\n", "\n    ")
		}
	}
	c.Long = strings.Join(blocks, "\n\n")
	c.DisableAutoGenTag = true
	for _, sub := range c.Commands() {
		if sub.Name() == "phase" {
			c.RemoveCommand(sub)
			continue
		}
		readable(sub)
	}
}
