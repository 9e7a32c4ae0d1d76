// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"io"
	"log/slog"

	"k8s.io/klog/v2"

	"yunion.io/x/ocadm/internal/workflow"
)

// SetLogger sets the logger of this process and of klog: w receives everything; story, which is standard error, receives errors, and more at higher
// verbosity.
func SetLogger(w, story io.Writer, verbosity int) *slog.Logger {
	level := slog.LevelError
	switch {
	case verbosity >= 4:
		level = slog.LevelDebug
	case verbosity >= 1:
		level = slog.LevelInfo
	}
	logger := slog.New(slog.NewMultiHandler(
		slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}),
		slog.NewTextHandler(story, &slog.HandlerOptions{Level: level}),
	))
	klog.SetSlogLogger(logger.With("from", "kubernetes"))
	slog.SetDefault(logger)
	return logger
}

// Slog returns a renderer that writes every event to a log.
func Slog(l *slog.Logger) Renderer { return sink(func(e workflow.Event) { logEvent(l, e) }) }

func logEvent(l *slog.Logger, e workflow.Event) {
	var attrs []slog.Attr
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	add("phase", e.Phase)
	add("message", e.Message)
	add("why", e.Why)
	if e.Unchanged {
		attrs = append(attrs, slog.Bool("unchanged", true))
	}
	if e.Duration > 0 {
		attrs = append(attrs, slog.Float64("seconds", e.Duration))
	}
	if e.Type == workflow.PhaseProgress {
		attrs = append(attrs, slog.Int64("done", e.Done), slog.Int64("total", e.Total), slog.String("unit", e.Unit))
	}
	if len(e.Findings) > 0 {
		attrs = append(attrs, slog.Any("findings", e.Findings))
	}
	l.LogAttrs(context.Background(), slog.LevelDebug, string(e.Type), attrs...) //nolint:forbidigo // a sink has no context and needs none
}
