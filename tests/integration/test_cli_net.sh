#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# leat status --net, the per-transport counters of /metrics, and `transport` in leat.conf: what the
# programs report without an RDMA device, and that they use no transport that was not configured.
# timeout: 120
. "$(dirname "$0")/cli.inc.sh"
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
	echo "has RDMA devices: see tests/rdma"
	exit 77
fi
need_cluster

dd if=/dev/urandom of="$mnt/data" bs=1M count=16 conv=fsync status=none || fail "dd"

expect 0 "$leat" status "$mnt"
in_out "transport   auto: tcp; not verbs: "
expect 0 "$leat" status --net "$mnt"
in_out "mount: "
in_out "tcp:127.0.0.1:"
expect 0 "$leat" status --net
in_out "mds: "
in_out "target 4: "
expect 0 "$leat" status --net --json "$mnt"
json '.transport.mode' auto
json '.transport.verbs' false
json '.mount.net.transport.why_not_verbs | length > 10' true
json '[.mount.net.connections[] | select(.to == "mds")] | length' 1
json '[.mount.net.connections[].transport] | unique[0]' tcp
json '[.mount.net.connections[].state] | unique[0]' up
json '[.mount.net.connections[].bytes_out] | add >= 16777216' true
json '.mount.net.total == (.mount.net.connections | length)' true
# The servers report matching figures.
of_clients='.targets[].server.net.connections[] | select(.role == "client")'
json "[$of_clients | .bytes_in] | add >= 16777216" true
# Only the connecting side reports the fields that it alone has.
json '[.mount.net.connections[] | has("repeated")] | all' true
json '[.targets[].server.net.connections[] | select(has("repeated") or has("rail"))] | length' 0
# Four connections for registration, and four for the requests to trim and remove
both_ways() { [ "$("$leat" status --net --json | jq '[.mds.net.connections[] |
	select(.role == "ossd")] | length')" = 8 ]; }
until_true both_ways

# /metrics of a server and of a mount; the figures may be somewhat old.
page_of() { awk -v who="$1" '$1 == who { print $2 }' "$LEAT_DEV/metrics"; }
metric() { curl -s "http://$(page_of "$1")/metrics" |
	awk -v name="$2" '$1 == name { print $2 }'; }
received() {
	local n sum=0
	for n in 1 2 3 4; do
		sum=$((sum + $(metric "ossd$n" leat_ossd_net_tcp_bytes_in_total)))
	done
	[ "$sum" -ge 16777216 ]
}
sent() { [ "$(metric mnt1 leat_mount_net_tcp_bytes_out_total)" -ge 16777216 ]; }
connected() { [ "$(metric mds leat_mds_net_tcp_connections)" -ge 6 ]; }
until_true received
until_true sent
until_true connected
[ "$(metric ossd1 leat_ossd_net_verbs_connections)" = 0 ] || fail "verbs connections without verbs"

# An address that names its transport, and an address with a transport that this machine lacks
addr=$("$leat" status --json | jq -r .mds.addr)
sed "s/^mds = .*/mds = tcp:$addr/" "$LEAT_CONF" >"$tmp/conf"
expect 0 "$leat" --conf "$tmp/conf" status
sed "s/^mds = .*/mds = verbs:$addr/" "$LEAT_CONF" >"$tmp/conf"
expect 2 "$leat" --conf "$tmp/conf" status
in_err "verbs"
# transport = verbs is refused immediately, with the reason.
sed '/^\[cluster\]/a transport = verbs' "$LEAT_CONF" >"$tmp/conf"
expect 2 "$leat" --conf "$tmp/conf" status
in_err "transport = verbs: "
sed '/^\[cluster\]/a transport = carrier-pigeon' "$LEAT_CONF" >"$tmp/conf"
expect 2 "$leat" --conf "$tmp/conf" status
in_err "auto, verbs or tcp"
sed '/^\[cluster\]/a transport = tcp' "$LEAT_CONF" >"$tmp/conf"
expect 0 "$leat" --conf "$tmp/conf" status
in_out "transport   tcp: tcp; not verbs: transport = tcp"
finish
