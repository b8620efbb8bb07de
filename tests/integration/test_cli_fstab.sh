#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mount(8), umount(8) and fstab. mount(8) finds mount.leat under its other name, mount.fuse.leat.
# timeout: 120
. "$(dirname "$0")/cli.inc.sh"
if [ -z "${IN_NAMESPACE:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo "not root"; exit 77; }
	# A mount namespace of its own, in which the test may change /sbin.
	IN_NAMESPACE=1 unshare -m --propagation private "$0" && exit 0
	exit $?
fi
need_cluster
sbin=$(realpath /sbin)
mkdir "$tmp/upper" "$tmp/work" "$tmp/m"
for p in mount.leat mount.fuse.leat; do ln -s "$bin/mount.leat" "$tmp/upper/$p"; done
layers=lowerdir=$sbin,upperdir=$tmp/upper,workdir=$tmp/work
mount -t overlay -o "$layers" overlay "$sbin" 2>/dev/null || {
	mkdir "$tmp/sbin" # no overlay on this machine: links to all of sbin
	mount --bind "$sbin" "$tmp/sbin"
	mount -t tmpfs tmpfs "$sbin"
	ln -s "$tmp"/sbin/* "$sbin/"
	ln -sf "$bin/mount.leat" "$sbin/mount.leat"
	ln -sf "$bin/mount.leat" "$sbin/mount.fuse.leat"
}

addr=$(sed -n 's/^mds = //p' "$LEAT_CONF")
expect 0 mount -t fuse.leat "$addr" "$tmp/m" -o "conf=$LEAT_CONF,noatime,hedge_ms=100"
expect 0 findmnt -no FSTYPE,SOURCE "$tmp/m"
in_out "fuse.leat"
in_out "$addr"
echo one >"$tmp/m/file"
expect 0 umount "$tmp/m"
expect 0 cat "$mnt/file"
in_out one

expect 0 mount -t leat leat "$tmp/m" -o "conf=$LEAT_CONF"
expect 0 cat "$tmp/m/file"
expect 0 umount "$tmp/m"

# mount(8) makes an absolute path of a source that names a file in the working directory.
mkdir "$tmp/here" "$tmp/here/leat"
cd "$tmp/here" || fail "cd"
expect 1 mount -t fuse.leat leat "$tmp/m" -o "conf=$LEAT_CONF"
in_err "here/leat' is a path of this machine"
in_err "Say leat:"
expect 0 mount -t fuse.leat leat: "$tmp/m" -o "conf=$LEAT_CONF"
expect 0 findmnt -no SOURCE "$tmp/m"
in_out "leat:"
expect 0 "$leat" status "$tmp/m"
expect 0 mount -o remount,ro leat "$tmp/m"
expect 0 umount "$tmp/m"
cd / || fail "cd /"

# Without the link, mount(8) runs libfuse's helper, and the helper runs this program.
if [ -x /sbin/mount.fuse ]; then
	ln -s "$bin/leat" "$sbin/leat"
	mv "$sbin/mount.fuse.leat" "$sbin/mount.fuse.leat.away"
	expect 2 mount -t fuse.leat leat: "$tmp/m" -o "conf=$LEAT_CONF"
	in_err "mount(8) has not found /sbin/mount.fuse.leat"
	in_err "ln -s $(realpath "$bin/mount.leat") /sbin/mount.fuse.leat"
	mv "$sbin/mount.fuse.leat.away" "$sbin/mount.fuse.leat"
fi

options=conf=$LEAT_CONF,_netdev,nofail,x-systemd.automount,nosuid,ro
echo "leat: $tmp/m fuse.leat $options 0 0" >"$tmp/fstab"
expect 0 mount -T "$tmp/fstab" "$tmp/m"
expect 0 findmnt -no OPTIONS "$tmp/m"
in_out nosuid
in_out ro,
expect 0 cat "$tmp/m/file"
expect 0 umount "$tmp/m"

# The mount prints nothing and can be remounted with the options of /proc/mounts. It allows
# set-user-id and devices only on request.
expect 0 mount -t fuse.leat "$addr,$addr" "$tmp/m" -o "conf=$LEAT_CONF"
[ -z "$out$err" ] || fail "not silent"
expect 0 findmnt -no SOURCE,OPTIONS "$tmp/m"
in_out "$addr,$addr"
in_out nosuid,nodev
cp "$(command -v id)" "$mnt/id"
chown 2001 "$mnt/id"
chmod 4755 "$mnt/id"
mknod -m 666 "$mnt/null" c 1 3
expect 0 "$tmp/m/id" -u
[ "$out" = 0 ] || fail "it has become user $out"
expect 1 dd if="$tmp/m/null" of="$tmp/out"
in_err "Permission denied"
expect 0 umount "$tmp/m"
expect 0 mount -t fuse.leat "$addr,$addr" "$tmp/m" -o "conf=$LEAT_CONF,allow_suid,allow_dev"
expect 0 findmnt -no SOURCE,OPTIONS "$tmp/m"
case $out in *nosuid* | *nodev*) fail "restricted" ;; esac
expect 0 "$tmp/m/id" -u
in_out 2001
expect 0 dd if="$tmp/m/null" of="$tmp/out"
expect 0 mount -o remount,ro "$tmp/m"
expect 0 findmnt -no OPTIONS "$tmp/m"
case $out in *nosuid* | *nodev*) fail "restricted by a remount" ;; esac
expect 0 mount -o remount,ro,nosuid "$tmp/m"
expect 0 findmnt -no OPTIONS "$tmp/m"
in_out ro,nosuid
expect 1 touch "$tmp/m/new"
in_err "Read-only"
# Run directly, mount.leat does not allow them without a request either.
expect 0 "$bin/mount.leat" leat "$tmp/m" -o remount,ro
expect 0 findmnt -no OPTIONS "$tmp/m"
in_out ro,nosuid
case $out in *nodev*) fail "restricted by a remount" ;; esac
expect 0 mount -o remount,rw,nodev "$tmp/m"
expect 0 "$bin/mount.leat" leat "$tmp/m" -o remount,allow_suid
expect 0 findmnt -no OPTIONS "$tmp/m"
in_out nodev
case $out in *nosuid*) fail "not what was asked for" ;; esac
expect 0 touch "$tmp/m/new"
exec 9>"$tmp/m/new"
expect 32 mount -o remount,ro "$tmp/m"
exec 9>&-
expect 0 umount "$tmp/m"
mount -t tmpfs tmpfs "$tmp/m"
expect 32 "$bin/mount.leat" leat "$tmp/m" -o remount,ro
expect 0 umount "$tmp/m"

# Parts of the namespace are mounted as file systems of their own.
mkdir -p "$mnt/sub/dir one" "$mnt/other" "$tmp/m2"
echo below >"$mnt/sub/dir one/file"
expect 0 mount -t fuse.leat "$addr:/sub/dir one" "$tmp/m" -o "conf=$LEAT_CONF"
expect 0 mount -t fuse.leat leat:/other "$tmp/m2" -o "conf=$LEAT_CONF"
expect 0 findmnt -no SOURCE "$tmp/m"
in_out "$addr:/sub/dir one"
expect 0 cat "$tmp/m/file"
in_out below
[ "$(stat -c %i "$tmp/m/.")" = "$(stat -c %i "$mnt/sub/dir one")" ] || fail "another root"
[ "$(stat -c %d "$tmp/m")" != "$(stat -c %d "$tmp/m2")" ] || fail "one device"
expect 1 ln "$tmp/m/file" "$tmp/m2/file"
in_err "ross-device"
echo more >"$tmp/m/new"
mv "$tmp/m/new" "$tmp/m/newer"
expect 0 cat "$mnt/sub/dir one/newer"
in_out more
# Changes that other mounts make at its root become visible, as everywhere.
rm "$mnt/sub/dir one/newer"
sleep 1.2
expect 2 ls "$tmp/m/newer"
expect 0 df -h "$tmp/m"
in_out "$addr:/sub/dir one"
expect 0 umount "$tmp/m"
expect 0 umount "$tmp/m2"
for bad in /none /sub/../other /other/../..; do
	expect 32 mount -t fuse.leat "leat:$bad" "$tmp/m" -o "conf=$LEAT_CONF"
	in_err "cannot mount leat:$bad"
done

expect 1 mount -t fuse.leat "$addr" "$tmp/m" -o "conf=$LEAT_CONF,nonsense"
in_err nonsense
finish
