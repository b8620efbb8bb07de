#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Common code of the hooks of Slurm and Grid Engine; they read it with `.`, and have a fail() each.
# Each hook starts itself anew without its environment, which may be a job's: the few words that it
# takes from there become its first arguments, and are only data from then on.
set -uf
umask 022
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C

one='[A-Za-z0-9][A-Za-z0-9._-]{0,127}'

# The configuration is run by this shell, mostly as root: a file that other users could have written
# is refused. A missing file is accepted only if no caller has named it (FILE DEFAULT).
take_conf() {
    local conf=${1:-$2} owner mode
    [ -n "$1" ] || [ -e "$2" ] || return 0
    { exec 3<"$conf"; } 2>/dev/null || fail "configuration $conf: cannot be read; is it there?"
    read -r owner mode < <(stat -L -c '%u %a' /proc/self/fd/3)
    [[ $owner == 0 || $owner == "$EUID" ]] && (( (8#$mode & 8#022) == 0 )) ||
        fail "configuration $conf: owner $owner, mode $mode; it has to be root's, and only root" \
            "may write it: chown root and chmod 644 it"
    # shellcheck disable=SC1090
    . /proc/self/fd/3
    exec 3<&-
}

# %n: the node
for_node() { printf '%s' "${1//%n/$2}"; }

# Nodes become words of ON_NODE, which a shell splits: an invalid name could be an option of ssh.
is_node() { [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$ ]]; }

# Text of another user, for a message: short, and with printable characters only.
quoted() { printf "'%s'" "$(printf '%s' "${1:0:80}" | tr -c '[:print:]' '?')"; }

# Of a command's output, the line that says what is wrong: leat's own, else the last one.
complaint() {
    { grep -a -m1 '^leat[a-z ]*: ' "$1" || sed -n '/[^[:space:]]/h;${x;p}' "$1"; } 2>/dev/null |
        sed 's/^leat[a-z ]*: *//' | tr -c '[:print:]\n' '?' | cut -c1-300
}
