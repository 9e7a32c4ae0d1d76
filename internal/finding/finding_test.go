// SPDX-License-Identifier: Apache-2.0

package finding_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
)

func TestExitStatus(t *testing.T) {
	one := finding.Finding{Code: "OCA-6012", Severity: finding.Error, What: "x"}
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"nothing":            {nil, 0},
		"another error":      {errors.New("x"), 1},
		"a finding":          {fmt.Errorf("doing: %w", one), 60},
		"a list of one":      {finding.List{one}, 60},
		"several":            {fmt.Errorf("doing: %w", finding.List{one, one}), finding.ExitPreflight},
		"interrupted":        {fmt.Errorf("doing: %w", context.Canceled), finding.ExitInterrupted},
		"late":               {fmt.Errorf("doing: %w", context.DeadlineExceeded), finding.ExitTimeout},
		"late, explained":    {finding.Errorf("OCA-4010", "x", "y", "%w", context.DeadlineExceeded), 40},
		"continues":          {finding.Errorf(finding.CodeContinues, "x", "y", "%w", context.DeadlineExceeded), finding.ExitTimeout},
		"a code of no shape": {finding.Finding{Code: "OCA-12"}, finding.ExitOther},
	} {
		if got := finding.ExitStatus(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestListIgnoreAndErr(t *testing.T) {
	l := finding.List{
		{Code: "OCA-1008", Check: "CPU", Severity: finding.Error, What: "one"},
		{Code: "OCA-1009", Check: "Memory", Severity: finding.Error, What: "two"},
		{Code: "OCA-0001", Severity: finding.Error, What: "three"},
	}
	if got := l.Ignore([]string{"cpu"}).Err(); got == nil || got.Error() != "two\nthree" {
		t.Error(got)
	}
	if got := l.Ignore([]string{"all"}).Errors(); len(got) != 1 || got[0].What != "three" {
		t.Errorf("what has no check cannot be ignored: %v", got)
	}
	if l[0].Severity != finding.Error {
		t.Error("Ignore changed its receiver")
	}
	if l[:2].Ignore([]string{"all"}).Err() != nil {
		t.Error("warnings stop a run")
	}
}

func TestErrorfKeepsTheError(t *testing.T) {
	f := finding.Errorf("OCA-0322", "Cannot read", "try", "opening %s: %w", "f", fs.ErrNotExist)
	if !errors.Is(f, fs.ErrNotExist) || f.Error() != "Cannot read: opening f: file does not exist" || finding.Of(f)[0].Remedy != "try" {
		t.Errorf("%+v", f)
	}
}

func TestFailedUnlessInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	why := errors.New("it does not answer")
	failed := func(err error) error { return finding.Failed(ctx, err, "OCA-4010", "x", "y") }
	if err := failed(nil); err != nil {
		t.Error(err)
	}
	if err := failed(why); len(finding.Of(err)) != 1 || !errors.Is(err, why) {
		t.Error(err)
	}
	cancel()
	if err := failed(why); err != why { //nolint:errorlint // the error itself
		t.Error(err)
	}
}

func TestSameCode(t *testing.T) {
	for _, s := range []string{"OCA-6002", "oca-6002", " 6002 "} {
		if !finding.SameCode("OCA-6002", s) {
			t.Error(s)
		}
	}
	if finding.SameCode("OCA-6002", "600") {
		t.Error("600")
	}
}
