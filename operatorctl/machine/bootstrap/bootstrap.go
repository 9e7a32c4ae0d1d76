// SPDX-License-Identifier: Apache-2.0

// Package bootstrap generates the data with which a machine joins a cluster by itself: an sh script, and user data for cloud-init or Ignition that run
// it. All of it is pure. The data contain a join token, so they are a secret.
package bootstrap

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/pki"
)

// Cluster holds what a machine must know about the cluster that it joins.
type Cluster struct {
	// Endpoint is the address of the control plane, host:port.
	Endpoint string
	// CA holds the cluster's PEM-encoded CA certificates.
	CA []byte
	// ImageRepository and KubernetesImageRepository are the sources of the images; empty means the default of join.
	ImageRepository, KubernetesImageRepository string
	// KubernetesVersion is the cluster's version.
	KubernetesVersion string
	// DepotPort is the port of the depot on the control-plane node.
	DepotPort int
	// Settings are those of all machines of the cloud.
	Settings v1alpha1.MachineSettings
	// CertificateKey decrypts the CAs that a control-plane node downloads. It is a secret.
	CertificateKey string
}

// DepotPort is the port of the depot on a control-plane node. A test compares these constants with those of the installer.
const DepotPort = 6444

// SettingsName is the ConfigMap in which init stores its settings, SettingsKey its data key.
const (
	SettingsName = "ocadm-cloud"
	SettingsKey  = "cloud.yaml"
)

