#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A build without rdma-core, as `make` makes it where that is not installed: passes its tests over
# TCP, links nothing of RDMA, and prints what it lacks. Runs on the host; needs no guest.
# timeout: 900
set -eu
src=${LEAT_SRC:-$(realpath "$(dirname "$0")/../..")}
root=${BUILD_ROOT:-$src/build}
build=${root}-tcp
tmp=${TMPDIR:-$(mktemp -d)}
jobs=$(nproc)
cd "$src"
env -u MAKEFLAGS -u MAKELEVEL make -j"$jobs" BUILD="$build" BUILD_ROOT="$root" VERBS=no \
	programs unit-bin >"$tmp/make.log" 2>&1 || { tail -n 20 "$tmp/make.log"; exit 1; }

for program in leat-mds leat-ossd mount.leat leat libleat.so; do
	if ldd "$build/$program" | grep -E 'ibverbs|rdmacm'; then
		echo "FAILED: $program is linked to rdma-core"
		exit 1
	fi
done
for t in "$build"/tests/unit_common_rpc_*; do
	echo "--- ${t##*/}"
	"$t" >"$tmp/log" 2>&1 || { [ $? = 77 ] && continue; cat "$tmp/log"; exit 1; }
done

export BUILD=$build PATH=$build:$PATH
(umask 077 && printf '%064d' 1 >"$tmp/key")
cat >"$tmp/conf" <<END
[cluster]
key_file = $tmp/key
mds = 127.0.0.1:1
transport = verbs
END
if said=$("$build/leat" --conf "$tmp/conf" status 2>&1); then
	echo "FAILED: verbs was not refused"
	exit 1
fi
case $said in
*"built without rdma-core"*"install"*) ;;
*) echo "FAILED: does not say why there is no verbs, and what to do: $said"; exit 1 ;;
esac

[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || { echo "mounting needs root and /dev/fuse"; exit 77; }
export LEAT_DEV=$tmp/dev LEAT_DEV_SIZE=512M
trap 'deploy/dev-cluster down >/dev/null 2>&1' EXIT
deploy/dev-cluster up
dd if=/dev/urandom of="$tmp/data" bs=1M count=16 status=none
cp "$tmp/data" "$(deploy/dev-cluster mountpoint)/data"
deploy/dev-cluster cold
cmp "$tmp/data" "$(deploy/dev-cluster mountpoint)/data"
said=$("$build/leat" --conf "$LEAT_DEV/conf" status "$(deploy/dev-cluster mountpoint)")
case $said in
*"not verbs: this program was built without rdma-core"*) ;;
*) echo "FAILED: leat status says: $said"; exit 1 ;;
esac
echo "works without rdma-core"
