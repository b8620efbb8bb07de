#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deploy/dev-cluster: up twice, pids, cold, env, down --keep and up again, down.
# timeout: 180
. "$(dirname "$0")/cli.inc.sh"
need_cluster
dev=$src/deploy/dev-cluster

mds=$("$dev" pids | grep meta)
expect 0 "$dev" up
[ "$("$dev" pids | grep meta)" = "$mds" ] || fail "a second up started another mds"
roles=$("$dev" pids | cut -d' ' -f1 | sort | uniq -c | xargs)
[ "$roles" = "2 client 4 data 1 meta" ] || fail "pids: $roles"

mnt2=$("$dev" mountpoint 2)
head -c 5000000 /dev/urandom >"$tmp/data"
cp "$tmp/data" "$mnt/data"
cmp "$tmp/data" "$mnt2/data" || fail "the second mount shows something else"
expect 0 "$dev" cold
cmp "$tmp/data" "$mnt/data" || fail "after cold"
expect 0 bash -c "eval \"\$('$dev' env)\" && leat status"
in_out "4 of 4 targets up"

expect 0 "$dev" down --keep
[ -z "$("$dev" pids)" ] || fail "processes are left after down"
grep -q "$LEAT_DEV" /proc/mounts && fail "mounts are left after down"
expect 0 "$dev" check
expect 0 "$dev" up
cmp "$tmp/data" "$mnt/data" || fail "data did not outlive down --keep"

expect 0 "$dev" down
[ ! -e "$LEAT_DEV" ] || fail "down left $LEAT_DEV"
expect 0 "$dev" down

# status names a scratch cluster as such. Extra configuration, one mount, two object servers
printf '[ossd]\nsync = no\n' >"$tmp/extra"
export LEAT_DEV_CONF=$tmp/extra LEAT_DEV_OSSD=2 LEAT_DEV_MOUNTS=1
expect 0 "$dev" up
expect 0 "$leat" status --json
json .cluster.durability none
json '.targets | length' 2
expect 0 "$leat" status
in_out "durability  NONE"
expect 0 "$dev" down
finish
