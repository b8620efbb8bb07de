#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# leat stage and leat dataset: sealing, leases, pins, eviction, cancelling, several directories, a
# plan, waiting, staging out, damage and disks that become full.
. "$(dirname "$0")/cli.inc.sh"
need_cluster
node=$tmp/node
mkdir "$node" "$mnt/data" "$mnt/data/sub"
for i in 1 2 3 4; do head -c $((i * 3000000 + i)) /dev/urandom >"$mnt/data/sub/file$i"; done
echo small >"$mnt/data/small"
: >"$mnt/data/empty"
expect 0 "$leat" dataset create set@v1 "$mnt/data"

# No program can change a sealed file; the data set stays valid.
exec 9>>"$mnt/data/small"
expect 1 "$leat" dataset seal set@v1
in_err "open for writing"
exec 9>&-
nothing_open() { "$leat" status --timeout 120 --json | jq -e '.mds.opens == 0'; }
until_true nothing_open
expect 0 "$leat" dataset seal set@v1 --json
json .files 6
expect 0 "$leat" dataset seal set@v1
expect 0 "$leat" dataset show set@v1 --json
json .sealed true
(echo x >>"$mnt/data/small") 2>/dev/null && fail "a sealed file was written"
truncate -s 1 "$mnt/data/sub/file1" 2>/dev/null && fail "a sealed file was cut"
chmod 600 "$mnt/data/small" 2>/dev/null && fail "a sealed file was changed"
ln "$mnt/data/small" "$mnt/data/again" 2>/dev/null && fail "a sealed file got another name"
expect 0 cat "$mnt/data/small"
in_out small
expect 9 "$leat" dataset seal none@v1
mkdir "$mnt/moving"
echo one >"$mnt/moving/file"
expect 0 "$leat" dataset create moving@v1 "$mnt/moving"
echo two >"$mnt/moving/file"
expect 9 "$leat" dataset seal moving@v1
in_err "changed"
echo three >"$mnt/moving/file" || fail "what is no data set any more was sealed"

# A plan changes nothing
expect 0 "$leat" stage plan set@v1 --to "$node" --json
json '.needed == .bytes' true
[ ! -e "$node/.leat" ] || fail "a plan has made something"
expect 8 "$leat" stage plan set@v1 --to "$node" --capacity 1M

# Leases, pins, eviction
expect 0 "$leat" stage in set@v1 --to "$node" --lease job.7 --json
path=$(jq -r .path <<<"$out")
diff -r "$mnt/data" "$path" || fail "the copy differs"
expect 0 "$leat" stage status set@v1 --to "$node" --json
json .leased true
expect 1 "$leat" stage evict set@v1 --to "$node"
in_err "in use"
expect 9 "$leat" stage release set@v1 --lease other --to "$node"
expect 0 "$leat" stage release --lease job.7 --to "$node"
expect 0 "$leat" stage pin set@v1 --to "$node"
expect 1 "$leat" stage evict set@v1 --to "$node"
expect 0 "$leat" stage gc --to "$node" --capacity 1 --json
json '.copies | length' 0
expect 0 "$leat" stage unpin set@v1 --to "$node"
expect 0 "$leat" stage lease set@v1 --lease held --ttl 600 --to "$node"
expect 1 "$leat" stage evict set@v1 --to "$node"
expect 0 "$leat" stage release --lease held --to "$node"
expect 0 "$leat" stage lease set@v1 --lease short --ttl 1 --to "$node"
sleep 2.1
expect 0 "$leat" stage gc --to "$node" --capacity 1 --dry-run --json
json '.copies | length' 1
expect 0 "$leat" stage status set@v1 --to "$node"
# gc cannot free more than the size of the disk.
expect 8 "$leat" stage gc --to "$node" --free 1E --dry-run
in_err "less than --free would be free"
expect 0 "$leat" stage gc --to "$node" --free 1 --dry-run --json
json .missing 0
# A copy without a source is evicted last; here it stays.
mkdir "$tmp/last"
echo last >"$tmp/last/file"
expect 0 "$leat" stage in "$tmp/last" --to "$node"
rm "$tmp/last/file"
expect 0 "$leat" stage gc --to "$node" --capacity 1 --json
json '.copies | length' 1
expect 9 "$leat" stage status set@v1 --to "$node"
expect 0 "$leat" stage status "$tmp/last" --to "$node"
expect 8 "$leat" stage gc --to "$node" --free 1E --json
json '.copies | length' 0
expect 0 "$leat" stage events --to "$node"
in_out '"event":"GONE"'
# A file of another kind with that name is neither read nor waited for.
mv "$node/.leat/events" "$tmp/events"
expect 0 "$leat" stage events --to "$node"
ln -s "$tmp/events" "$node/.leat/events"
expect 10 timeout 300 "$leat" stage events --to "$node"
rm "$node/.leat/events"
mkfifo "$node/.leat/events"
expect 10 timeout 300 "$leat" stage events --to "$node"
in_err "not believed"
rm "$node/.leat/events"
mv "$tmp/events" "$node/.leat/events"

