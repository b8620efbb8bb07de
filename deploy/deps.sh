#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building, testing and demonstrating Leat needs, and nothing that is already
# installed.
#
#   deps.sh [build | check | demo | all | fuse]
#
#   build   what compiling needs (the default)
#   check   build, and what the tests need
#   demo    build, and what `make demo` needs (datasets, PyTorch)
#   all     everything
#   fuse    only the libfuse described below, which `make` requests by itself
#
# Debian and its derivatives: packages by apt-get, as root. Elsewhere it prints what to install,
# exits with 1. Where the distribution's libfuse is older than 3.17 (no passthrough), a current one
# is built from Debian's source package into $BUILD_ROOT/deps/libfuse, as a static library that only
# the Makefile uses; nothing else on the system changes. If that fails, the distribution's is used,
# and make prints what is lacking then. Quick when there is nothing to do.
set -u

self=$(readlink -f "$0")
root=${self%/deploy/*}
build_root=${BUILD_ROOT:-build}
case $build_root in /*) ;; *) build_root=$root/$build_root ;; esac
deps=$build_root/deps
fuse_min=3.17

say() { printf 'deps: %s\n' "$*"; }
die() { printf 'deps: %s\n' "$*" >&2; exit 1; }

# version_ge A B: true when A >= B.
version_ge() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n1)" = "$2" ]; }

packages_build="build-essential pkg-config liburing-dev librocksdb-dev libfuse3-dev libxxhash-dev
    liblz4-dev libzstd-dev zlib1g-dev libsodium-dev libjansson-dev libinih-dev libmicrohttpd-dev
    librdmacm-dev libibverbs-dev libcmocka-dev meson ninja-build dpkg-dev libnuma-dev"
packages_check="clang lld fuse3 python3 python3-numpy python3-torch python3-pip python3-setuptools
    python3-wheel python3-yaml python3-grpcio python3-protobuf attr acl e2fsprogs rsync gdb
    valgrind fio jq
    mandoc universal-ctags iproute2 lua5.3 systemd-container man-db procps"
packages_demo="fuse3 python3 python3-numpy python3-torch oxygen-icon-theme gnome-backgrounds"

other_distribution() {
    cat >&2 <<'END'
deps: there is no apt-get here. Install these by your package manager, then run make:

  build   C compiler (gcc 12 or clang 14 at least), GNU make 4.3, pkg-config, and the development
          files of liburing, RocksDB (C API), libfuse 3 (3.17 or newer for passthrough), xxhash,
          lz4, zstd, zlib, libsodium, jansson, inih, libmicrohttpd, rdma-core (librdmacm,
          libibverbs), cmocka
  check   clang with compiler-rt, lld, llvm-symbolizer, fusermount3, python3 with numpy, yaml, grpc,
          pip and PyTorch, attr, acl, e2fsprogs, rsync, gdb, valgrind, fio, jq, mandoc,
          universal-ctags, iproute2, systemd-nspawn, man, promtool
  demo    PyTorch for Python 3, and two sets of pictures (oxygen icons, gnome-backgrounds)

  Fedora and RHEL with EPEL: gcc make pkgconf liburing-devel rocksdb-devel fuse3-devel fuse3
          xxhash-devel lz4-devel libzstd-devel zlib-devel libsodium-devel jansson-devel inih-devel
          libmicrohttpd-devel rdma-core-devel libcmocka-devel clang compiler-rt lld llvm
          python3-numpy attr acl gdb valgrind fio jq mandoc ctags iproute golang-github-prometheus
  openSUSE: gcc make pkg-config liburing-devel rocksdb-devel fuse3-devel fuse3 xxhash-devel
          liblz4-devel libzstd-devel zlib-devel libsodium-devel libjansson-devel inih-devel
          libmicrohttpd-devel rdma-core-devel libcmocka-devel clang lld llvm python3-numpy attr acl
          gdb valgrind fio jq mandoc ctags iproute2
END
    exit 1
}

# The packages of the list in $@ that are not installed.
lacking() {
    local have
    have=" $(dpkg-query -W -f '${Package}:${db:Status-Status} ' "$@" 2>/dev/null)"
    local p
    for p in "$@"; do
        case $have in *" $p:installed "*) ;; *) echo "$p" ;; esac
    done
}

# clang's run-time libraries and symbolizer are named after its version.
clang_extras() {
    local v
    v=$(clang -dumpversion 2>/dev/null) ||
        v=$(LC_ALL=C apt-cache depends clang 2>/dev/null |
            sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n1)
    v=${v%%.*}
    [ -z "$v" ] || echo "libclang-rt-$v-dev llvm-$v"
}

# Mirrors fail now and then: several attempts, with new lists.
install_by_apt() {
    local go
    for go in 1 2 3; do
        apt install --no-install-recommends "$@" && return 0
        [ "$go" = 3 ] || { sleep $((5 * go)); apt update; }
    done
    return 1
}

apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

install_packages() {
    local want
    [ $# != 0 ] || return 0
    want=$(lacking "$@")
    [ -n "$want" ] || return 0
    want=${want//$'\n'/ }
    if [ "$(id -u)" != 0 ]; then
        die "not root. Lacking: $want
deps: as root: apt-get install --no-install-recommends $want"
    fi
    say "installing: $want"
    # shellcheck disable=SC2086
    install_by_apt $want >"$deps/apt.log" 2>&1 ||
        { tail -n 20 "$deps/apt.log" >&2; die "apt-get could not install: $want"; }
}

fuse_version() { PKG_CONFIG_PATH=$1/lib/pkgconfig pkg-config --modversion fuse3; }

# In a subshell: any failure ends it. Takes about half a minute.
build_libfuse() (
    set -e
    work=$deps/libfuse-src
    rm -rf "$work" "$deps/libfuse.new"
    mkdir -p "$work"/{lists/partial,cache/archives/partial,sources}
    "$root/deploy/debian-unstable" deb-src >"$work/sources/sid.sources"
    private="-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$work/sources
        -o Dir::State::Lists=$work/lists -o Dir::Cache=$work/cache -o APT::Sandbox::User=root
        -o Acquire::Languages=none -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20"
    # shellcheck disable=SC2086
    apt-get -q $private update
    cd "$work"
    # shellcheck disable=SC2086
    apt-get -q $private source --download-only fuse3
    dpkg-source --no-check -x fuse3_*.dsc src
    options="--default-library=static --buildtype=release --prefix=$deps/libfuse --libdir=lib"
    for o in examples tests utils; do options="$options -D$o=false"; done
    # shellcheck disable=SC2086
    meson setup $options build src
    ninja -C build
    DESTDIR=$work/stage meson install -C build
    version_ge "$(fuse_version "$work/stage$deps/libfuse")" $fuse_min
    rm -rf "$deps/libfuse"
    mv "$work/stage$deps/libfuse" "$deps/libfuse"
    cd "$deps"
    rm -rf "$work"
)

libfuse() {
    [ ! -e "$deps/libfuse/lib/pkgconfig/fuse3.pc" ] || return 0
    local have
    have=$(pkg-config --modversion fuse3 2>/dev/null) && version_ge "$have" $fuse_min && return 0
    if [ -e "$deps/libfuse.failed" ]; then
        say "using libfuse $have, which lacks a part of mounting (building a newer one failed" \
            "before: see $deps/libfuse.log; remove $deps/libfuse.failed to try again)"
        return 0
    fi
    say "libfuse $have is too old for shared mappings: building a current one into $deps/libfuse"
    build_libfuse >"$deps/libfuse.log" 2>&1
    if [ -e "$deps/libfuse/lib/pkgconfig/fuse3.pc" ]; then
        say "libfuse $(fuse_version "$deps/libfuse") built"
    else
        touch "$deps/libfuse.failed"
        say "building it failed (see $deps/libfuse.log): falling back to libfuse $have. Mounts" \
            "work, but shared mappings of files that others write, O_TMPFILE and passthrough do not"
    fi
}

# Only the one program out of the package: installing that would start a service.
extract_promtool() {
    [ ! -x "$deps/bin/promtool" ] && ! command -v promtool >/dev/null || return 0
    (
        set -e
        work=$deps/promtool-deb
        rm -rf "$work"
        mkdir -p "$work" "$deps/bin"
        cd "$work"
        apt-get -q -o APT::Sandbox::User=root download prometheus
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xf - ./usr/bin/promtool
        mv usr/bin/promtool "$deps/bin/promtool"
        cd "$deps"
        rm -rf "$work"
    ) >"$deps/promtool.log" 2>&1 ||
        say "promtool is lacking (see $deps/promtool.log): the test of /metrics will be skipped"
}

# The guest kernel of the tests over RDMA, and an emulator to run it: into the user's cache.
rdma_guest() {
    "$root/tests/rdma/guest" --prepare >"$deps/rdma-guest.log" 2>&1 ||
        say "tests over RDMA will be skipped: $(tail -n1 "$deps/rdma-guest.log")"
}

set_name=${1:-build}
case $set_name in
    fuse) list= ;;
    build) list=$packages_build ;;
    check) list="$packages_build $packages_check" ;;
    demo) list="$packages_build $packages_demo" ;;
    all) list="$packages_build $packages_check $packages_demo" ;;
    -h | --help) sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//p}' "$self"; exit 0 ;;
    *) die "unknown set '$set_name': build, check, demo, all or fuse" ;;
esac
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    [ "$set_name" != fuse ] || { say "no apt-get here: using the system's libfuse"; exit 0; }
    other_distribution
fi

mkdir -p "$deps" || die "cannot write to $deps"
exec 9>"$deps/.lock"
flock 9
# shellcheck disable=SC2086
install_packages $list
# shellcheck disable=SC2046
case $set_name in check | all) install_packages $(clang_extras) ;; esac
libfuse
case $set_name in check | all) extract_promtool; rdma_guest ;; esac
exit 0
