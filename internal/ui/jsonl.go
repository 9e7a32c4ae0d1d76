// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"io"

	"yunion.io/x/ocadm/internal/workflow"
)

// JSONL writes every event as a line of JSON, as docs/reference/events.md describes.
func JSONL(w io.Writer) Renderer { return jsonl{json.NewEncoder(w)} }

type jsonl struct{ enc *json.Encoder }

func (j jsonl) Event(e workflow.Event) { _ = j.enc.Encode(e) } // only the display failed

func (jsonl) Close() {}
