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

// shell writes what a package gives to a shell: manual pages below man, completion below completion. The pages have the date that
// SOURCE_DATE_EPOCH says.
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

// readable turns the help of a command into Markdown, which manual pages are made of: a table there is a block that is indented by four. The
// phases of a plan are in the plan's own page.
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