// Pin returns the hash of a CA's public key in the form of --discovery-token-ca-cert-hash.
func Pin(ca []byte) (string, error) {
	certs, err := pki.ParseCerts(ca)
	if err != nil {
		return "", fmt.Errorf("reading the cluster's authority: %w", err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(certs[0].RawSubjectPublicKeyInfo)), nil
}

// Script returns an sh script that joins a machine. With argument precheck it checks the machine and changes nothing; with join, or none, it installs
// ocadm from the depot and joins. ocadm gets its settings in a file, and curl gets the token on standard input, so no other process sees them.
func Script(m *v1alpha1.OnecloudMachine, c Cluster, token string) (string, error) {
	pin, err := Pin(c.CA)
	if err != nil {
		return "", err
	}
	host, _, err := net.SplitHostPort(c.Endpoint)
	if err != nil {
		return "", fmt.Errorf("reading the control plane's endpoint: %w", err)
	}
	values, err := JoinConfig(m, c, token, pin)
	if err != nil {
		return "", err
	}
	config, err := json.Marshal(values)
	if err != nil {
		return "", err
	}
	return strings.NewReplacer(
		"@MACHINE@", m.Name, "@CONFIG@", string(config), "@CA@", strings.TrimSpace(string(c.CA)), "@TOKEN@", token,
		"@DEPOT@", "https://"+net.JoinHostPort(host, strconv.Itoa(cmp.Or(c.DepotPort, DepotPort))), "@REPORT@", report(m, c),
	).Replace(script), nil
}

// report returns the URL to which a machine that calls in reports its progress, "" for any other machine.
func report(m *v1alpha1.OnecloudMachine, c Cluster) string {
	if !m.CallsIn() {
		return ""
	}
	return "https://" + c.Endpoint + "/api/v1/namespaces/" + m.Namespace + "/configmaps/" + m.CallIn()
}

// JoinConfig returns the configuration file with which a machine joins. pin is the hash of the cluster's CA. It contains the token.
func JoinConfig(m *v1alpha1.OnecloudMachine, c Cluster, token, pin string) (map[string]any, error) {
	labels := []string{}
	if m.UID != "" { // it exists in the cluster
		labels = append(labels, v1alpha1.LabelMachine+"="+string(m.UID))
	}
	if slices.Contains(m.Spec.Roles, v1alpha1.RoleLBAgent) {
		labels = append(labels, v1alpha1.NodeRolePrefix+"lbagent="+v1alpha1.Enable)
	}
	for k, v := range m.Spec.Labels {
		labels = append(labels, k+"="+v)
	}
	slices.Sort(labels)
	node := map[string]any{}
	for _, s := range []v1alpha1.MachineSettings{c.Settings, m.Spec.Settings} { // the machine's settings override the cloud's
		own, err := json.Marshal(s) // the names are those of ocadm's settings
		if err == nil {
			err = json.Unmarshal(own, &node)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the settings of machine %s: %w", m.Name, err)
		}
	}
	node["name"], node["labels"] = m.Name, labels
	for role, key := range map[v1alpha1.MachineRole]string{
		v1alpha1.RoleCompute: "enableHostAgent", v1alpha1.RoleController: "asController", v1alpha1.RoleBaremetal: "baremetal",
	} {
		if slices.Contains(m.Spec.Roles, role) {
			node[key] = true
		}
	}
	if len(m.Spec.HostNetworks) > 0 {
		node["hostNetworks"] = m.Spec.HostNetworks
	}
	cluster := map[string]any{}
	for key, value := range map[string]string{
		"imageRepository": c.ImageRepository, "kubernetesImageRepository": c.KubernetesImageRepository, "kubernetesVersion": c.KubernetesVersion,
	} {
		if value != "" {
			cluster[key] = value
		}
	}
	join := map[string]any{"endpoint": c.Endpoint, "token": token, "caCertHashes": []string{pin}}
	if m.ControlPlane() {
		join["controlPlane"], join["certificateKey"] = true, c.CertificateKey
	}
	return map[string]any{"apiVersion": "ocadm.yunion.io/v1", "kind": "Configuration", "node": node, "cluster": cluster, "join": join}, nil
}

// Ledger is the path of the installer's ledger, which a test compares. A machine that has it was joined.
const Ledger = "/var/lib/ocadm/ledger.jsonl"

// The exit codes of the scripts, in addition to those of ocadm.
const (
	ExitNoCurl       = 61
	ExitArchitecture = 62
	ExitGuests       = 63
	ExitNoDownload   = 64
	ExitNoProgram    = 65
	ExitExpired      = 66
)

// places sets the paths of the scripts. Directory keep is private to root and removed by the reset. It holds ocadm between precheck and join, and what
// join replaced: "delivered" marks that the join installed ocadm, "before" is the previous program.
const places = `	PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	export PATH
	program=${OCADM_BOOTSTRAP_BIN:-/usr/local/bin}/ocadm
	keep=${OCADM_BOOTSTRAP_DIR:-/root/.ocadm}
`

// Parts of the scripts. deliver installs ocadm and records what was there; runDir creates a directory for this run that only root can read.
const (
	sum = `sum() { sha256sum 2>/dev/null <"$1" | cut -c 1-64; }
`
	deliver = `deliver() {
	[ "$ocadm" != "$program" ] || return 0
	if [ ! -e "$keep/delivered" ]; then
		if [ -e "$program" ]; then cp -pP "$program" "$dir/before"; mv -f "$dir/before" "$keep/before"; fi
		: >"$keep/delivered"
	fi
	cp "$ocadm" "$program.new"
	chmod 0755 "$program.new"
	mv -f "$program.new" "$program"
	rm -f "$ocadm"
}
`
	runDir = `	mkdir -p "$keep"
	for old in "$keep"/run.*; do
		[ -d "/proc/${old##*.}" ] || rm -rf "$old"
	done
	dir=$keep/run.$$
	mkdir "$dir"
	trap 'rm -rf "$dir"' EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
`
)

// The shell reads all functions before it runs anything, so a truncated script does nothing. ocadm is identified by its digest, so it is downloaded only
// once. Each run has its own directory; what a power failure leaves of it, with the token, the next run removes.
const script = `#!/bin/sh
# Joins machine @MACHINE@ to its cluster. Generated by the ocadm operator. It contains a secret.
# Usage: sh SCRIPT [precheck|join [TRY]]
ask() {
	printf 'Authorization: Bearer %s' '@TOKEN@' | curl -fsS --noproxy '*' --retry 3 --connect-timeout 20 --cacert "$dir/ca.crt" -H @- "$@"
}
` + sum + `none() {
	case $(ask --retry 0 -o /dev/null -w '%{http_code}' -I "$from" 2>/dev/null || :) in
	401*)
		echo 'The control plane rejects the token in this bootstrap data: it has expired. If the machine has not joined, get new data: ocadm machine bootstrap-data @MACHINE@' >&2
		exit 66
		;;
	esac
	exit 64
}
fetch() {
	command -v curl >/dev/null 2>&1 || { echo 'curl is missing on the machine' >&2; exit 61; }
	case $(uname -m) in
	x86_64) arch=amd64 ;;
	aarch64) arch=arm64 ;;
	*) echo "ocadm does not support $(uname -m)" >&2; exit 62 ;;
	esac
	from="@DEPOT@/v1/files/linux/$arch/usr/local/bin/ocadm"
	want=$(ask -I "$from" | tr -d '\r' | sed -n 's/^[Dd]ocker-[Cc]ontent-[Dd]igest: sha256://p')
	[ -n "$want" ] || none
	for ocadm in "$program" "$keep/ocadm"; do
		if [ -f "$ocadm" ] && [ "$(sum "$ocadm")" = "$want" ]; then return; fi
	done
	ask -o "$dir/ocadm" "$from" || exit 64
	[ "$(sum "$dir/ocadm")" = "$want" ] || { echo 'the downloaded ocadm is incomplete or damaged' >&2; exit 64; }
	chmod 0755 "$dir/ocadm"
	mv -f "$dir/ocadm" "$ocadm"
}
call() {
	[ -n "$report" ] && command -v curl >/dev/null 2>&1 || return 0
	printf '{"data":{"state":"%s","exit":"%s","try":"%s","phase":"","message":"","findings":"[]"}}' "$1" "$2" "$try" >"$dir/report"
	ask --retry 0 --max-time 10 -o /dev/null -X PATCH -H 'Content-Type: application/merge-patch+json' --data-binary "@$dir/report" "$report" || :
}
leave() {
	[ "$1" = 0 ] || [ -n "$reported" ] || call failed "$1"
	rm -rf "$dir"
}
` + deliver + `main() {
	set -eu
	umask 077
` + places + runDir + `	report='@REPORT@'
	try=${2:-1}
	reported=
	trap 'leave "$?"' EXIT
	cat >"$dir/ocadm.json" <<'OCADM-END'
@CONFIG@
OCADM-END
	cat >"$dir/ca.crt" <<'OCADM-END'
@CA@
OCADM-END
	call called 0
	fetch
	case ${1:-join} in
	precheck) "$ocadm" preflight join --config "$dir/ocadm.json" -o json ;;
	join)
		deliver
		if [ -z "$report" ]; then
			"$program" join --config "$dir/ocadm.json" -o jsonl
		else
			reported=yes
			"$program" machine call-in --config "$dir/ocadm.json" --ca "$dir/ca.crt" --to "$report" --try "$try"
		fi
		;;
	*) echo "unknown argument $1" >&2; exit 4 ;;
	esac
}
main "$@" </dev/null
`

// noGuests is the part of a script that ends with ExitGuests while virtual machines run on the machine.
const noGuests = `	guests=0
	for p in "${OCADM_BOOTSTRAP_PROC:-/proc}"/[0-9]*/comm; do
		case $(cat "$p" 2>/dev/null || :) in
		qemu-system-*|qemu-kvm) guests=$((guests + 1)) ;;
		esac
	done
	if [ "$guests" -gt 0 ]; then echo "$guests virtual machines run on the machine" >&2; exit 63; fi
`

// NoGuestsScript is an sh script that checks that no virtual machines run on the machine.
const NoGuestsScript = `#!/bin/sh
main() {
	set -eu
` + noGuests + `}
main "$@" </dev/null
`

// ResetScript is an sh script that removes a machine from its cluster and restores what ocadm replaced. It refuses while virtual machines run there. Its
// arguments are additional ones of ocadm reset.
const ResetScript = `#!/bin/sh
main() {
	set -eu
` + places + noGuests + `	if [ -x "$program" ]; then
		"$program" reset --yes -o jsonl "$@"
	elif [ -e ` + Ledger + ` ]; then
		echo "$program is missing" >&2
		exit 65
	fi
	if [ -e "$keep/before" ]; then
		mv -f "$keep/before" "$program"
	elif [ -e "$keep/delivered" ]; then
		rm -f "$program"
	fi
	rm -rf "$keep" "$program.new"
}
main "$@" </dev/null
`

// IdentityScript is an sh script that prints which node a host is, and the CA of its cluster. It changes nothing.
const IdentityScript = `#!/bin/sh
main() {
	set -eu
	etc=${OCADM_BOOTSTRAP_ETC:-/etc}
	[ ! -e "$etc/ocadm/kubeadm.yaml" ] || awk '/^[^ ]/ { on = $1 == "nodeRegistration:" } on && /^  name:/ { print "name " $2; exit }' "$etc/ocadm/kubeadm.yaml"
	[ ! -e "$etc/kubernetes/pki/ca.crt" ] || sed 's/^/ca /' "$etc/kubernetes/pki/ca.crt"
}
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
main </dev/null
`

// scriptPath is the path of the script in user data. The directory is private to root.
const scriptPath = "/root/ocadm-bootstrap.sh"

// command joins a machine that boots by itself. It tries callin.Tries times, half a minute apart, as the control plane may be unavailable for a moment.
// Expired data do not become valid again.
const command = "for n in 1 2 3 4 5 6 7 8 9 10; do sh " + scriptPath + " join $n && break; [ $? != 66 ] || break; sleep 30; done; rm -f " + scriptPath

// unit runs the command at every boot until it has ended once: the power may fail meanwhile.
const (
	unitName = "ocadm-bootstrap.service"
	unit     = "[Unit]\nDescription=Join the cluster of OneCloud\nWants=network-online.target\nAfter=network-online.target\n" +
		"ConditionPathExists=" + scriptPath + "\n\n[Service]\nType=oneshot\nExecStart=/bin/sh -c '" + command + "'\n\n[Install]\nWantedBy=multi-user.target\n"
)

// CloudConfig returns cloud-init user data that run the script at the first boot. cloud-init itself never runs a command again that it has started: Semaphores in its
// cloudinit/helpers.py.
func CloudConfig(script string) (string, error) {
	file := func(path, mode, text string) map[string]any {
		return map[string]any{"path": path, "permissions": mode, "owner": "root:root", "content": text}
	}
	data, err := yaml.Marshal(map[string]any{
		"write_files": []map[string]any{file(scriptPath, "0600", script), file("/etc/systemd/system/"+unitName, "0644", unit)},
		"runcmd":      [][]string{{"systemctl", "enable", "--now", unitName}},
	})
	if err != nil {
		return "", err
	}
	return "#cloud-config\n" + string(data), nil
}

// Ignition returns an Ignition configuration, version 3.4.0, that runs the script at the first boot.
func Ignition(script string) (string, error) {
	const mode = 0o600
	data, err := json.MarshalIndent(map[string]any{
		"ignition": map[string]any{"version": "3.4.0"},
		"storage": map[string]any{"files": []map[string]any{{"path": scriptPath, "mode": mode,
			"contents": map[string]any{"source": "data:;base64," + base64.StdEncoding.EncodeToString([]byte(script))}}}},
		"systemd": map[string]any{"units": []map[string]any{{"name": unitName, "enabled": true, "contents": unit}}},
	}, "", "  ")
	return string(data) + "\n", err
}

// Format converts the script to a format: script, cloud-init or ignition.
func Format(script, format string) (string, error) {
	switch format {
	case "cloud-init":
		return CloudConfig(script)
	case "ignition":
		return Ignition(script)
	}
	return script, nil
}
