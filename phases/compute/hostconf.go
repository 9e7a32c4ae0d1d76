// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/templates/nodefiles"
)

const (
	hostConf = nodefiles.Dir + "/host.conf"
	// appliedFile records what ocadm last wrote to host.conf, so that a later run can tell its own values from edited ones.
	appliedFile = host.StateDir + "/host-conf.json"
	// An agent without networks replaces the file with all its options, including the password of its account (cloudpods, SHostInfo.parseConfig).
	hostConfMode = 0o600
)

// applied is the content of appliedFile.
type applied struct {
	// Text is the whole host.conf as ocadm wrote it.
	Text string `json:"text"`
	// Values are the keys that ocadm set.
	Values map[string]any `json:"values"`
	// Former are the earlier ones, until host.conf has these.
	Former []applied `json:"former,omitempty"`
	// Edited is set if Text contains changes that a person made after ocadm had written the file.
	Edited bool `json:"edited,omitempty"`
}

// wrote reports whether a host.conf is as ocadm wrote it, or as it was before an interrupted run.
func (a applied) wrote(text string) bool {
	return slices.ContainsFunc(append(a.Former, a), func(was applied) bool { return was.Text == text })
}

// hostConfValues returns the host.conf keys that the configuration sets. All others keep the file's values or the agent's defaults.
func hostConfValues(h *host.Host) map[string]any {
	c := h.Config
	// Otherwise the agent asks the Docker daemon for the node's reserved memory, and exits if there is no daemon (cloudpods,
	// pkg/hostman/hostinfo/hostinfo.go).
	// host-image takes only the options of all services from the ConfigMap (pkg/hostimage/host_image_service.go): without the executor it finds no disk.
	v := map[string]any{"disable_probe_kubelet": true, "enable_remote_executor": true}
	if n := c.Node.HostNetworks; len(n) > 0 {
		v["networks"] = list(n)
	} else if l, named := Networks(h); named == defaultRoute && l[0].NIC != l[0].Bridge {
		v["networks"] = []any{fmt.Sprintf("%s/%s/%s", l[0].NIC, l[0].Bridge, l[0].Address)} // as the agent would, see hostConfMode
	}
	if n := c.Node.ListenInterface; n != "" {
		v["listen_interface"] = n
	}
	if p := c.Node.HostLocalImagePath; len(p) > 0 {
		v["local_image_path"] = list(p)
		if !h.Files.Exists(hostConf) { // the cache of an agent that has run does not move
			v["image_cache_path"] = path.Join(p[0], "image_cache")
		}
	}
	if h := c.Node.Hugepages; h != "" {
		v["hugepages_option"] = h
	}
	return v
}

// list converts in to the type that a list read from a file has.
func list(in []string) []any {
	return lists.Map(in, func(s string) any { return s })
}

// merged is a host.conf that contains the values ocadm wants.
type merged struct {
	text string
	// set lists the keys that change; kept lists edited keys, which stay.
	set, kept []string
}

// merge sets the keys of want in the text of a host.conf. bases hold the values that ocadm or the operator's template wrote: a key with another value
// was edited and stays. The rest of the text stays as well, including comments.
func merge(text string, want map[string]any, bases ...map[string]any) (merged, error) {
	out := merged{text: text}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return out, err
	}
	notes := ""
	if doc.Kind == 0 {
		notes = text // the parser drops comments that belong to nothing
		doc = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return out, errors.New("it does not consist of lines \"key: value\"")
	}
	have := map[string]any{}
	if err := root.Decode(&have); err != nil {
		return out, err
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		now, there := have[key]
		switch {
		case there && reflect.DeepEqual(now, want[key]):
		case there && !slices.ContainsFunc(bases, func(base map[string]any) bool { return reflect.DeepEqual(now, base[key]) }):
			out.kept = append(out.kept, key)
		default:
			if err := setKey(root, key, want[key]); err != nil {
				return out, err
			}
			out.set = append(out.set, key)
		}
	}
	if len(out.set) == 0 {
		return out, nil
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(&doc), e.Close()); err != nil {
		return out, err
	}
	if out.text = b.String(); strings.TrimSpace(notes) != "" {
		out.text = strings.TrimSuffix(notes, "\n") + "\n" + out.text
	}
	return out, nil
}

func setKey(root *yaml.Node, key string, value any) error {
	var v yaml.Node
	if err := v.Encode(value); err != nil {
		return err
	}
	if v.Kind == yaml.SequenceNode {
		v.Style = yaml.FlowStyle
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == key {
			v.HeadComment, v.LineComment, v.FootComment = root.Content[i+1].HeadComment, root.Content[i+1].LineComment, root.Content[i+1].FootComment
			root.Content[i+1] = &v
			return nil
		}
	}
	root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &v)
	return nil
}

func lastApplied(h *host.Host) (applied, error) {
	var a applied
	if _, err := h.Files.ReadJSON(appliedFile, &a); err != nil {
		return a, fmt.Errorf("reading %s: %w", appliedFile, err)
	}
	return a, nil
}

