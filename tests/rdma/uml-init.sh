#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Process 1 of the User Mode Linux guest. Its root is the host's, read-only through hostfs; a tmpfs
# is mounted over it, so that the command may write anywhere and the host is not changed. Then
# inside.sh continues in that root. The kernel's command line names the control folder.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
control=$(sed -n 's/.*leat_control=\([^ ]*\).*/\1/p' /proc/cmdline)
root=/mnt/root
mount -t tmpfs -o size=80% overlay /mnt
mkdir /mnt/{upper,work,root}
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay $root
mount -t devtmpfs devtmpfs $root/dev
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount -t tmpfs -o mode=755 run $root/run
mkdir $root/run/guest
mount -t hostfs -o "$control" control $root/run/guest
exec chroot $root /bin/bash /run/guest/inside.sh
