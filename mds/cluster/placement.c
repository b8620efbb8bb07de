/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stripe is `width` consecutive chains of the newest table of the class. Its start rotates, so
 * that files of one chunk spread evenly too. Starts with a target that is down or nearly full
 * are avoided while there are others. A stripe ends before a chain that is lost: it is narrower
 * then.
 */
#include "mds/cluster/placement.h"

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

/* A stripe that begins at chain `seed`. */
struct stripe {
	uint32_t seed, width, good; /* good: number of its chains that are suitable for new files */
};

static struct stripe stripe_at(const struct cluster *c, const struct chain_class *cl, uint32_t n,
			       uint32_t seed, uint32_t width)
{
	struct stripe s = {.seed = seed};

	while (s.width < width) {
		const struct chain *ch = cl->chains[(seed + s.width) % n];

		if (cluster_chain_closed(c, ch))
			break;
		s.good += chain_good(c, ch);
		s.width++;
	}
	return s;
}

/* The widest stripe among the starts from `start` on, and among equals the one with the most good
 * chains. */
static struct stripe best_stripe(const struct cluster *c, const struct chain_class *cl, uint32_t n,
				 uint32_t start, uint32_t width)
{
	struct stripe best = {0};

	/* More than TRIES starts only while all of them begin at a closed chain. */
	for (uint32_t t = 0; t < n && (t < TRIES || best.width == 0); t++) {
		struct stripe s = stripe_at(c, cl, n, (start + t) % n, width);

		if (s.width > best.width || (s.width == best.width && s.good > best.good))
			best = s;
		if (best.good == width)
			break;
	}
	return best;
}

int placement_choose(struct cluster *c, const struct mds_params *p, const struct layout *dir,
		     struct ino ino, struct layout *ret_layout)
{
	uint32_t replicas = dir->replicas != 0 ? dir->replicas : 1;
	const struct chain_class *cl = &c->classes[replicas];
	uint32_t width = dir->width, start, n;
	struct stripe best;
	NO_YIELD();

	/* Files of one copy can be created once there is a target; others need more hosts. */
	if (cl->table == 0)
		return c->classes[1].table == 0 ? -LE_NOT_READY : -LE_FEW_HOSTS;
	n = c->tables[cl->table - 1].n;
	if (width == 0)
		width = p->default_width;
	if (width > n)
		width = n;
	start = (uint32_t)((c->rotor++ + hash_u64(ino.v >> 20)) % n);
	best = best_stripe(c, cl, n, start, width);
	if (best.width == 0)
		return -LE_NOT_READY;
	*ret_layout = (struct layout){
		.table = cl->table,
		.width = best.width,
		.seed = best.seed,
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
