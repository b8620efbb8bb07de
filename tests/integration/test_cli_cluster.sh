#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command line against a development cluster: status, df, layout, bench, mount, umount.
# timeout: 180
. "$(dirname "$0")/cli.inc.sh"
need_cluster

expect 0 "$leat" status
in_out "4 of 4 targets up"
in_out "durability  full"
expect 0 "$leat" status --json "$mnt"
json '.targets | length' 4
json '[.targets[] | select(.state == "up")] | length' 4
json '.targets[0].capacity > 0' true
json '.cluster.durability' full
json '.mds.state' up
json '.mount.mountpoint' "$mnt"
json '.mount.checksum_errors' 0
all_told() { [ "$("$leat" status --json | jq '[.targets[] | select(.server)] | length')" = 4 ]; }
until_true all_told
until_true "$leat" status --check
expect 0 "$leat" status --check

expect 0 "$leat" df
in_out "all"
expect 0 "$leat" df --json
json '.targets | length' 4
json '.size > 0 and .avail > 0' true
expect 0 "$leat" df --json "$mnt"
json '.mounts[0].mountpoint' "$mnt"

# Layouts: inherited, set on a directory, on an empty file, refused on one with data
mkdir "$mnt/wide"
expect 0 "$leat" layout get --json "$mnt/wide"
json '.layouts[0].inherited' 1
expect 0 "$leat" layout get "$mnt/wide"
in_out "new files get chunks of the default size over all chains (inherited)"
expect 0 "$leat" layout set --width 2 --chunk-size 4M --json "$mnt/wide"
json '.layouts[0].chunk_size' 4194304
json '.layouts[0].width' 2
echo x >"$mnt/wide/file"
expect 0 "$leat" layout get --json "$mnt/wide/file"
json '.layouts[0].chunk_size' 4194304
expect 0 "$leat" layout get "$mnt/wide/file"
in_out "chunks of 4.0 MiB over 2 chains"
"$leat" layout set --width 1 "$mnt/wide/file" >/dev/null 2>&1 &&
	fail "layout of a file with data changed"
touch "$mnt/empty"
expect 0 "$leat" layout set --width 1 "$mnt/empty"
in_out "over 1 chain"

expect 0 "$leat" bench --json --size 8M --files 20 --jobs 4 --seconds 1 "$mnt"
json '[.figures[] | select(.value > 0)] | length' 8
# Data made on the mount is read from the servers directly, once in each epoch.
expect 0 "$leat" bench loader --json --workload cosmoflow --scale 0.05 --steps 8 \
	--data "$mnt" --generate
json .source server
json .bytes_from_local_per_epoch 0
json '.bytes_from_servers_per_epoch * 2 == .bytes_delivered' true
rm -r "$mnt/wide" "$mnt/empty"
[ -z "$(ls "$mnt")" ] || fail "something was left on the mount"

# mount, umount
mkdir "$tmp/m"
expect 0 "$leat" mount "$tmp/m"
in_out "mounted at $tmp/m"
echo hello >"$tmp/m/greeting"
expect 1 "$leat" mount "$tmp/m"
in_err "mounted there already"
expect 0 cat "$mnt/greeting"
in_out hello
exec 5<"$tmp/m/greeting"
expect 1 "$leat" umount "$tmp/m"
in_err "in use"
exec 5<&-
pid=$(getfattr --only-values -n leat.status "$tmp/m" 2>/dev/null | jq .pid)
expect 0 "$leat" umount "$tmp/m" --json
json .mounted false
[ ! -d "/proc/$pid" ] || fail "the daemon still runs after umount"
expect 9 "$leat" umount "$tmp/m"

# By address, read-only, without an attribute cache
addr=$(sed -n 's/^mds = //p' "$LEAT_CONF")
expect 0 "$leat" --conf "$LEAT_CONF" mount -o ro,hedge_ms=0 "$addr" "$tmp/m" --json
json .source "$addr"
touch "$tmp/m/x" 2>/dev/null && fail "written to a read-only mount"
expect 0 "$leat" status --json "$tmp/m"
json .mount.source "$addr"
# umount removes a mount whose daemon was killed.
pid=$(getfattr --only-values -n leat.status "$tmp/m" 2>/dev/null | jq .pid)
kill -9 "$pid"
expect 0 "$leat" umount "$tmp/m"

# Wrong options and a wrong key
expect 2 "$leat" mount -o no_such_option=1 "$tmp/m"
in_err "no_such_option"
expect 2 "$leat" mount -o hedge_ms=50000 "$tmp/m"
in_err "hedge_ms"
(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$tmp/wrong")
sed "s|^key_file = .*|key_file = $tmp/wrong|" "$LEAT_CONF" >"$tmp/wrong.conf"
expect 10 "$leat" --conf "$tmp/wrong.conf" status --timeout 60
in_err "wrong cluster key"
"$leat" --conf "$tmp/wrong.conf" mount -o mount_timeout_ms=1000 "$tmp/m" >/dev/null 2>&1 &&
	fail "mounted with a wrong key"

# status --check reports a dead server.
"$src/deploy/dev-cluster" stop ossd3
expect 3 "$leat" status --check # it does not answer, but the map still has it up
three_up() { [ "$("$leat" status --json | jq .cluster.targets_up)" = 3 ]; }
until_true three_up
expect 3 "$leat" status --check
in_out "3 of 4 targets up"
"$src/deploy/dev-cluster" start ossd3
until_true "$leat" status --check
expect 0 "$leat" status --check
finish
