// SPDX-License-Identifier: Apache-2.0

// Package fleet makes a cluster of many machines from one file and one place: it logs in to each over SSH, checks all of them before anything is
// changed anywhere, runs init on the first, joins the others, and hands them over as OnecloudMachines. Each machine is a plan of steps on the engine
// that runs the installer's phases; their journal, the logs and the keys are in a directory of the administrator's machine.
package fleet

import (
	"cmp"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// APIVersion and Kind head a file.
const (
	APIVersion = "ocadm.yunion.io/v1"
	Kind       = "Fleet"
)

// Spec is a file: the machines of a cluster and how they are reached.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name of the fleet: a DNS label; "fleet" when empty. The Secret with the logins is named after it.
	Name string `json:"name,omitempty"`
	// SSH is how to log in to every machine, unless the machine says otherwise.
	SSH Login `json:"ssh,omitzero"`
	// KnownHosts is the file with the host keys, "" that of the directory of the fleet. What it has not, the first contact adds.
	KnownHosts string `json:"knownHosts,omitempty"`
	// Bundle is a file on this machine that the first node installs from; empty: settings.node.bundle, else upstream.
	Bundle string `json:"bundle,omitempty"`
	// Programs are files with ocadm for architectures other than that of this machine, by their names: arm64.
	Programs map[string]string `json:"programs,omitempty"`
	// Settings are those of init, as in the file of --config. database.passwordFile is a file on this machine, the others are on the first node.
	Settings map[string]any `json:"settings,omitempty"`
	// ControlPlanes are the control-plane nodes, the first of which is made by init. There are 1, 3, 5 or more.
	ControlPlanes []Machine `json:"controlPlanes"`
	// Workers are the other nodes.
	Workers []Machine `json:"workers,omitempty"`
	// KeepOut leaves the machines out of the cloud: they become no OnecloudMachines, and their logins do not go into the cluster.
	KeepOut bool `json:"keepOut,omitempty"`
}

// Login is a user of a machine. Files are on the machine of the administrator.
type Login struct {
	User             string `json:"user,omitempty"`
	Port             int    `json:"port,omitempty"`
	KeyFile          string `json:"keyFile,omitempty"`
	PassphraseFile   string `json:"passphraseFile,omitempty"`
	PasswordFile     string `json:"passwordFile,omitempty"`
	SudoPasswordFile string `json:"sudoPasswordFile,omitempty"`
	// JumpHost is the machine through which the connection goes.
	JumpHost *JumpHost `json:"jumpHost,omitempty"`
}

// JumpHost is a machine through which connections go.
type JumpHost struct {
	Address        string `json:"address"`
	HostKey        string `json:"hostKey,omitempty"`
	User           string `json:"user,omitempty"`
	Port           int    `json:"port,omitempty"`
	KeyFile        string `json:"keyFile,omitempty"`
	PassphraseFile string `json:"passphraseFile,omitempty"`
	PasswordFile   string `json:"passwordFile,omitempty"`
}

// Machine is one of the fleet.
type Machine struct {
	// Name of its Node: it begins with a letter and has at most 40 lower-case letters, digits and dashes.
	Name string `json:"name"`
	// Address is a name or an IP address for SSH.
	Address string `json:"address"`
	// HostKey is the key that it must show, TYPE BASE64 or SHA256:BASE64.
	HostKey string `json:"hostKey,omitempty"`
	// SSH replaces fields of the login of all machines.
	SSH Login `json:"ssh,omitzero"`
	// Roles, labels, networks and settings are those of OnecloudMachine. What settings has not comes from settings.node of the fleet.
	Roles        []v1alpha1.MachineRole   `json:"roles,omitempty"`
	Labels       map[string]string        `json:"labels,omitempty"`
	Taints       []v1alpha1.MachineTaint  `json:"taints,omitempty"`
	HostNetworks []string                 `json:"hostNetworks,omitempty"`
	Settings     v1alpha1.MachineSettings `json:"settings,omitzero"`
}

// login of a machine: its own fields over those of all.
func (s *Spec) login(m *Machine) Login {
	a, b := m.SSH, s.SSH
	out := Login{User: cmp.Or(a.User, b.User, "root"), Port: cmp.Or(a.Port, b.Port, defaultPort), JumpHost: cmp.Or(a.JumpHost, b.JumpHost),
		SudoPasswordFile: cmp.Or(a.SudoPasswordFile, b.SudoPasswordFile)}
	// A key of its own does not go with the password of all, nor the other way round.
	own := a.KeyFile != "" || a.PasswordFile != ""
	if own {
		b = Login{}
	}
	out.KeyFile, out.PassphraseFile, out.PasswordFile = cmp.Or(a.KeyFile, b.KeyFile), cmp.Or(a.PassphraseFile, b.PassphraseFile), cmp.Or(a.PasswordFile, b.PasswordFile)
	return out
}

// defaultPort of SSH.
const defaultPort = 22

// machines are all of the fleet, the control-plane nodes first.
func (s *Spec) machines() []*Machine {
	var out []*Machine
	for i := range s.ControlPlanes {
		out = append(out, &s.ControlPlanes[i])
	}
	for i := range s.Workers {
		out = append(out, &s.Workers[i])
	}
	return out
}

// setting is the text of one of the settings of init by its key, such as cloud.name; "" if the file has none.
func (s *Spec) setting(key string) string {
	var at any = s.Settings
	for part := range strings.SplitSeq(key, ".") {
		m, _ := at.(map[string]any)
		at = m[part]
	}
	text, _ := at.(string)
	return text
}

// Cloud is the name of the cloud, and its namespace.
func (s *Spec) Cloud() (namespace, name string) {
	return cmp.Or(s.setting("cloud.namespace"), "onecloud"), cmp.Or(s.setting("cloud.name"), "default")
}
