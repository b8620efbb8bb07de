#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# leat agent: each of several nodes makes a copy and hands chunks on; the source is read about once.
# The others leave out a node that dies, sleeps or hands out wrong data.
. "$(dirname "$0")/cli.inc.sh"
here=${LEAT_DEV_HERE:-127.0.0.1}
need_cluster
pids=()
trap 'kill -CONT "${pids[@]}" 2>/dev/null; kill "${pids[@]}" 2>/dev/null
wait "${pids[@]}" 2>/dev/null
"$src/deploy/dev-cluster" down >/dev/null 2>&1' EXIT

# agent N [PARAM=VALUE...]: starts an agent with a port and a directory of its own
agent() {
	local n=$1 sets=() p
	shift
	for p in "$@"; do sets+=(--set "$p"); done
	rm -f "$tmp/ready$n"
	"$leat" agent --set "dirs=$tmp/node$n" --set "listen=$here:${ports[n - 1]}" \
		--set "node=node$n" --set report_ms=200 "${sets[@]}" \
		--ready-file "$tmp/ready$n" 2>>"$tmp/agent$n.log" &
	pids[n - 1]=$!
	until_true test -s "$tmp/ready$n"
}
read -ra ports < <(/usr/bin/python3 "$src/tests/lib/ports.py" 9)
nodes=$(printf "$here:%s," "${ports[@]:0:4}")

mkdir -p "$mnt/data/sub"
for i in 1 2 3; do head -c $((i * 9000000 + i)) /dev/urandom >"$mnt/data/sub/file$i"; done
for i in $(seq 40); do head -c $((i * 700)) /dev/urandom >"$mnt/data/small$i"; done
: >"$mnt/data/empty"
expect 0 "$leat" dataset create set@v1 "$mnt/data"
expect 3 "$leat" stage where set@v1
expect 11 "$leat" stage in set@v1 --agent "$here:${ports[4]}"
for n in 1 2 3 4; do agent $n "metrics=127.0.0.1:${ports[n + 4]}"; done

check() {
	local n path
	for n in "$@"; do
		path=$("$leat" stage path "${name:-set@v1}" --to "$tmp/node$n") ||
			fail "node $n is not ready"
		diff -r "${data:-$mnt/data}" "$path" || fail "the copy of node $n differs"
	done
}

# sum_of METRIC: the sum over the /metrics pages of the four agents
sum_of() {
	local n
	for n in 1 2 3 4; do
		/usr/bin/python3 -c 'import sys, urllib.request
print(urllib.request.urlopen("http://127.0.0.1:" + sys.argv[1] + "/metrics").read().decode())' \
			"${ports[n + 4]}" || fail "no page of agent $n"
	done | awk -v name="leat_agent_$1" '$1 == name { sum += $2 } END { printf "%d", sum }'
}
# as_given BYTES: the agents handed this many bytes to others, all over the transport under test,
# and copied almost none of them in memory (manifests are copied).
as_given() {
	local by=tcp other=verbs
	[ $(($(sum_of data_copied_bytes_total) * 50)) -lt "$1" ] || return 1
	case ${LEAT_DEV_TRANSPORT:-tcp} in
	verbs) by=verbs other=tcp ;;
	auto) return 0 ;; # the quicker transport is used first
	esac
	[ "$(sum_of net_${other}_bytes_out_total)" = 0 ] &&
		[ "$(sum_of net_${by}_bytes_out_total)" -ge "$1" ]
}

# Four nodes read the source about once.
expect 0 "$leat" stage in set@v1 --nodes "$nodes" --json
json .ready 4
json '.amplification <= 1.05' true
json '(.source + .peers) == 4 * .bytes' true
until_true as_given "$(jq .peers <<<"$out")"
# The agent reports its connections to every server, and the one of this request.
expect 0 "$leat" status --net --agent "$here:${ports[0]}" --json
json '[.agent.net.connections[] | select(.state == "up")] | length > 5' true
[ "${LEAT_DEV_TRANSPORT:-}" = auto ] ||
	json '[.agent.net.connections[].transport] | unique | join(" ")' \
		"${LEAT_DEV_TRANSPORT:-tcp}"
expect 0 "$leat" status --net --agent "$here:${ports[0]}"
in_out "agent: "
expect 1 "$leat" status --agent "$here:${ports[4]}" --timeout 1
check 1 2 3 4
all_ready() {
	"$leat" stage where set@v1 --json |
		jq -e '[.nodes[] | select(.state == "READY")] | length == 4'
}
until_true all_ready
expect 0 "$leat" stage where
in_out node3
# A repetition moves nothing.
expect 0 "$leat" stage in set@v1 --nodes "$nodes" --json
json '[.nodes[].bytes] | add' "$(jq '4 * .bytes' <<<"$out")"
json .source 0
json .peers 0
# A fifth node gets the whole data set from the others.
agent 5
expect 0 "$leat" stage in set@v1 --agent "$here:${ports[4]}" --json
json .source 0
check 5
kill "${pids[4]}"
wait "${pids[4]}"

