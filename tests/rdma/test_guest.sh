#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The test bed itself: exit statuses, the command's environment, its files, leftovers.
# timeout: 600
set -u
here=$(dirname "$(realpath "$0")")
tmp=${TMPDIR:-$(mktemp -d)}
LEAT_MARK="two words 'and' \$more-$$"
export LEAT_MARK

# Seconds and tries that only a hang uses up, however busy the machine is.
plenty=900
tries_max=3000

# With the output of the guest and its kernel.
fail() {
    echo "FAILED: $*"
    cat "$tmp/err"
    [ ! -e "$tmp/kernel.log" ] || tail -n 40 "$tmp/kernel.log"
    exit 1
}

# expect STATUS TEXT ARGUMENT...: runs the guest; TEXT is its whole output
expect() {
    local status=$1 text=$2 out got
    shift 2
    out=$("$here/guest" --timeout $plenty --log "$tmp/kernel.log" "$@" 2>"$tmp/err")
    got=$?
    if [ $got = 77 ]; then cat "$tmp/err"; exit 77; fi
    [ $got = "$status" ] || fail "ended with $got, not $status: $* ($out)"
    [ "$out" = "$text" ] || fail "said '$out', not '$text': $*"
    rm -f "$tmp/kernel.log"
}

# Processes with this test's mark, except the script and its commands.
left_behind() {
    local file line
    grep -lzxF "LEAT_MARK=$LEAT_MARK" /proc/[0-9]*/environ 2>/dev/null | while read -r file; do
        line=$(tr '\0' ' ' 2>/dev/null <"${file%environ}cmdline")
        case $line in
        '' | *test_guest.sh* | 'grep -lzxF'*) ;;
        *) echo "$file: $line" ;;
        esac
    done 2>/dev/null
}

nothing_left() {
    local tries=$tries_max
    while [ -n "$(left_behind)" ]; do
        [ $((tries--)) -gt 0 ] || fail "left behind $1: $(left_behind)"
        sleep 0.1
    done
}

# Descriptors of the caller are not held open by the guest.
exec 8>"$tmp/held"
mkdir "$tmp/shared"
expect 7 "$LEAT_MARK $PWD rxe-eth1" --share "$tmp/shared" --rdma rxe -- '
    echo "$LEAT_MARK $PWD $RDMA_DEV"
    exec 2>&1
    rdma link show "$RDMA_DEV/1" | grep -q "state ACTIVE" || echo "no device"
    ip addr show to "$RDMA_IP" | grep -q eth1 || echo "no address"
    [ -c /dev/fuse ] && [ -c /dev/infiniband/rdma_cm ] || echo "no /dev/fuse, no rdma_cm"
    [ "$(ulimit -l)" = unlimited ] || echo "locked memory is limited"
    touch "$TMPDIR/x" /etc/leat-guest-test || echo "cannot write"
    echo kept >'"'$tmp/shared/kept'"'
    exit 7'
[ ! -e /etc/leat-guest-test ] || fail "a write reached the host"
[ "$(cat "$tmp/shared/kept")" = kept ] || fail "what was written to a shared folder is lost"
nothing_left "after the end"
if grep -q 'emulated guest' "$tmp/err"; then exit 0; fi

expect 0 'siw-eth1 a b;c' --rdma siw -- bash -c 'echo $RDMA_DEV "$@"' x a 'b;c'
began=$SECONDS
expect 137 '' -- 'kill -9 $$'
took=$((SECONDS - began)) # to begin and to end
# Root may lock any amount unless the capability is dropped too.
expect 0 '64 no' --memlock 64 -- 'capable=yes
    (($((0x$(sed -n "s/^CapEff:\s*//p" /proc/self/status))) >> 14 & 1)) || capable=no
    echo "$(ulimit -l) $capable"'
# Two hosts reach each other, and only over the link between them.
expect 0 'hello from 10.9.0.2' --hosts 2 -- '
    $RDMA_PEER python3 -c "
import socket
s = socket.create_server((\"$RDMA_PEER_IP\", 5000))
c, who = s.accept()
c.send(b\"hello from $RDMA_PEER_IP\")" &
    for i in $(seq '$tries_max'); do
        exec 3<>/dev/tcp/$RDMA_PEER_IP/5000 && break
        sleep 0.1
    done 2>/dev/null
    cat <&3; echo
    $RDMA_PEER rdma link | grep -q "rxe-eth2/1 state ACTIVE" || echo "no device there"
    (exec 3<>/dev/tcp/127.0.0.1/5000) 2>/dev/null && echo "not apart"
    exit 0'

expect 124 'begun' --timeout $((5 + 5 * took)) -- 'echo begun; sleep 1000'
nothing_left "after the time was up"
expect 125 '' -- 'python3 -c "import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)"; sleep 100'
grep -q 'died' "$tmp/err" || fail "does not say that the guest died"

# Several concurrently, each ended in another way.
for how in TERM KILL; do
    "$here/guest" --timeout $plenty -- 'echo up; sleep 1000' >"$tmp/out-$how" 2>"$tmp/err" &
    eval "pid_$how=$!"
done
for how in TERM KILL; do
    tries=$tries_max
    until grep -q up "$tmp/out-$how"; do
        [ $((tries--)) -gt 0 ] || fail "no second guest"
        sleep 0.1
    done
done
# shellcheck disable=SC2154
kill -TERM "$pid_TERM"
# shellcheck disable=SC2154
kill -KILL "$pid_KILL"
wait
nothing_left "after signals"
echo "the test bed works"