# Staging in the background, cancelled and resumed
mkdir "$mnt/large"
for i in 1 2 3; do head -c 40000000 /dev/urandom >"$mnt/large/$i"; done
expect 0 "$leat" dataset create large@v1 "$mnt/large"
expect 0 "$leat" stage in large@v1 --to "$node" --detach --max-rate 20M
in_out RESERVED
expect 3 "$leat" stage status large@v1 --to "$node"
expect 4 "$leat" stage wait large@v1 --to "$node" --timeout 1
expect 0 "$leat" stage cancel large@v1 --to "$node"
expect 12 "$leat" stage wait large@v1 --to "$node" --timeout 300
expect 3 "$leat" stage status large@v1 --to "$node" --json
json .state CANCELLED
expect 9 "$leat" stage cancel large@v1 --to "$node"
expect 4 "$leat" stage in large@v1 --to "$node" --timeout 1 --max-rate 20M
expect 0 "$leat" stage in large@v1 --to "$node" --json
json '.bytes_moved > 0 and .bytes_moved < .bytes' true
expect 0 "$leat" stage evict large@v1 --to "$node"

# In the order of a loader, the first window is complete early.
expect 2 "$leat" stage in large@v1 --to "$node" --order batch=3,world=2
expect 0 "$leat" stage in large@v1 --to "$node" --order seed=7,batch=1,world=1,mode=global \
	--window 8M --wait first-window --max-rate 30M
in_out STREAMABLE
expect 3 "$leat" stage path large@v1 --to "$node"
expect 0 "$leat" stage wait large@v1 --to "$node" --timeout 300
diff -r "$mnt/large" "$("$leat" stage path large@v1 --to "$node")" || fail "the copy differs"

# The source is replaced midway: the failure says so, and no copy with wrong data becomes READY.
expect 0 "$leat" stage evict large@v1 --to "$node"
head -c 40000000 /dev/urandom >"$mnt/large/3.new"
"$leat" stage in large@v1 --to "$node" --max-rate 20M >/dev/null 2>"$tmp/err3" &
pid=$!
sleep 1
mv "$mnt/large/3.new" "$mnt/large/3"
wait $pid
rc=$?
[ $rc = 9 ] || fail "replaced: exit status $rc, not 9: $(cat "$tmp/err3")"
grep -q changed "$tmp/err3" || fail "not told that it changed: $(cat "$tmp/err3")"
expect 3 "$leat" stage status large@v1 --to "$node" --json
json .state FAILED
json .failure.code 9
json .failure.path 3
expect 9 "$leat" stage wait large@v1 --to "$node"
expect 0 "$leat" stage verify "$tmp/last" --to "$node"
expect 0 "$leat" stage evict large@v1 --to "$node"
expect 0 "$leat" dataset rm large@v1
expect 0 "$leat" dataset create large@v1 "$mnt/large"

# Several directories; a disk that becomes full
mkdir "$tmp/a" "$tmp/b"
mount -t tmpfs -o size=100m leat-a "$tmp/a" || fail "tmpfs"
mount -t tmpfs -o size=200m leat-b "$tmp/b" || fail "tmpfs"
trap 'umount "$tmp/a" "$tmp/b"; "$src/deploy/dev-cluster" down >/dev/null 2>&1' EXIT
expect 8 "$leat" stage in large@v1 --to "$tmp/a"
in_err "more needed"
expect 0 "$leat" stage in large@v1 --to "$tmp/a" --to "$tmp/b" --json
diff -r "$mnt/large" "$(jq -r .path <<<"$out")" || fail "the copy in two directories differs"
[ "$(find "$tmp/b/.leat" -type f -size +1M | wc -l)" -ge 1 ] || fail "all in one directory"
expect 0 "$leat" stage verify large@v1 --to "$tmp/a"
expect 0 "$leat" stage in large@v1 --to "$tmp/a" --to "$tmp/b" --json
json .bytes_moved 0
expect 0 "$leat" stage evict large@v1 --to "$tmp/a"
[ -z "$(find "$tmp/a/.leat" "$tmp/b/.leat" -name data)" ] || fail "evicted in one directory only"
expect 0 "$leat" stage in set@v1 --to "$tmp/a" --json
head -c 50000000 /dev/zero >"$tmp/a/other"
expect 8 "$leat" stage in large@v1 --to "$tmp/a"
expect 0 "$leat" stage verify set@v1 --to "$tmp/a"
rm "$tmp/a/other"