# The others leave out a node whose copy is damaged, and fetch its chunks elsewhere.
for n in 1 2 3; do expect 0 "$leat" stage evict set@v1 --to "$tmp/node$n"; done
/usr/bin/python3 - "$tmp"/node4/.leat/*/data <<'END'
import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(folder, name)
        os.chmod(path, 0o644)
        with open(path, "r+b") as f:
            for at in range(1000, os.path.getsize(path), 64 << 10):
                f.seek(at)
                byte = f.read(1)[0]
                f.seek(at)
                f.write(bytes([byte ^ 1]))
END
expect 0 "$leat" stage in set@v1 --nodes "$nodes" --json
json '[.nodes[].dropped] | add > 0' true
check 1 2 3
expect 7 "$leat" stage verify set@v1 --to "$tmp/node4"
expect 0 "$leat" stage in set@v1 --agent "$here:${ports[3]}" --json
json .source 0
check 1 2 3 4

# One agent dies and one is stopped midway: the others complete, and the dead one's successor
# resumes.
some_of() {
    "$leat" stage status large@v1 --to "$tmp/node$1" --json 2>/dev/null |
        jq -e '.bytes_verified > 0' >/dev/null
}
name=large@v1 data=$mnt/large
mkdir "$mnt/large"
for i in 1 2 3 4; do head -c 30000000 /dev/urandom >"$mnt/large/$i"; done
expect 0 "$leat" dataset create large@v1 "$mnt/large"
"$leat" stage in large@v1 --nodes "$nodes" --max-rate 5M --json >"$tmp/out" 2>"$tmp/err2" &
cli=$!
until_true some_of 1
kill -9 "${pids[0]}"
kill -STOP "${pids[1]}"
until_true "$leat" stage path large@v1 --to "$tmp/node3"
until_true "$leat" stage path large@v1 --to "$tmp/node4"
check 3 4
kill -CONT "${pids[1]}"
wait $cli
rc=$?
[ $rc = 11 ] || fail "exit status $rc, not 11: $(cat "$tmp/err2")"
until_true "$leat" stage path large@v1 --to "$tmp/node2"
agent 1
expect 3 "$leat" stage status large@v1 --to "$tmp/node1" --json
json '.bytes_verified > 0 and .bytes_verified < .bytes' true
expect 0 "$leat" stage in large@v1 --nodes "$nodes" --json
json .ready 4
check 1 2 3 4

# The job of one agent fails immediately, because its capacity is too small. The command must not
# wait (10 s) for this job to begin. On a busy machine one try may be slow, but not every try.
name=set@v1 data=$mnt/data
expect 0 "$leat" stage evict set@v1 --to "$tmp/node4"
kill "${pids[3]}"
wait "${pids[3]}"
agent 4 capacity=1M
for try in 1 2 3 4; do
	for n in 1 2 3; do expect 0 "$leat" stage evict set@v1 --to "$tmp/node$n"; done
	begin=$SECONDS
	expect 8 "$leat" stage in set@v1 --nodes "$nodes" --json
	took=$((SECONDS - begin))
	[ "$took" -ge 9 ] || break
done
[ "$took" -lt 9 ] || fail "it took $took s, in each of $try tries"
json .error.message "3 of 4 nodes are ready: no capacity"
check 1 2 3

# One command releases the leases of a job on all nodes, even if one node does not answer.
held() { find "$tmp"/node*/.leat -path '*/leases/job7' | wc -l; }
for all in "$nodes" "$nodes$here:${ports[4]}"; do
	for n in 1 3; do expect 0 "$leat" stage lease set@v1 --lease job7 --to "$tmp/node$n"; done
	[ "$(held)" = 2 ] || fail "$(held) leases, not 2"
	code=0
	[ "$all" = "$nodes" ] || code=11
	expect $code "$leat" stage release --lease job7 --nodes "$all"
	[ "$(held)" = 0 ] || fail "$(held) leases are left"
done
in_err "not released on all nodes"
expect 9 "$leat" stage release --lease job7 --nodes "$nodes"
in_err "no lease"

# An unknown data set, an argument that an agent refuses, and a command without agents.
expect 9 "$leat" stage in none@v1 --agent "$here:${ports[0]}"
in_err "no such data set"
expect 2 "$leat" stage in set@v1 --agent "$here:${ports[0]}" --to /elsewhere
for p in "${pids[@]:0:4}"; do kill "$p"; done
for p in "${pids[@]:0:4}"; do wait "$p" || fail "an agent ended with $?"; done
until_true sh -c "'$leat' stage where set@v1; [ \$? = 3 ]"
finish
