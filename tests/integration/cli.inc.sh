#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Functions that the tests of the command line share. Sourced: . "$(dirname "$0")/cli.inc.sh"
# expect STATUS COMMAND...: runs the command, sets $out and $err; another exit status fails the test
set -u
src=${LEAT_SRC:-$(realpath "$(dirname "$0")/../..")}
bin=${BUILD:-$src/build}
tmp=${TMPDIR:-$(mktemp -d)}
leat=$bin/leat
n_checks=0
unset LEAT_CONF

fail() {
	echo "FAILED: $*"
	echo "--- stdout: ${out:-}"
	echo "--- stderr: ${err:-}"
	exit 1
}

expect() {
	local want=$1 got
	shift
	out=$("$@" 2>"$tmp/err" </dev/null)
	got=$?
	err=$(cat "$tmp/err")
	[ "$got" = "$want" ] || fail "exit status $got, not $want: $*"
	n_checks=$((n_checks + 1))
}

# in_out TEXT, in_err TEXT: the output of the latest expect contains the text
in_out() { case $out in *"$1"*) ;; *) fail "not on stdout: $1" ;; esac; }
in_err() { case $err in *"$1"*) ;; *) fail "not on stderr: $1" ;; esac; }
# json FILTER VALUE: jq with this filter makes this value of stdout
json() {
	local got
	got=$(jq -r "$1" <<<"$out") || fail "no JSON"
	[ "$got" = "$2" ] || fail "$1 is '$got', not '$2'"
}

# until_true COMMAND...: repeats the command until it succeeds
until_true() {
	local tries=1200
	until "$@" >/dev/null 2>&1; do
		[ $((tries--)) -gt 0 ] || fail "does not come true: $*"
		sleep 0.1
	done
}

need_cluster() {
	[ "$(id -u)" = 0 ] || { echo "not root"; exit 77; }
	[ -c /dev/fuse ] || { echo "no /dev/fuse"; exit 77; }
	export LEAT_DEV=$tmp/dev LEAT_DEV_SIZE=${LEAT_DEV_SIZE:-512M} BUILD=$bin
	trap '"$src/deploy/dev-cluster" down >/dev/null 2>&1' EXIT
	"$src/deploy/dev-cluster" up >/dev/null || fail "dev-cluster up"
	mnt=$("$src/deploy/dev-cluster" mountpoint)
	export LEAT_CONF=$LEAT_DEV/conf
}

finish() { echo "$n_checks commands as expected"; }
