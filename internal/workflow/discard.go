// SPDX-License-Identifier: Apache-2.0

package workflow

// Discard is a Reporter that drops every report. Embed it in a Reporter that keeps only some of them.
type Discard struct{}

// Info implements Reporter.
func (Discard) Info(string, ...any) {}

// Output implements Reporter.
func (Discard) Output(string) {}

// Waiting implements Reporter.
func (Discard) Waiting(string, string) {}

// Progress implements Reporter.
func (Discard) Progress(int64, int64, string) {}

// Alive implements Reporter.
func (Discard) Alive() {}

// Changed implements Reporter.
func (Discard) Changed(string, ...any) {}
