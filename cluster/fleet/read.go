// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/nearest"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/phases/config"
)

// Read reads a file. It reports all errors together, with the paths of the fields. Relative file names are relative to the file.
func Read(name string, data []byte) (*Spec, error) {
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, bad(name, []string{err.Error()})
	}
	s := &Spec{}
	strict, err := json.UnmarshalStrict(raw, s)
	if err != nil {
		return nil, bad(name, []string{err.Error()})
	}
	wrong := lists.Map(strict, func(e error) string { return unknown(e.Error()) })
	s.Name = cmp.Or(s.Name, "fleet")
	v := &validation{spec: s, wrong: wrong}
	v.all(name)
	if len(v.wrong) > 0 {
		return nil, bad(name, v.wrong)
	}
	s.resolve(filepath.Dir(name))
	return s, nil
}

func bad(name string, wrong []string) error {
	f := finding.New("OCA-7640", "The fleet in "+name+" is not valid", wrong[0], "correct the file; ocadm fleet example prints one. Nothing was changed")
	if len(wrong) > 1 {
		f.What, f.Cause = fmt.Sprintf("The fleet in %s has %d errors", name, len(wrong)), ""
		f.Evidence = wrong
	}
	return f
}

var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

// unknown returns the error for an unknown field, with the one that was probably meant.
func unknown(text string) string {
	m := unknownField.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	path := m[1]
	field := path[strings.LastIndex(path, ".")+1:]
	if guess, ok := nearest.To(field, fields()); ok {
		return fmt.Sprintf("%s: there is no such field (did you mean %s?)", path, guess)
	}
	return path + ": there is no such field"
}

