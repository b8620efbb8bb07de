/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/xattr_rows.h"

#include "mds/mds.h"

#define CAPABILITY "security.capability"

bool xattr_is_caps(struct bytes name)
{
	return bytes_equal(name, bytes_str(CAPABILITY));
}

void xattr_count(struct inode_rec *rec, const struct xattr_change *ch)
{
	uint32_t name = ch->name.len + 1;

	if (ch->remove) {
		rec->n_xattrs--;
		rec->xattr_names -= rec->xattr_names > name ? name : rec->xattr_names;
	} else if (!ch->exists) {
		rec->n_xattrs++;
		rec->xattr_names += name;
	}
	if (xattr_is_caps(ch->name))
		return;
	rec->xattr_bytes -= rec->xattr_bytes > ch->old_len ? ch->old_len : rec->xattr_bytes;
	rec->xattr_bytes += ch->value.len;
}

void xattr_put(struct op *op, struct inode_rec *rec, const struct xattr_change *ch)
{
	txn_put(op->store, key_xattr(ch->ino, ch->name), ch->value.data, ch->value.len);
	xattr_count(rec, ch);
	if (xattr_is_caps(ch->name))
		rec->attr.flags |= ATTR_FILE_CAPS;
}

void xattr_drop(struct op *op, struct inode_rec *rec, const struct xattr_change *ch)
{
	txn_delete(op->store, key_xattr(ch->ino, ch->name));
	xattr_count(rec, ch);
	if (xattr_is_caps(ch->name))
		rec->attr.flags &= ~(uint32_t)ATTR_FILE_CAPS;
}

void inode_drop_caps(struct op *op, struct inode_rec *rec)
{
	const struct xattr_change ch = {
		.ino = rec->attr.ino, .name = bytes_str(CAPABILITY), .remove = true};

	if ((rec->attr.flags & ATTR_FILE_CAPS) == 0)
		return;
	xattr_drop(op, rec, &ch);
	inode_set_plain(rec);
}
