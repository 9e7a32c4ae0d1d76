// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
)

// Confirm asks for a word and reports whether the user typed it. If the word is "yes", "y" is enough. At the end of in, Confirm returns an error that
// names the flag for confirming in advance. It also fails when ctx ends.
func Confirm(ctx context.Context, in io.Reader, out io.Writer, question, word, flag string) (bool, error) {
	fmt.Fprint(out, question+" ")
	answer, err := readLine(ctx, in)
	if errors.Is(err, io.EOF) && strings.TrimSpace(answer) == "" {
		fmt.Fprintln(out)
		return false, finding.New("OCA-0404", "Confirmation required", "standard input has ended", "add "+flag+" to the command")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	answer = strings.TrimSpace(answer)
	return answer == word || word == "yes" && strings.EqualFold(answer, "y") || word == "yes" && strings.EqualFold(answer, word), nil
}

// readLine reads a line, and nothing after it: another question may follow. A read from a terminal cannot be canceled: if ctx ends first, the goroutine is left behind.
func readLine(ctx context.Context, in io.Reader) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		var r result
		for b := []byte{0}; r.err == nil && b[0] != '\n'; {
			if _, r.err = io.ReadFull(in, b); r.err == nil {
				r.line += string(b)
			}
		}
		read <- r
	}()
	select {
	case r := <-read:
		return r.line, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
