#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the hooks of Slurm and Grid Engine share; they read it with `.`, and have a fail() each.
# Each of them starts itself anew without its environment, which may be a job's: the few words that
# it takes from there become its first arguments, and are data from then on.
set -uf
umask 022
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C

one='[A-Za-z0-9][A-Za-z0-9._-]{0,127}'

# The configuration is run by this shell, mostly as root: what others could have written is refused.
# A file that is not there is none only where nobody has named it (FILE DEFAULT).
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

# Nodes become words of ON_NODE, which a shell splits: what is no name could be an option of ssh.
is_node() { [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$ ]]; }

# What somebody else has written, for a message: short, and in letters that do nothing.
quoted() { printf "'%s'" "$(printf '%s' "${1:0:80}" | tr -c '[:print:]' '?')"; }

# Of what a command wrote, the line that says what is wrong: leat's own, else the last one.
complaint() {
    { grep -a -m1 '^leat[a-z ]*: ' "$1" || sed -n '/[^[:space:]]/h;${x;p}' "$1"; } 2>/dev/null |
        sed 's/^leat[a-z ]*: *//' | tr -c '[:print:]\n' '?' | cut -c1-300
}
