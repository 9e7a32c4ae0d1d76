// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
)

// Confirm asks for a word and tells whether it was given. An answer of "y" or "yes" to the word "yes" is one. Where nobody can be
// asked (in ends at once) it fails and names the flag that answers beforehand. The end of ctx is an answer, too: nothing is confirmed.
func Confirm(ctx context.Context, in io.Reader, out io.Writer, question, word, flag string) (bool, error) {
	fmt.Fprint(out, question+" ")
	answer, err := readLine(ctx, in)
	if errors.Is(err, io.EOF) && strings.TrimSpace(answer) == "" {
		fmt.Fprintln(out)
		return false, finding.Finding{Code: "OCA-0404", Severity: finding.Error, What: "This needs a confirmation and nobody is there to give it",
			Cause: "standard input has ended", Remedy: "repeat the command with " + flag}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	answer = strings.TrimSpace(answer)
	return answer == word || word == "yes" && strings.EqualFold(answer, "y") || word == "yes" && strings.EqualFold(answer, word), nil
}

// readLine reads a line. A read from a terminal cannot be cut off: when ctx ends first, it is left behind.
func readLine(ctx context.Context, in io.Reader) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n')
		read <- result{line, err}
	}()
	select {
	case r := <-read:
		return r.line, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
