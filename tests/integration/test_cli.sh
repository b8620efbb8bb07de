#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command line without a cluster: help, JSON, exit statuses, messages with object and place.
. "$(dirname "$0")/cli.inc.sh"

expect 2 "$leat"
in_err "usage: leat"
expect 0 "$leat" --help
# All that it lists; the last two are words of the program itself
commands=$(sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' <<<"$out")
case $commands in mount$'\n'*$'\n'export$'\n'help$'\n'version) ;; *) fail "no commands" ;; esac
commands=${commands%$'\n'help$'\n'version}
expect 0 "$leat" --version
in_out "leat 0."

for c in $commands; do
	expect 0 "$leat" "$c" --help
	in_out "usage: leat $c"
	in_out "Example"
	[ -z "$err" ] || fail "help belongs on stdout"
	usage=2
	[ "$c" = fsck ] && usage=16
	expect $usage "$leat" "$c" --no-such-option
	in_err "leat $c:"
	in_err "--help"
	expect $usage "$leat" --json "$c" --no-such-option
	json .error.exit $usage
	grep -q "^.It Cm $c" "$src/tools/leat.1" || fail "$c is not in leat.1"
done
expect 2 "$leat" frobnicate
in_err "unknown command 'frobnicate'"

# Help by word and for a verb alone, and suggestions for a mistyped word
expect 0 "$leat" help
in_out "usage: leat"
expect 0 "$leat" version
case $out in "leat 0."*) ;; *) fail "version: $out" ;; esac
was=$out
for p in leat-mds leat-ossd mount.leat; do
	expect 0 "${leat%/*}/$p" --version
	case "${out%%,*}" in "$p ${was#leat }") ;; *) fail "$p is '$out', leat is '$was'" ;; esac
done
for c in "help stage gc" "stage gc --help"; do
	expect 0 "$leat" $c
	in_out "free space (--free"
	case $out in *--order* | *"read and verify all of it"*) fail "more than of gc: $c" ;; esac
done
meant() { # WHAT ARGUMENTS...: the message suggests WHAT
	local what=$1
	shift
	expect 2 "$leat" "$@"
	in_err "did you mean $what?"
}
meant "'status'" statsu
meant "'status'" help statsu
meant "'ls'" stage lss
meant "'drain'" target drian 3
meant "--check" status --chekc
meant "--to" stage in a@v1 --too /x
expect 2 "$leat" help frobnicate
expect 2 "$leat" status --conf
in_err "--conf needs a file name"

# Control characters in a name do not reach the terminal.
evil=$'/none\033[31m\rx\xe4'
for c in "cp $evil /tmp/x" "rm $evil" "du $evil" "status --conf $evil" "layout get $evil" \
	"quota show $evil" "stage out $evil /mnt/x" "dataset create a@v1 $evil" "umount $evil"; do
	out=$("$leat" $c 2>&1 >/dev/null </dev/null)
	case $out in *$'\033'* | *$'\r'* | *$'\xe4'*) fail "raw on the terminal: $c" ;; esac
	err=$out
	in_err 'x1b[31m'
done

# Every program refuses a wrong configuration, with file and line.
expect 0 "$leat" config sample
printf '%s\n' "$out" >"$tmp/sample"
expect 0 "$leat" config check --no-key "$tmp/sample"
sed 's/^#\([a-z]\)/\1/' "$tmp/sample" >"$tmp/defaults"
expect 0 "$leat" config check --no-key "$tmp/defaults"
expect 0 "$leat" --conf "$tmp/defaults" config show
in_out "[ossd]"

bad() { # LINE TEXT CONFIG: the message names the line and has the text
	printf "$3" >"$tmp/bad.conf"
	expect 2 "$leat" config check --no-key "$tmp/bad.conf"
	in_err "$tmp/bad.conf:$1: $2"
}
bad 2 "unknown parameter 'colour' in [mds]" '[mds]\ncolour = red\n'
bad 3 "unknown section [mdss]" '# x\n\n[mdss]\nname = x\n'
bad 2 "session_ttl_ms: 1 is not within" '[mds]\nsession_ttl_ms = 1\n'
bad 3 "sync: 'maybe' is not yes or no" '[ossd]\n\nsync = maybe\n'
bad 1 "'name' stands in no section" 'name = x\n'
bad 2 "spin_us: 'fast' is not a number" '[client]\nspin_us = fast\n'
bad 2 "unknown parameter 'x' in [mount]" '[mount]\nx = 1\n'

printf '[cluster]\nname = a\nbogus = 1\n' >"$tmp/bad.conf"
for c in status df; do
	expect 2 "$leat" --conf "$tmp/bad.conf" "$c"
	in_err "$tmp/bad.conf:3:"
done
mkdir "$tmp/mnt"
if [ "$(id -u)" = 0 ] && [ -c /dev/fuse ]; then
	expect 2 "$leat" --conf "$tmp/bad.conf" mount "$tmp/mnt"
	in_err "$tmp/bad.conf:3:"
fi
expect 1 "$bin/mount.leat" leat "$tmp/mnt" -o "conf=$tmp/bad.conf"
in_err "$tmp/bad.conf:3:"
for server in leat-mds leat-ossd; do
	out=$("$bin/$server" -c "$tmp/bad.conf" run 2>&1 </dev/null) && fail "$server accepted it"
	in_out "$tmp/bad.conf:3:"
done

# Without a cluster the message says what failed, where, and what to do next.
(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$tmp/key")
printf '[cluster]\nkey_file = %s\nmds = 127.0.0.1:1\n' "$tmp/key" >"$tmp/conf"
export LEAT_CONF=$tmp/conf
expect 11 "$leat" status --timeout 1
in_err "127.0.0.1:1"
expect 11 "$leat" status --timeout 1 --json
json .error.exit 11
printf '[cluster]\nkey_file = %s\n' "$tmp/none" >"$tmp/conf"
expect 9 "$leat" status
in_err "$tmp/none"

expect 9 "$leat" layout get "$tmp"
in_err "not on a Leat mount"
expect 9 "$leat" layout get "$tmp/none"
expect 2 "$leat" layout set "$tmp"
expect 2 "$leat" layout set --chunk-size 100K "$tmp"
in_err "power of two"
expect 2 "$leat" layout set --width zero "$tmp"
expect 9 "$leat" df "$tmp"
expect 9 "$leat" umount "$tmp/mnt"
expect 9 "$leat" mount "$tmp/none"
in_err "mkdir"
touch "$tmp/file"
expect 9 "$leat" mount "$tmp/file"
in_err "not a directory"
expect 9 "$leat" status "$tmp"

# bench works in any directory, and leaves no file behind, even if interrupted.
mkdir "$tmp/b"
expect 0 "$leat" bench --json --size 4M --files 20 --jobs 2 --seconds 1 "$tmp/b"
json '.figures | length' 8
[ -z "$(ls "$tmp/b")" ] || fail "bench left something behind"
"$leat" bench --size 4M --jobs 1 --seconds 60 "$tmp/b" >/dev/null 2>&1 &
pid=$!
at_work() { [ -n "$(ls "$tmp/b")" ]; }
until_true at_work
kill -INT $pid
# A background process of a script starts with SIGINT ignored; leat handles the signal nevertheless.
wait $pid
[ $? = 75 ] || fail "an interrupted bench exits with 75"
[ -z "$(ls "$tmp/b")" ] || fail "an interrupted bench left something behind"

finish
