#include "tests/sim/sums.h"

#include "client/block_sums.h"
#include "common/base/checksum.h"

#define BLOCK LEAT_BLOCK_SIZE_MIN

/* Of all that is stored of the block, which may end where zeros begin. */
static bool is_of(const struct sums_model *m, uint64_t block, uint64_t sum)
{
	uint64_t at = block * BLOCK;
	uint64_t len = at >= m->size ? 0 : m->size - at < BLOCK ? m->size - at : BLOCK;

	while (len > 0 && checksum64(m->data + at, len) != sum)
		len = m->data[at + len - 1] == 0 ? len - 1 : 0;
	return len > 0;
}

static bool hold(const struct sums_model *m, const struct ll_part *p)
{
	const struct block_sums *s = p->sums;

	for (uint64_t i = s->first; i * BLOCK < p->off + (uint64_t)p->done; i++)
		if (block_sums_match(s, i, s->sum[i - s->first]) &&
		    !is_of(m, i, s->sum[i - s->first]))
			return false;
	return true;
}

int64_t sums_read(struct client *c, const struct sums_model *m, struct ll_part *parts, uint32_t n)
{
	struct block_sums sums[SUMS_PARTS_MAX];
	uint64_t sum[SUMS_PARTS_MAX][SUMS_FILE_MAX / BLOCK + 2];
	int64_t done = 0;

	for (uint32_t i = 0; i < n; i++) {
		sums[i] = (struct block_sums){BLOCK, ARRAY_SIZE(sum[i]), parts[i].off / BLOCK,
					      sum[i]};
		parts[i].sums = &sums[i];
	}
	ll_pread_many(c, parts, n);
	for (uint32_t i = 0; i < n; i++) {
		if (parts[i].done < 0)
			return parts[i].done;
		done += parts[i].done;
		if (parts[i].done > 0 && !hold(m, &parts[i]))
			return -LE_BAD_MESSAGE;
	}
	return done;
}
