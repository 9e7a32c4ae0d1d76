#!/bin/sh
# Written by ocadm. Runs a command of Open vSwitch in the image of this node's Open vSwitch pods. ovs-vsctl, ovs-ofctl and ovs-appctl are
# this file; its name says which command is meant. To use another image, write its name to /etc/yunion/openvswitch.image.
set -eu
program=${0##*/}
image=
if [ -s /etc/yunion/openvswitch.image ]; then
	read -r image </etc/yunion/openvswitch.image || :
fi
if [ -z "$image" ]; then
	# CONTAINER IMAGE RUNTIME, for the container of ovs-vswitchd or, before it runs, of ovsdb-server.
	for container in ovs-vswitchd ovsdb-server; do
		image=$(ctr -n k8s.io containers ls "labels.\"io.kubernetes.container.name\"==$container" | awk 'NR > 1 { image = $2 } END { print image }')
		[ -z "$image" ] || break
	done
fi
if [ -z "$image" ]; then
	echo "$program: no Open vSwitch pod has run on this node yet; see: kubectl -n onecloud get pods -o wide | grep ovs" >&2
	exit 1
fi
# The namespace of processes is the node's, because ovs-appctl finds a daemon by its process ID.
exec ctr -n k8s.io run --rm --net-host --with-ns pid:/proc/1/ns/pid \
	--mount type=bind,src=/var/run/openvswitch,dst=/var/run/openvswitch,options=rbind:rw \
	"$image" "ocadm-$program-$$-$(date +%s%N)" "$program" "$@"
