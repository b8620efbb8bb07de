/*
 * Stripes are `width` consecutive chains of the newest table of the class, from a start that
 * rotates, so that files of one chunk spread evenly too. Starts whose chains have a target that is
 * down or nearly full are passed over while there are others.
 */
#include "mds/placement.h"

#include "common/base/hmap.h"

#define TRIES 16u

static bool chain_good(const struct cluster *c, const struct chain *ch)
{
	if (ch->members[0].state != MEMBER_SYNC)
		return false;
	for (uint32_t i = 0; i < ch->n_members; i++) {
		const struct target *t = cluster_target(c, ch->members[i].target);

		if (t->info.state != TARGET_UP || t->info.free <= t->info.capacity / 20)
			return false;
	}
	return true;
}

int placement_choose(struct cluster *c, const struct mds_params *p, const struct layout *dir,
		     struct ino ino, struct layout *ret_layout)
{
	uint32_t replicas = dir->replicas != 0 ? dir->replicas : 1;
	const struct chain_class *cl = &c->classes[replicas];
	uint32_t width = dir->width, start, best = 0, best_good = 0, n;

	if (cl->table == 0)
		return -LE_NOT_READY;
	n = c->tables[cl->table - 1].n;
	if (width == 0)
		width = p->default_width;
	if (width > n)
		width = n;
	start = (uint32_t)((c->rotor++ + hash_u64(ino.v >> 20)) % n);
	for (uint32_t t = 0; t < TRIES && t < n; t++) {
		uint32_t seed = (start + t) % n, good = 0;

		for (uint32_t i = 0; i < width; i++)
			good += chain_good(c, cl->chains[(seed + i) % n]);
		if (t == 0 || good > best_good) {
			best = seed;
			best_good = good;
		}
		if (good == width)
			break;
	}
	*ret_layout = (struct layout){
		.table = cl->table,
		.width = width,
		.seed = best,
		.chunk_size =
			dir->chunk_size != 0 ? dir->chunk_size : (uint32_t)p->default_chunk_size,
		.storage_class = dir->storage_class,
		.replicas = (uint8_t)replicas,
		.compression = dir->compression,
		.gen = 1,
	};
	return 0;
}

int placement_check(const struct layout *l)
{
	if (l->chunk_size != 0 &&
	    (l->chunk_size < LEAT_CHUNK_SIZE_MIN || l->chunk_size > LEAT_CHUNK_SIZE_MAX ||
	     (l->chunk_size & (l->chunk_size - 1)) != 0))
		return -LE_INVAL;
	if (l->width > 65536 || l->replicas > LEAT_REPLICAS_MAX ||
	    l->compression > COMPRESSION_OFF || l->storage_class > 16)
		return -LE_INVAL;
	return 0;
}
