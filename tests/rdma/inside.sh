#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the guest, as process 1, when its root is mounted (uml-init.sh, emulated.py): the rest of
# the mounts, the network, the soft RDMA devices, then the command; then the guest is switched off.
#
# /run/guest is the control folder, shared with the host: `settings` and `command` come from there,
# `exit-code` is written there. A failure before the command runs is printed on the console; without
# an exit code tests/rdma/guest reports that the guest died.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
control=/run/guest
. $control/settings # KIND RDMA HOSTS MEMLOCK_KIB SHARES TOOLS MODULES CWD CONSOLE OUTPUT

note() { echo "guest: $*" >"$CONSOLE"; }
off() {
    sync
    if [ -e /proc/sysrq-trigger ]; then
        echo o >/proc/sysrq-trigger
        sleep 60
    fi
    exec /usr/bin/python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)' # power off
}
give_up() { note "$*"; off; }

mount_all() {
    local tag folder
    mkdir -p /dev/pts /dev/shm
    mount -t devpts devpts /dev/pts
    mount -t tmpfs -o mode=1777 shm /dev/shm
    [ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
    mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
    mount -t fusectl fusectl /sys/fs/fuse/connections 2>/dev/null
    mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null
    mkdir -p /run/{scratch,netns,lock}
    mount -t tmpfs -o mode=1777,size=70% scratch /run/scratch || give_up "no scratch folder"
    while read -r tag folder; do
        [ -n "$tag" ] || continue
        mkdir -p "$folder"
        if [ "$KIND" = uml ]; then
            mount -t hostfs -o "$folder" "$tag" "$folder"
        else
            mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=mmap "$tag" "$folder"
        fi || give_up "cannot share $folder"
    done <<<"$SHARES"
}

# The stock kernel has everything as modules, which are in the cache.
load_modules() {
    [ -n "$MODULES" ] || return 0
    local loader=/run/modprobe module
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/modprobe -d %s "$@"\n' \
        "$(echo "$MODULES"/lib/*-linux-gnu)" "$MODULES" "$MODULES" >$loader
    chmod 755 $loader
    echo $loader >/proc/sys/kernel/modprobe
    for module in crc32_generic crc32c_generic libcrc32c fuse dummy rdma_ucm; do
        $loader $module || note "no module $module"
    done
    case $RDMA in rxe | both) $loader rdma_rxe || give_up "no module rdma_rxe" ;; esac
    case $RDMA in siw | both) $loader siw || give_up "no module siw" ;; esac
}

# The guest has only these devices; libibverbs loads the drivers of all cards into each program that
# lists devices, which takes an emulated processor half a second.
keep_soft_drivers() {
    local file
    for file in /etc/libibverbs.d/*.driver; do
        case $file in */rxe.driver | */siw.driver) ;; *) rm -f "$file" ;; esac
    done
}

# add_device KIND NETDEV: rxe on eth1 becomes rxe-eth1
add_device() {
    rdma link add "$1-$2" type "$1" netdev "$2" || give_up "no $1 device on $2"
}

add_devices() {
    case $RDMA in
    rxe | siw) add_device "$RDMA" "$1" ;;
    both) add_device rxe "$1"; add_device siw "$1" ;;
    esac
}

# One host: 10.9.0.1 on a dummy interface (siw refuses lo). Two hosts: 10.9.0.2 is in a name space
# of its own, and a third one is the switch between them, so that a cable can be pulled (`cable`).
# Each host's interface has an RDMA device.
network() {
    ip link set lo up
    if [ "$HOSTS" = 1 ]; then
        ip link add eth1 type dummy || give_up "no dummy interface"
    else
        name_space switch
        name_space two
        ip link add eth1 type veth peer name port1 netns switch || give_up "no veth"
        ip -n two link add eth2 type veth peer name port2 netns switch
        ip -n switch link add bridge mtu 9000 type bridge || give_up "no bridge"
        ip -n switch link set port1 mtu 9000 master bridge up
        ip -n switch link set port2 mtu 9000 master bridge up
        ip -n switch link set bridge up
        ip -n two link set eth2 mtu 9000 up
        ip -n two addr add 10.9.0.2/24 dev eth2
    fi
    ip link set eth1 mtu 9000 up
    ip addr add 10.9.0.1/24 dev eth1
    add_devices eth1
    [ "$HOSTS" = 1 ] || on_two add_devices eth2
    wait_active
}

name_space() {
    touch "/run/netns/$1"
    unshare --net mount --bind /proc/self/ns/net "/run/netns/$1" || give_up "no name spaces"
    ip -n "$1" link set lo up
}

# on_two FUNCTION...: in the second host's name space
on_two() {
    export -f add_devices add_device give_up note off
    export RDMA CONSOLE
    nsenter --net=/run/netns/two bash -c '"$@"' bash "$@"
}

wait_active() {
    [ "$RDMA" != none ] || return 0
    local left=1200 # a minute at least: an emulated guest of a busy machine is slow
    while rdma link | grep -qv 'state ACTIVE'; do
        [ $((left--)) -gt 0 ] || give_up "device not active: $(rdma link)"
        sleep 0.05
    done
}

# The index of the GID that is 10.9.0.1; iWARP has only one.
gid_index() {
    local gids=/sys/class/infiniband/$1/ports/1/gids i
    for i in 0 1 2 3 4 5 6 7; do
        if [ "$(cat "$gids/$i" 2>/dev/null)" = 0000:0000:0000:0000:0000:ffff:0a09:0001 ]; then
            echo $i
            return
        fi
    done
    echo 0
}

exports() {
    export HOME=/root TMPDIR=/run/scratch RDMA_GUEST=$KIND RDMA_KIND=$RDMA
    export RDMA_IP=10.9.0.1
    case $RDMA in
    rxe | siw) RDMA_DEV=$RDMA-eth1 ;;
    both) RDMA_DEV=rxe-eth1,siw-eth1 ;;
    none) RDMA_DEV= ;;
    esac
    export RDMA_DEV
    RDMA_GID=$(gid_index "${RDMA_DEV%%,*}")
    export RDMA_GID
    [ "$HOSTS" = 1 ] ||
        export RDMA_PEER_IP=10.9.0.2 RDMA_PEER="nsenter --net=/run/netns/two"
    if [ -n "$TOOLS" ]; then
        PATH=$PATH:$TOOLS/usr/bin
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(echo "$TOOLS"/usr/lib/*-linux-gnu)
        export PATH LD_LIBRARY_PATH
    fi
}

run_command() {
    local as=()
    ulimit -n 65536
    if [ "$MEMLOCK_KIB" = unlimited ]; then
        ulimit -l unlimited
    else
        # Root may lock any amount: the limit holds only without the capability.
        ulimit -l "$MEMLOCK_KIB"
        as=(setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock)
    fi
    cd "$CWD" 2>/dev/null || cd /
    setsid "${as[@]}" bash $control/command </dev/null >"$OUTPUT" 2>&1 9>&-
    echo $? >$control/exit-code
}

mount_all
load_modules
keep_soft_drivers
network
exports
note "up $(cut -d' ' -f1 /proc/uptime)"
# Held open: a console loses its settings when no process has it open.
exec 9<>"$OUTPUT"
stty raw -echo <&9
run_command
note "done $(cut -d' ' -f1 /proc/uptime)"
off
