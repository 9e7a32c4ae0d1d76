// SPDX-License-Identifier: Apache-2.0

package workflow

// Discard is a Reporter that drops every report. Embed it in a Reporter that keeps only some of them.
type Discard struct{}

func (Discard) Info(string, ...any) {}

func (Discard) Output(string) {}

func (Discard) Waiting(string, string) {}

func (Discard) Progress(int64, int64, string) {}

func (Discard) Alive() {}

func (Discard) Changed(string, ...any) {}
