/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of the metadata store. Numbers are big-endian, so that key order is number order.
 *
 *   I ino             inode_rec        D parent cookie   dentry_rec
 *   X ino name        value            O ino             (empty): unlinked while open
 *   T seq             intent_rec       Q seq             removal_rec: data to be removed
 *   V ino             convert_rec: a tree that is being converted
 *   U project         quota_rec
 *   S session         session_rec      R session slot    replay_rec
 *   C'm'              cluster_rec      C'n'              counters_rec
 *   C't' id           target_rec       C'c' id           chain_info    C'v' version    table_info
 *   C'x' 0            export_row, all of them
 *   C'l' 0            give_up_rec: targets that are being given up
 */
#ifndef LEAT_MDS_STORE_KEYS_H
#define LEAT_MDS_STORE_KEYS_H

#include "common/proto/types.h"

#define KEY_MAX (9 + LEAT_XATTR_NAME_MAX)

struct key {
	uint8_t b[KEY_MAX];
	uint16_t len;
};

static inline void put_be(uint8_t *p, uint64_t v, int n)
{
	for (int i = n - 1; i >= 0; i--, v >>= 8)
		p[i] = (uint8_t)v;
}
static inline uint64_t get_be(const uint8_t *p, int n)
{
	uint64_t v = 0;
	for (int i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static inline struct key key_of(char kind, uint64_t id)
{
	struct key k = {.len = 9};
	k.b[0] = (uint8_t)kind;
	put_be(k.b + 1, id, 8);
	return k;
}
/* The common prefix of all keys of a kind. */
static inline struct key key_kind(char kind)
{
	return (struct key){.b = {(uint8_t)kind}, .len = 1};
}
static inline struct key key_inode(struct ino ino)
{
	return key_of('I', ino.v);
}
static inline struct key key_dentry(struct ino parent, uint64_t cookie)
{
	struct key k = key_of('D', parent.v);
	put_be(k.b + 9, cookie, 8);
	k.len = 17;
	return k;
}
/* name: at most LEAT_XATTR_NAME_MAX bytes */
static inline struct key key_xattr(struct ino ino, struct bytes name)
{
	struct key k = key_of('X', ino.v);
	memcpy(k.b + 9, name.data, name.len);
	k.len = (uint16_t)(9 + name.len);
	return k;
}
static inline struct key key_replay(uint64_t session, uint32_t slot)
{
	struct key k = key_of('R', session);
	put_be(k.b + 9, slot, 4);
	k.len = 13;
	return k;
}
static inline struct key key_cluster(char kind, uint32_t id)
{
	struct key k = {.b = {'C', (uint8_t)kind}, .len = 2};
	if (kind != 'm' && kind != 'n') {
		put_be(k.b + 2, id, 4);
		k.len = 6;
	}
	return k;
}
/* The first key after all keys that begin with k. */
static inline struct key key_after(struct key k)
{
	while (k.len > 0 && ++k.b[k.len - 1] == 0)
		k.len--;
	return k;
}

#endif