func (a applied) record(h *host.Host) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("recording %s: %w", hostConf, err)
	}
	return h.Files.WriteFile(appliedFile, raw, 0o600)
}

// wantedHostConf returns the desired host.conf of this node.
func wantedHostConf(h *host.Host) (merged, error) {
	a, err := lastApplied(h)
	if err != nil {
		return merged{}, err
	}
	template := map[string]any{}
	if err := yaml.Unmarshal([]byte(nodefiles.Host), &template); err != nil {
		return merged{}, fmt.Errorf("reading the template of host.conf: %w", err)
	}
	var bases []map[string]any
	for _, was := range append(a.Former, a) {
		base := maps.Clone(template)
		maps.Copy(base, was.Values)
		bases = append(bases, base)
	}
	text := nodefiles.Host
	raw, err := h.Files.ReadFile(hostConf)
	if err == nil {
		text = string(raw)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return merged{}, fmt.Errorf("reading %s: %w", hostConf, err)
	}
	m, err := merge(text, hostConfValues(h), bases...)
	if err != nil {
		return m, finding.Errorf(CodeHostConf, hostConf+" cannot be changed",
			"write it as YAML, or move it away and run the same command again: mv "+hostConf+" "+hostConf+".old", "%w", err)
	}
	return m, nil
}

// hostConfPhase writes this node's host.conf. If there is no file, it starts from the operator's template, so that both agree.
func hostConfPhase() host.Phase {
	return host.Phase{
		Name: "host-conf", Short: "Write this node's host.conf",
		Long: "Writes the given networks, listen interface, image paths and huge pages to " + hostConf + ".\n" +
			"Other keys, comments, and keys whose value was edited do not change. Refuses networks that would cut the machine off, as preflight does.",
		Check: func(_ context.Context, h *host.Host) (bool, error) {
			m, err := wantedHostConf(h)
			return err == nil && h.Files.Exists(hostConf) && len(m.set) == 0 && len(m.kept) == 0, err
		},
		Plan: func(_ context.Context, h *host.Host) ([]string, error) {
			m, err := wantedHostConf(h)
			if err != nil || h.Files.Exists(hostConf) && len(m.set) == 0 {
				return nil, err
			}
			if err := accepted(h); err != nil {
				return nil, err
			}
			if len(m.set) == 0 {
				return append([]string{"write " + hostConf}, consequences(h)...), nil
			}
			return append([]string{fmt.Sprintf("set %s in %s", strings.Join(m.set, ", "), hostConf)}, consequences(h)...), nil
		},
		Run:  writeHostConf,
		Undo: undoHostConf,
	}
}

func writeHostConf(_ context.Context, h *host.Host, r workflow.Reporter) error {
	m, err := wantedHostConf(h)
	if err != nil {
		return err
	}
	a, err := lastApplied(h)
	if err != nil {
		return err
	}
	if len(m.kept) > 0 {
		r.Info("%s was edited: %s is not changed; to let ocadm set it, remove it from the file and run the same command again", hostConf,
			strings.Join(m.kept, ", "))
	}
	if h.Files.Exists(hostConf) && len(m.set) == 0 {
		return nil
	}
	if err := accepted(h); err != nil {
		return err
	}
	now, err := h.Files.ReadFile(hostConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading %s: %w", hostConf, err)
	}
	a.Edited = err == nil && (a.Edited || h.Ledger.Has(host.KindFile, hostConf) && !a.wrote(string(now)))
	want := hostConfValues(h)
	for _, key := range m.kept {
		delete(want, key)
	}
	// Write the record first: after a crash in between, host.conf has the former values, and a later run replaces them, even by values other than these.
	a.Former = append(a.Former, applied{Text: a.Text, Values: maps.Clone(a.Values)})
	if a.Values == nil {
		a.Values = map[string]any{}
	}
	maps.Copy(a.Values, want)
	a.Text = m.text
	if err := a.record(h); err != nil {
		return err
	}
	if err := h.Files.WriteFile(hostConf, []byte(m.text), hostConfMode); err != nil {
		return err
	}
	a.Former = nil
	if err := a.record(h); err != nil {
		return err
	}
	r.Changed("wrote %s", hostConf)
	for _, line := range consequences(h) {
		r.Info("%s", line)
	}
	return nil
}

// undoHostConf restores the previous host.conf, unless the file was edited since.
func undoHostConf(_ context.Context, h *host.Host, r workflow.Reporter) error {
	e, ok := h.Ledger.Get(host.KindFile, hostConf)
	if ok {
		a, err := lastApplied(h)
		if err != nil {
			return err
		}
		now, err := h.Files.ReadFile(hostConf)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && (a.Edited || !a.wrote(string(now))) {
			r.Info("left %s, because it was edited after ocadm wrote it", hostConf)
			err = h.Ledger.Forget(e.Kind, e.Name)
		} else if err = h.Files.Undo(e); err == nil {
			r.Changed("reverted %s", hostConf)
		}
		if err != nil {
			return err
		}
	}
	_, err := h.Undo(r, appliedFile)
	return err
}