func fields() []string {
	names := map[string]bool{}
	for _, t := range []reflect.Type{
		reflect.TypeFor[Spec](), reflect.TypeFor[Login](), reflect.TypeFor[JumpHost](), reflect.TypeFor[Machine](),
		reflect.TypeFor[v1alpha1.MachineSettings](), reflect.TypeFor[v1alpha1.MachineTaint](),
	} {
		for i := range t.NumField() {
			n, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			names[n] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

type validation struct {
	spec  *Spec
	wrong []string
}

func (v *validation) add(path, format string, args ...any) {
	v.wrong = append(v.wrong, path+": "+fmt.Sprintf(format, args...))
}

var (
	wordName = regexp.MustCompile(`^[a-z](-?[a-z0-9])*$`)
	address  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$`)
)

// nameFits reports whether a name may be that of an OnecloudMachine, which is created after the machine has joined.
func nameFits(name string) bool { return len(name) <= 40 && wordName.MatchString(name) }

func (v *validation) all(file string) {
	s := v.spec
	if s.APIVersion != APIVersion {
		v.add("apiVersion", "it is %q, not %s", s.APIVersion, APIVersion)
	}
	if s.Kind != Kind {
		v.add("kind", "it is %q, not %s", s.Kind, Kind)
	}
	if !nameFits(s.Name) {
		v.add("name", "%q is not a name of at most 40 lower-case letters, digits and dashes", s.Name)
	}
	switch n := len(s.ControlPlanes); {
	case n == 0:
		v.add("controlPlanes", "the list is empty: its first machine becomes the first node")
	case n%2 == 0:
		v.add("controlPlanes", "there are %d: an even number tolerates no more lost nodes than one fewer; list %d", n, n-1)
	case n > 1 && s.setting("cluster.controlPlaneEndpoint") == "" && s.setting("cluster.highAvailabilityVIP") == "":
		v.add("settings.cluster", "several control-plane nodes need controlPlaneEndpoint, the address of a load balancer, or highAvailabilityVIP, a free address")
	}
	names, addresses := map[string]string{}, map[string]string{}
	for i := range s.ControlPlanes {
		v.machine(fmt.Sprintf("controlPlanes[%d]", i), &s.ControlPlanes[i], names, addresses)
	}
	for i := range s.Workers {
		v.machine(fmt.Sprintf("workers[%d]", i), &s.Workers[i], names, addresses)
	}
	v.jump("ssh", s.SSH.JumpHost)
	for _, arch := range slices.Sorted(maps.Keys(s.Programs)) {
		if arch != "amd64" && arch != "arm64" {
			v.add("programs."+arch, "ocadm runs on amd64 and arm64")
		}
	}
	v.settings(file)
}

func (v *validation) machine(path string, m *Machine, names, addresses map[string]string) {
	switch other := names[m.Name]; {
	case !nameFits(m.Name):
		v.add(path+".name", "%q is not a node name: it begins with a letter and has at most 40 lower-case letters, digits and dashes", m.Name)
	case other != "":
		v.add(path+".name", "%s has the name %s, too", other, m.Name)
	case m.ownLogin() && (m.Name == v.spec.Name || m.Name == v.spec.Name+"-jump"): // its Secret would replace that of all machines
		v.add(path+".name", "the fleet has the name %s, and the Secrets with logins are named after both: set name of the fleet", v.spec.Name)
	}
	names[m.Name] = path
	login := v.spec.login(m)
	if v.reached(path, m.Address, m.HostKey) {
		key := strings.ToLower(m.Address) + " " + strconv.Itoa(login.Port)
		if j := login.JumpHost; j != nil {
			key += " " + j.Address
		}
		if other := addresses[key]; other != "" {
			v.add(path+".address", "%s has the address %s, too", other, m.Address)
		}
		addresses[key] = path
	}
	if login.KeyFile == "" && login.PasswordFile == "" {
		v.add(path+".ssh", "neither this field nor ssh of all machines has keyFile or passwordFile")
	}
	if login.Port < 1 || login.Port > 65535 {
		v.add(path+".ssh.port", "%d is not a port", login.Port)
	}
	v.jump(path+".ssh", m.SSH.JumpHost)
	for i, r := range m.Roles {
		roles := []v1alpha1.MachineRole{v1alpha1.RoleCompute, v1alpha1.RoleController, v1alpha1.RoleBaremetal, v1alpha1.RoleLBAgent}
		if r == v1alpha1.RoleControlPlane {
			v.add(fmt.Sprintf("%s.roles[%d]", path, i), "list the machine in controlPlanes, which have this role")
		} else if !slices.Contains(roles, r) {
			v.add(fmt.Sprintf("%s.roles[%d]", path, i), "%q is not one of compute, controller, baremetal, lbagent", r)
		}
	}
}

func (v *validation) jump(path string, j *JumpHost) {
	if j != nil {
		v.reached(path+".jumpHost", j.Address, j.HostKey)
	}
}

// reached checks where a machine is and which key it must present. It reports whether the address is valid.
func (v *validation) reached(path, at, hostKey string) bool {
	valid := address.MatchString(at)
	if !valid {
		v.add(path+".address", "%q is not a name or an IP address", at)
	}
	if hostKey != "" {
		if err := ssh.CheckHostKey(hostKey); err != nil {
			v.add(path+".hostKey", "%v", err)
		}
	}
	return valid
}

// perMachine lists settings that belong to one machine, or elsewhere in the file.
var perMachine = map[string]string{
	"node.name": "controlPlanes[0].name", "node.ip": "controlPlanes[0].settings.ip", "node.labels": "controlPlanes[0].labels",
	"node.hostNetworks": "controlPlanes[0].hostNetworks",
}

// settings checks the settings of init, which knows their names and types.
func (v *validation) settings(file string) {
	file += ", settings"
	doc := map[string]any{"apiVersion": config.APIVersion, "kind": config.Kind}
	maps.Copy(doc, v.spec.Settings)
	raw, err := yaml.Marshal(doc)
	if err != nil {
		v.add("settings", "%v", err)
		return
	}
	values, err := config.Parse(file, raw)
	for _, f := range finding.Of(err) {
		for part := range strings.SplitSeq(f.Cause, "; ") {
			v.wrong = append(v.wrong, "settings."+part)
		}
	}
	if err != nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if place := perMachine[key]; place != "" {
			v.add("settings."+key, "set it in %s", place)
		}
		if strings.HasPrefix(key, "join.") {
			v.add("settings."+key, "machines of a fleet join by themselves")
		}
	}
	if v.spec.Bundle != "" && values["node.bundle"] != nil {
		v.add("bundle", "settings.node.bundle names a bundle, too: bundle is a file here, settings.node.bundle one on the first node or a server")
	}
}

// resolve makes file names absolute.
func (s *Spec) resolve(dir string) {
	at := func(name *string) {
		if rest, home := strings.CutPrefix(*name, "~/"); home {
			if dir, err := os.UserHomeDir(); err == nil {
				*name = filepath.Join(dir, rest)
			}
		}
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(dir, *name)
		}
	}
	login := func(l *Login) {
		for _, name := range []*string{&l.KeyFile, &l.PassphraseFile, &l.PasswordFile, &l.SudoPasswordFile} {
			at(name)
		}
		if j := l.JumpHost; j != nil {
			for _, name := range []*string{&j.KeyFile, &j.PassphraseFile, &j.PasswordFile} {
				at(name)
			}
		}
	}
	login(&s.SSH)
	for _, m := range s.machines() {
		login(&m.SSH)
	}
	at(&s.Bundle)
	at(&s.KnownHosts)
	for arch, name := range s.Programs {
		at(&name)
		s.Programs[arch] = name
	}
	if db, ok := s.Settings["database"].(map[string]any); ok {
		if name, ok := db["passwordFile"].(string); ok {
			at(&name)
			db["passwordFile"] = name
		}
	}
}
