// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// SpecKeys returns the JSON keys of the fields of a spec.
var SpecKeys = sync.OnceValue(func() map[string]bool {
	keys := map[string]bool{}
	for f := range reflect.TypeFor[OnecloudClusterSpec]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		keys[key] = true
	}
	return keys
})

// KeysBelow returns the JSON keys of the fields at a path below spec, such as "mysql.tls", or nil if there is no such path.
func KeysBelow(path string) []string {
	t := reflect.TypeFor[OnecloudClusterSpec]()
	for key := range strings.SplitSeq(path, ".") {
		key, _, _ = strings.Cut(key, "[")
		if t = fieldsOf(t)[key]; t == nil {
			return nil
		}
	}
	return slices.Sorted(maps.Keys(fieldsOf(t)))
}

// fieldsOf returns the field types of a struct by JSON key. Pointers and lists stand for their element.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	fields := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return fields
	}
	for _, f := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" && key != "-" {
			fields[key] = f.Type
		}
	}
	return fields
}

// Component returns the block of a component by its JSON key, or nil if there is no such key. A key "a.b" names a container b in block a: the result
// has the scheduling of a and the image of b. A key without a field of its own is looked up in spec.components.
// The result may be a copy; treat it as read-only.
func (s *OnecloudClusterSpec) Component(key string) *ComponentSpec {
	outer, inner, nested := strings.Cut(key, ".")
	block := s.block(outer)
	if !nested || block == nil {
		return block
	}
	c := s.container(outer, inner)
	if c == nil {
		return nil
	}
	merged := *block
	merged.ContainerSpec = *c
	return &merged
}

// Container returns the block of an additional container in a component's block, or nil.
func (s *OnecloudClusterSpec) Container(key string) *ContainerSpec {
	outer, inner, nested := strings.Cut(key, ".")
	if !nested {
		return nil
	}
	return s.container(outer, inner)
}

func (s *OnecloudClusterSpec) container(outer, inner string) *ContainerSpec {
	return map[string]*ContainerSpec{
		"web/Overview":            &s.Web.Overview,
		"web/Docs":                &s.Web.Docs,
		"webconsole/Guacd":        &s.Webconsole.Guacd,
		"notify/plugins":          &s.Notify.Plugins,
		"hostagent/SdnAgent":      &s.Hostagent.SdnAgent,
		"hostagent/OvnController": &s.Hostagent.OvnController,
		"hostagent/HostHealth":    &s.Hostagent.HostHealth,
		"lbagent/OvnController":   &s.Lbagent.OvnController,
		"telegraf/TelegrafRaid":   &s.Telegraf.TelegrafRaid,
	}[outer+"/"+inner]
}

func (s *OnecloudClusterSpec) block(key string) *ComponentSpec {
	if b, ok := s.blocks()[key]; ok {
		return b
	}
	if b, ok := s.Components[key]; ok {
		return &b
	}
	return nil
}

// blocks returns the spec's blocks by JSON key. A test compares this table with the fields.
func (s *OnecloudClusterSpec) blocks() map[string]*ComponentSpec {
	return map[string]*ComponentSpec{
		"etcd":                    &s.Etcd.ComponentSpec,
		"keystone":                &s.Keystone.ComponentSpec,
		"regionServer":            &s.RegionServer.ComponentSpec,
		"regionDNS":               &s.RegionDNS.ComponentSpec,
		"scheduler":               &s.Scheduler,
		"glance":                  &s.Glance.ComponentSpec,
		"climc":                   &s.Climc,
		"logger":                  &s.Logger,
		"yunionconf":              &s.Yunionconf,
		"yunionagent":             &s.Yunionagent,
		"apiGateway":              &s.APIGateway.ComponentSpec,
		"web":                     &s.Web.ComponentSpec,
		"webconsole":              &s.Webconsole.ComponentSpec,
		"hostagent":               &s.Hostagent.ComponentSpec,
		"hostdeployer":            &s.Hostdeployer,
		"hostimage":               &s.Hostimage,
		"ovnNorth":                &s.OvnNorth.ComponentSpec,
		"vpcAgent":                &s.VpcAgent,
		"lbagent":                 &s.Lbagent.ComponentSpec,
		"baremetalagent":          &s.Baremetalagent,
		"esxiagent":               &s.Esxiagent,
		"influxdb":                &s.Influxdb,
		"victoriaMetrics":         &s.VictoriaMetrics.ComponentSpec,
		"telegraf":                &s.Telegraf.ComponentSpec,
		"monitor":                 &s.Monitor,
		"cloudmon":                &s.Cloudmon.ComponentSpec,
		"kubeserver":              &s.Kubeserver,
		"ansibleserver":           &s.Ansibleserver,
		"cloudnet":                &s.Cloudnet,
		"cloudproxy":              &s.Cloudproxy,
		"cloudevent":              &s.Cloudevent,
		"cloudid":                 &s.Cloudid,
		"cloudmux":                &s.Cloudmux,
		"notify":                  &s.Notify.ComponentSpec,
		"s3gateway":               &s.S3gateway,
		"devtool":                 &s.Devtool,
		"meter":                   &s.Meter,
		"billing":                 &s.Billing,
		"autoupdate":              &s.Autoupdate,
		"itsm":                    &s.Itsm,
		"onecloudServiceOperator": &s.OnecloudServiceOperator,
		"suggestion":              &s.Suggestion,
		"scheduledtask":           &s.Scheduledtask,
		"apiMap":                  &s.APIMap,
		"report":                  &s.Report,
		"echartsSSR":              &s.EchartsSSR,
		"bastionHost":             &s.BastionHost,
		"extdb":                   &s.Extdb,
		"llm":                     &s.LLM,
		"mcpServer":               &s.McpServer,
		"aiproxy":                 &s.Aiproxy,
		"backup":                  &s.Backup.ComponentSpec,
	}
}
