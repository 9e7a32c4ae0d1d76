// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"strings"
)

// The actions of the script of Sent.
const (
	DoPrecheckInit = "precheck-init"
	DoPrecheckJoin = "precheck-join"
	DoInit         = "init"
	DoJoin         = "join"
)

// Sent returns an sh script for a machine to which ocadm was copied over SSH, because there is no depot yet. It runs the ocadm with this digest
// (SHA-256, hexadecimal) with a configuration file. The first argument selects the action. ResetScript undoes what it installs. It contains the secrets
// of the configuration.
func Sent(config map[string]any, digest string) (string, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	return strings.NewReplacer("@CONFIG@", string(text), "@DIGEST@", digest).Replace(sent), nil
}

const sent = `#!/bin/sh
# Runs the ocadm that was sent to this machine. It contains a secret.
` + sum + deliver + `find() {
	for ocadm in "$program" "$keep/ocadm"; do
		if [ -f "$ocadm" ] && [ "$(sum "$ocadm")" = @DIGEST@ ]; then return; fi
	done
	echo 'the ocadm that was sent to the machine is missing' >&2
	exit 64
}
main() {
	set -eu
	umask 077
` + places + runDir + `	cat >"$dir/ocadm.json" <<'OCADM-END'
@CONFIG@
OCADM-END
	find
	case ${1:-} in
	precheck-init) "$ocadm" preflight init --config "$dir/ocadm.json" -o json ;;
	precheck-join) "$ocadm" preflight join --config "$dir/ocadm.json" -o json ;;
	init|join)
		deliver
		"$program" "$1" --config "$dir/ocadm.json" -o jsonl
		;;
	*) echo "unknown argument ${1:-}" >&2; exit 4 ;;
	esac
}
main "$@" </dev/null
`

// The names of files copied to a machine. They are in a directory that is private to root; BundlePath is the path of the bundle.
const (
	ProgramName = "ocadm"
	BundleName  = "bundle"
	BundlePath  = "/root/.ocadm/bundle"
)

// ProbeScript is an sh script that runs the probe of package pairs with the copied or joined ocadm. Its dialogue follows on standard input.
const ProbeScript = places + `	for ocadm in "$keep/ocadm" "$program"; do
		[ ! -x "$ocadm" ] || exec "$ocadm" machine probe
	done
	echo 'ocadm is not on the machine' >&2
	exit 65
`

// HasScript is an sh script that succeeds if the copied file NAME (first argument), or the installed ocadm, has the digest in the second argument.
const HasScript = `#!/bin/sh
` + sum + `main() {
` + places + `	for file in "$program" "$keep/$1"; do
		if [ -f "$file" ] && [ "$(sum "$file")" = "$2" ]; then exit 0; fi
	done
	exit 1
}
main "$@" </dev/null
`

// ReceiveScript is an sh script that stores a file from standard input as NAME (first argument), if it has the digest in the second argument. The third
// is "gzip" or "plain".
const ReceiveScript = sum + places + `	set -eu
	umask 077
` + runDir + `	if [ "$3" = gzip ]; then gzip -dc >"$dir/$1"; else cat >"$dir/$1"; fi
	if [ "$(sum "$dir/$1")" != "$2" ]; then echo "the received $1 is incomplete or damaged" >&2; exit 64; fi
	chmod 0700 "$dir/$1"
	mv -f "$dir/$1" "$keep/$1"
`

// TidyScript is an sh script that removes what was copied to a machine that has not joined.
const TidyScript = `#!/bin/sh
main() {
	set -eu
` + places + `	[ ! -e "$keep/delivered" ] || exit 0
	rm -rf "$keep/ocadm" "$keep/bundle" "$keep"/run.*
	[ ! -d "$keep" ] || rmdir "$keep" 2>/dev/null || :
}
main "$@" </dev/null
`
