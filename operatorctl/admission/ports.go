// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// blockKeys are the JSON keys of the blocks of components in the spec.
var blockKeys = sync.OnceValue(func() []string {
	spec := &Spec{}
	var out []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Spec]()) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); spec.Component(key) != nil {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
})

// port is a place in the spec where the number of a port may be chosen that is opened on every node.
type port struct {
	// field is the path of the number, internal that of the flag that keeps it off the nodes, "" for none.
	field, internal string
}

// ports are all of them: the services that blocks have by their type, and etcd's.
func ports() []port {
	out := []port{{field: "etcd.clientNodePort"}}
	for _, block := range reflect.VisibleFields(reflect.TypeFor[Spec]()) {
		key, _, _ := strings.Cut(block.Tag.Get("json"), ",")
		if !slices.Contains(blockKeys(), key) || unserved[key] {
			continue
		}
		for _, f := range services(block.Type) {
			inner, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out = append(out, port{field: key + "." + inner + ".nodePort", internal: key + "." + inner + ".internalOnly"})
		}
	}
	return out
}

// services are the fields of a block that say how its ports are published: those of its own, or else the one that all blocks have.
func services(block reflect.Type) []reflect.StructField {
	var own, every []reflect.StructField
	for _, f := range reflect.VisibleFields(block) {
		switch {
		case f.Type != reflect.TypeFor[v1alpha1.ServiceSpec]():
		case f.Name == "Service":
			every = append(every, f)
		default:
			own = append(own, f)
		}
	}
	if own != nil {
		return own
	}
	return every
}

// unserved blocks have no port on the nodes that a number could choose; a test compares with the catalogue.
var unserved = map[string]bool{
	"backup": true, "baremetalagent": true, "climc": true, "cloudmux": true, "echartsSSR": true, "esxiagent": true, "etcd": true,
	"hostagent": true, "hostdeployer": true, "hostimage": true, "influxdb": true, "lbagent": true, "regionDNS": true,
	"telegraf": true, "web": true,
}

// portsRule makes the list of the chosen ports, and asks whether each stands there once.
func portsRule() string {
	var list []string
	for _, p := range ports() {
		n := optional(p.field, "0")
		if p.internal != "" {
			n = optional(p.internal, "false") + "?0:" + n
		}
		list = append(list, n)
	}
	return "[[" + strings.Join(list, ",") + "].filter(p,p>0)].all(l,l.all(p,l.exists_one(q,q==p)))"
}
