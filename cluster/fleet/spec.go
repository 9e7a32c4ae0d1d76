// SPDX-License-Identifier: Apache-2.0

// Package fleet creates a cluster of many machines from one file and one place: it logs in to each over SSH, checks all of them before anything is
// changed anywhere, runs init on the first, joins the others, and hands them over as OnecloudMachines. Each machine is a plan of steps on the engine
// that runs the installer's phases. The journal, the logs and the keys are in a directory on the administrator's machine.
package fleet

import (
	"cmp"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
)

const (
	APIVersion = "ocadm.yunion.io/v1"
	Kind       = "Fleet"
)

// Spec is the content of a file: the machines of a cluster and how to reach them.
type Spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name of the fleet: a DNS label; "fleet" when empty. The Secret with the logins is named after it.
	Name string `json:"name,omitempty"`
	// SSH is the default login for machines.
	SSH Login `json:"ssh,omitzero"`
	// KnownHosts is the file with the host keys; "" means the one in the fleet's directory. Missing keys are added on first contact.
	KnownHosts string `json:"knownHosts,omitempty"`
	// Bundle is a file on this machine that the first node installs from; if empty, settings.node.bundle, else upstream.
	Bundle string `json:"bundle,omitempty"`
	// Programs maps architectures other than this machine's, such as arm64, to files with ocadm.
	Programs map[string]string `json:"programs,omitempty"`
	// Settings are those of init, as in the file of --config. database.passwordFile is a file on this machine, the others are on the first node.
	Settings map[string]any `json:"settings,omitempty"`
	// ControlPlanes are the control-plane nodes. Init creates the first one. There are 1, 3, 5 or more.
	ControlPlanes []Machine `json:"controlPlanes"`
	// Workers are the other nodes.
	Workers []Machine `json:"workers,omitempty"`
	// KeepOut keeps the machines out of the cloud: they become no OnecloudMachines, and their logins are not stored in the cluster.
	KeepOut bool `json:"keepOut,omitempty"`
}

// Login is a user on a machine. Files are on the administrator's machine.
type Login struct {
	User             string `json:"user,omitempty"`
	Port             int    `json:"port,omitempty"`
	KeyFile          string `json:"keyFile,omitempty"`
	PassphraseFile   string `json:"passphraseFile,omitempty"`
	PasswordFile     string `json:"passwordFile,omitempty"`
	SudoPasswordFile string `json:"sudoPasswordFile,omitempty"`
	// JumpHost is the machine to connect through.
	JumpHost *JumpHost `json:"jumpHost,omitempty"`
}

// JumpHost is a machine to connect through.
type JumpHost struct {
	Address        string `json:"address"`
	HostKey        string `json:"hostKey,omitempty"`
	User           string `json:"user,omitempty"`
	Port           int    `json:"port,omitempty"`
	KeyFile        string `json:"keyFile,omitempty"`
	PassphraseFile string `json:"passphraseFile,omitempty"`
	PasswordFile   string `json:"passwordFile,omitempty"`
}

// Machine is a machine of the fleet.
type Machine struct {
	// Name of its Node: it begins with a letter and has at most 40 lower-case letters, digits and dashes.
	Name string `json:"name"`
	// Address is a name or an IP address for SSH.
	Address string `json:"address"`
	// HostKey is the expected key, TYPE BASE64 or SHA256:BASE64.
	HostKey string `json:"hostKey,omitempty"`
	// SSH overrides fields of the default login.
	SSH Login `json:"ssh,omitzero"`
	// Roles, labels, networks and settings are those of OnecloudMachine. Missing settings come from settings.node of the fleet.
	Roles        []v1alpha1.MachineRole   `json:"roles,omitempty"`
	Labels       map[string]string        `json:"labels,omitempty"`
	Taints       []v1alpha1.MachineTaint  `json:"taints,omitempty"`
	HostNetworks []string                 `json:"hostNetworks,omitempty"`
	Settings     v1alpha1.MachineSettings `json:"settings,omitzero"`
}

// login returns the login of a machine: its own fields override the defaults.
func (s *Spec) login(m *Machine) Login {
	a, b := m.SSH, s.SSH
	out := Login{User: cmp.Or(a.User, b.User, "root"), Port: cmp.Or(a.Port, b.Port, defaultPort), JumpHost: cmp.Or(a.JumpHost, b.JumpHost),
		SudoPasswordFile: cmp.Or(a.SudoPasswordFile, b.SudoPasswordFile)}
	// Its own key does not go with the default password, nor the other way round.
	own := a.KeyFile != "" || a.PasswordFile != ""
	if own {
		b = Login{}
	}
	out.KeyFile, out.PassphraseFile, out.PasswordFile = cmp.Or(a.KeyFile, b.KeyFile), cmp.Or(a.PassphraseFile, b.PassphraseFile), cmp.Or(a.PasswordFile, b.PasswordFile)
	return out
}

const defaultPort = 22

// machines returns all machines, control-plane nodes first.
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

// setting returns the text of one of init's settings by key, such as cloud.name; "" if the file does not set it.
func (s *Spec) setting(key string) string {
	var at any = s.Settings
	for part := range strings.SplitSeq(key, ".") {
		m, _ := at.(map[string]any)
		at = m[part]
	}
	text, _ := at.(string)
	return text
}

func (s *Spec) Cloud() (namespace, name string) {
	return cmp.Or(s.setting("cloud.namespace"), "onecloud"), cmp.Or(s.setting("cloud.name"), "default")
}