# Capacity over several directories: copies in each count; copies in the full one are evicted.
mkdir "$tmp/m1" "$tmp/m2"
head -c 60000000 /dev/urandom >"$tmp/m1/x"
head -c 120000000 /dev/urandom >"$tmp/m2/x"
expect 0 "$leat" stage evict set@v1 --to "$tmp/a"
expect 0 "$leat" stage in "$tmp/m2" --to "$tmp/b"
expect 0 "$leat" stage in "$tmp/m1" --to "$tmp/a"
expect 8 "$leat" stage in large@v1 --to "$tmp/a" --to "$tmp/b"
expect 0 "$leat" stage gc --to "$tmp/a" --to "$tmp/b" --capacity 1 --dry-run --json
json '[.copies[].source] | contains(["'"$tmp"'/m1", "'"$tmp"'/m2"])' true
expect 0 "$leat" stage in large@v1 --to "$tmp/a" --to "$tmp/b" --evict
expect 0 "$leat" stage verify large@v1 --to "$tmp/a"
expect 0 "$leat" stage ls --to "$tmp/b" --json
json '[.copies[] | select(.name == "large")] | length' 0
expect 0 "$leat" stage gc --to "$tmp/a" --to "$tmp/b" --capacity 1 --json
[ -z "$(find "$tmp/a/.leat" "$tmp/b/.leat" -name data)" ] || fail "gc has left something"

# Archives are unpacked to folders: by name, from the servers, to two directories.
mkdir "$mnt/arch" "$mnt/arch/sub"
for i in 1 3; do tar cf "$mnt/arch/sub/s$i.tar" -C "$mnt/data" sub/file$i small empty; done
tar czf "$mnt/arch/sub/s2.tar.gz" -C "$mnt/data" sub/file2 small empty
echo plain >"$mnt/arch/plain"
expect 0 "$leat" dataset create arch@v1 "$mnt/arch"
expect 8 "$leat" stage in arch@v1 --unpack --to "$tmp/a" --capacity 30M
expect 0 "$leat" stage in arch@v1 --unpack --to "$tmp/a" --to "$tmp/b" --json
path=$(jq -r .path <<<"$out")
for i in 1 2 3; do
	cmp "$mnt/data/sub/file$i" "$path/sub/s$i/sub/file$i" || fail "unpacked: file$i"
	cmp "$mnt/data/small" "$path/sub/s$i/small" || fail "unpacked: small"
done
cmp "$mnt/arch/plain" "$path/plain" || fail "unpacked: plain"
expect 0 "$leat" stage path arch@v1.unpacked --to "$tmp/a"
in_out "$path"
expect 9 "$leat" stage path arch@v1 --to "$tmp/a"
expect 0 "$leat" stage in arch@v1 --unpack --to "$tmp/a" --to "$tmp/b" --json
json .bytes_moved 0
expect 0 "$leat" stage verify arch@v1.unpacked --to "$tmp/a"
expect 0 "$leat" stage gc --to "$tmp/a" --capacity 1 --json
json '.copies | length' 1

# Staging out is all or nothing.
mkdir -p "$tmp/run/logs"
head -c 5000001 /dev/urandom >"$tmp/run/weights"
echo done >"$tmp/run/logs/end"
expect 0 "$leat" stage out "$tmp/run" "$mnt/results" --json
json .files 2
diff -r "$tmp/run" "$mnt/results" || fail "what was staged out differs"
expect 1 "$leat" stage out "$tmp/run" "$mnt/results"
in_err "exists already"
echo more >"$tmp/run/logs/end"
rm "$tmp/run/weights"
expect 0 "$leat" stage out "$tmp/run" "$mnt/results" --replace
sleep 1.1
diff -r "$tmp/run" "$mnt/results" || fail "what was replaced differs"
[ -z "$(find "$mnt" -maxdepth 1 -name '.leat-out*')" ] || fail "something was left behind"
expect 0 "$leat" stage out "$tmp/run" "leat:/deep/er"
diff -r "$tmp/run" "$mnt/deep/er" || fail "what was staged out differs"

# Under a scheduler a failure is logged, and the node is not taken out of service.
expect 0 "$leat" stage in none@v1 --to "$node" --scheduler slurm-prolog
in_err "no such data set"
finish
