#!/bin/bash
# mount(8), umount(8) and fstab: mount.leat is found under its other name, mount.fuse.leat.
# timeout: 120
. "$(dirname "$0")/cli.inc.sh"
if [ -z "${IN_NAMESPACE:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo "not root"; exit 77; }
	# A mount namespace of our own, where /sbin may be changed.
	IN_NAMESPACE=1 unshare -m --propagation private "$0" && exit 0
	exit $?
fi
need_cluster
sbin=$(realpath /sbin)
mkdir "$tmp/upper" "$tmp/work" "$tmp/m"
for p in mount.leat mount.fuse.leat; do ln -s "$bin/mount.leat" "$tmp/upper/$p"; done
layers=lowerdir=$sbin,upperdir=$tmp/upper,workdir=$tmp/work
mount -t overlay -o "$layers" overlay "$sbin" 2>/dev/null || {
	mkdir "$tmp/sbin" # no overlay here: all of sbin as links
	mount --bind "$sbin" "$tmp/sbin"
	mount -t tmpfs tmpfs "$sbin"
	ln -s "$tmp"/sbin/* "$sbin/"
	ln -sf "$bin/mount.leat" "$sbin/mount.leat"
	ln -sf "$bin/mount.leat" "$sbin/mount.fuse.leat"
}

addr=$(sed -n 's/^mds = //p' "$LEAT_CONF")
expect 0 mount -t fuse.leat "$addr" "$tmp/m" -o "conf=$LEAT_CONF,noatime,attr_cache_ms=100"
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

options=conf=$LEAT_CONF,_netdev,nofail,x-systemd.automount,nosuid,ro
echo "leat $tmp/m fuse.leat $options 0 0" >"$tmp/fstab"
expect 0 mount -T "$tmp/fstab" "$tmp/m"
expect 0 findmnt -no OPTIONS "$tmp/m"
in_out nosuid
in_out ro,
expect 0 cat "$tmp/m/file"
expect 0 umount "$tmp/m"

expect 1 mount -t fuse.leat "$addr" "$tmp/m" -o "conf=$LEAT_CONF,nonsense"
in_err nonsense
finish
