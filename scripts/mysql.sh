#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the path of a directory with MySQL's server and client from Debian unstable, because no stable release packages MySQL. The files stay in the
# cache directory. Remove the directory to fetch a newer server. Needs root, for mmdebstrap.
set -euo pipefail

dir=${XDG_CACHE_HOME:-$HOME/.cache}/ocadm/mysql
if [[ ! -x $dir/usr/sbin/mysqld ]]; then
	command -v mmdebstrap >&2 || { echo "mysql: installing mmdebstrap" >&2; apt-get install -y mmdebstrap >&2; }
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | grep -v security | head -1)
	echo "mysql: fetching mysql-server-core from Debian unstable (about 60 MB, half a minute)" >&2
	rm -rf "$dir.new" && mkdir -p "$(dirname "$dir")"
	# A mirror may have a snapshot of unstable whose dates have expired.
	mmdebstrap --quiet --aptopt='Acquire::Check-Valid-Until "false"' --variant=extract \
		--include=mysql-server-core,mysql-client-core unstable "$dir.new" "$mirror" >&2
	rm -rf "$dir" && mv "$dir.new" "$dir"
fi
echo "$dir"
