#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# leat dataset and leat stage: names, copies, damaged and missing data, exit statuses.
# timeout: 180
. "$(dirname "$0")/cli.inc.sh"
need_cluster
node=$tmp/node
mkdir "$node" "$mnt/data" "$mnt/data/sub"
for i in 1 2 3; do head -c $((i * 3000000 + i)) /dev/urandom >"$mnt/data/sub/file$i"; done
echo small >"$mnt/data/small"
: >"$mnt/data/empty"

expect 0 "$leat" dataset ls --json
json '.datasets | length' 0
expect 0 "$leat" dataset create set@v1 "$mnt/data" --json
json .files 5
json .name set
id=$(jq -r .id <<<"$out")
json '.made | .uid == 0 and .user == "root"' true
json .made.host "$(uname -n)"
expect 1 "$leat" dataset create set@v1 "$mnt/data"
in_err "exists already"
expect 2 "$leat" dataset create 'no good name' "$mnt/data"
expect 9 "$leat" dataset create other@v1 "$mnt/none"
expect 9 "$leat" dataset create other@v1 leat:/none
expect 0 "$leat" dataset ls --json
json '.datasets[0].id' "$id"
# Time and owner are those of the file that is the name, for whichever user lists it.
name=$mnt/.leat/datasets/set@v1
json '.datasets[0].made.at' "$(date -u -r "$name" +%Y-%m-%dT%H:%M:%SZ)"
json '.datasets[0].made.host' "$(uname -n)"
expect 0 "$leat" dataset ls
in_out "$(date -r "$name" '+%Y-%m-%d %H:%M')  root@$(uname -n)"
chown 5017:5017 "$name"
expect 0 "$leat" dataset ls
in_out "  5017@$(uname -n)"
expect 0 "$leat" dataset show set@v1 --json
json '.made | .uid == 5017 and .user == "5017"' true
chown 0:0 "$name"
# A manifest of an older release does not have the host.
old=$(ls -d "$mnt/.leat/datasets/by-id/$id"/*)/manifest
cp "$old" "$tmp/manifest"
sed '1s/,"host":"[^"]*"//' "$tmp/manifest" >"$old"
expect 0 "$leat" dataset ls --json
json '.datasets[0].made | .host == null and .uid == 0' true
json '.datasets[0].damaged' false
expect 0 "$leat" dataset ls
in_out "  root  "
cat "$tmp/manifest" >"$old"
expect 0 "$leat" dataset show set@v1
in_out "set@v1"
expect 9 "$leat" dataset show none@v1

expect 9 "$leat" stage in none@v1 --to "$node"
expect 9 "$leat" stage status set@v1 --to "$node"
expect 2 "$leat" stage in set@v1
in_err "--to"
expect 8 "$leat" stage in set@v1 --to "$node" --capacity 1M
in_err "more needed"
expect 0 "$leat" stage in set@v1 --to "$node" --json
json .id "$id"
json '.bytes == .bytes_moved' true
path=$(jq -r .path <<<"$out")
diff -r "$mnt/data" "$path" || fail "the copy differs"
expect 0 "$leat" stage in set@v1 --to "$node" --json
json .bytes_moved 0
LEAT_STAGE_DIR=$node expect 0 "$leat" stage path set@v1
in_out "$path"
expect 0 "$leat" stage path "${id:0:8}" --to "$node" --json
json .path "$path"
expect 0 "$leat" stage status set@v1 --to "$node" --json
json .state READY
expect 0 "$leat" stage ls --to "$node" --json
json '.copies[0].id' "$id"
expect 0 "$leat" stage verify set@v1 --to "$node"

# verify finds a damaged copy, which is then not ready; only the damaged chunks are fetched again.
chmod u+w "$path/sub/file2"
printf X | dd of="$path/sub/file2" bs=1 seek=2000000 conv=notrunc 2>/dev/null
expect 7 "$leat" stage verify set@v1 --to "$node"
expect 3 "$leat" stage path set@v1 --to "$node"
expect 0 "$leat" stage in set@v1 --to "$node" --json
json '.bytes_moved > 0 and .bytes_moved < .bytes' true
diff -r "$mnt/data" "$path" || fail "the repaired copy differs"

# A data set by directory, of the namespace and of a local file system
mkdir "$tmp/plain" "$tmp/node2"
echo local >"$tmp/plain/file"
expect 0 "$leat" stage in "$tmp/plain" --to "$tmp/node2" --json
diff -r "$tmp/plain" "$(jq -r .path <<<"$out")" || fail "the copy of a local directory differs"
expect 0 "$leat" stage in leat:/data/sub --to "$tmp/node2" --verify readback
expect 0 "$leat" stage path "$mnt/data/sub" --to "$tmp/node2"
expect 0 "$leat" stage ls --to "$tmp/node2" --json
json '.copies | length' 2

# A path below a bind mount or a mount of a subdirectory means the directory that is mounted there,
# even if another directory has an equal name; other paths of the mount keep their names.
mkdir -p "$mnt/team/data" "$tmp/bound" "$tmp/team" "$tmp/by-address"
echo theirs >"$mnt/team/data/file"
mount --bind "$mnt/team" "$tmp/bound" || fail "mount --bind"
expect 0 "$leat" mount leat/team "$tmp/team"
expect 0 "$leat" mount "$(sed -n 's/^mds *= *//p' "$LEAT_CONF" | head -n 1)/team" "$tmp/by-address"
for at in bound team by-address; do
	expect 0 "$leat" dataset create "$at@v1" "$tmp/$at/data" --json
	json .files 1
	expect 0 "$leat" dataset rm "$at@v1"
	expect 0 "$leat" stage in "$tmp/$at/data" --to "$tmp/node2" --json
	diff -r "$mnt/team/data" "$(jq -r .path <<<"$out")" || fail "another directory was staged"
	expect 0 "$leat" stage out --replace "$tmp/plain" "$tmp/$at/data-out"
	diff -r "$tmp/plain" "$mnt/team/data-out" || fail "it went elsewhere"
	[ ! -e "$mnt/data-out" ] || fail "it went into the root"
	expect 0 "$leat" status --json "$tmp/$at"
done
expect 0 "$leat" dataset create here@v1 "$mnt/data" --json
json .files 5
expect 0 "$leat" dataset rm here@v1
umount "$tmp/bound" "$tmp/team" "$tmp/by-address"

# Interrupted, then resumed
mkdir "$mnt/large"
for i in 1 2 3; do head -c 100000000 /dev/urandom >"$mnt/large/$i"; done
"$leat" stage in "$mnt/large" --to "$node" >/dev/null 2>&1 &
pid=$!
begun() {
	"$leat" stage status "$mnt/large" --to "$node"
	[ $? != 9 ]
}
until_true begun
kill -INT $pid
wait $pid
rc=$?
[ $rc = 75 ] || [ $rc = 0 ] || fail "interrupted: exit status $rc"
expect 0 "$leat" stage in "$mnt/large" --to "$node"
path2=$("$leat" stage path "$mnt/large" --to "$node")
diff -r "$mnt/large" "$path2" || fail "the resumed copy differs"

expect 0 "$leat" stage evict set@v1 --to "$node"
[ ! -e "$path" ] || fail "evicted, but still there"
expect 9 "$leat" stage path set@v1 --to "$node"
expect 0 "$leat" dataset rm set@v1
expect 9 "$leat" dataset rm set@v1
[ -e "$mnt/data/small" ] || fail "rm removed the data"
finish
