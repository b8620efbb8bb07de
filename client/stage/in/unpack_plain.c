/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/in/unpack_plain.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/checksum.h"

#define IN_SIZE  (256u << 10)
#define OUT_SIZE (4u * PLAIN_BLOCK) /* other fibers run between two of these */

struct making {
	struct env_file *file;
	const struct format_input *in;
	const struct plain_options *o;
	struct plain *p;
	struct format_fault *fault;
	struct decompress *d;
	uint8_t *packed, *raw;
	uint64_t at; /* offset in the archive */
	size_t have, used, n_raw;
};

void plain_fini(struct plain *p)
{
	free(p->sums);
	*p = (struct plain){0};
}

static int add_sums(struct plain *p, const uint8_t *data, size_t len)
{
	for (size_t at = 0; at < len; at += PLAIN_BLOCK) {
		if (p->n_sums == p->cap_sums) {
			size_t cap = p->cap_sums ? p->cap_sums * 2 : 64;
			uint64_t *more = realloc(p->sums, cap * sizeof(*more));
			if (!more)
				return -LE_NOMEM;
			p->sums = more;
			p->cap_sums = cap;
		}
		p->sums[p->n_sums++] =
			checksum64(data + at, len - at < PLAIN_BLOCK ? len - at : PLAIN_BLOCK);
	}
	return 0;
}

bool plain_check(const struct plain *p, const void *data, uint64_t len, uint64_t off)
{
	ASSERT(off % PLAIN_BLOCK == 0 && off + len <= p->size);
	for (uint64_t at = 0; at < len; at += PLAIN_BLOCK) {
		size_t n = len - at < PLAIN_BLOCK ? len - at : PLAIN_BLOCK;
		if (checksum64((const uint8_t *)data + at, n) != p->sums[(off + at) / PLAIN_BLOCK])
			return false;
	}
	return true;
}

static int damaged(struct making *m, int rc, const char *what)
{
	*m->fault = (struct format_fault){m->at - m->have + m->used, what};
	return rc;
}

/* Writes the output so far: whole blocks, except at the end. */
static int write_out(struct making *m)
{
	TRY(add_sums(m->p, m->raw, m->n_raw));
	TRY(env_file_pwrite(m->file, m->raw, m->n_raw, m->p->size));
	m->p->size += m->n_raw;
	m->n_raw = 0;
	return 0;
}

static int read_more(struct making *m)
{
	int64_t n = m->in->read(m->in->arg, m->packed, IN_SIZE, m->at);
	if (n < 0)
		return (int)n;
	m->at += (uint64_t)n;
	m->have = (size_t)n;
	m->used = 0;
	if (m->o->report)
		m->o->report(m->o->arg, m->at);
	return 0;
}

static int some(struct making *m, bool *ret_end)
{
	if (m->used == m->have && m->at < m->in->size)
		TRY(read_more(m));
	size_t len = m->have - m->used, space = OUT_SIZE - m->n_raw;
	int rc = decompress_some(m->d, m->packed + m->used, &len, m->raw + m->n_raw, &space);
	if (rc < 0)
		return damaged(m, rc,
			       rc == -LE_NOTSUP ? "it was packed with a window that is too large"
						: "what is packed in it is damaged");
	m->used += len;
	m->n_raw += space;
	if (m->p->size + m->n_raw > m->o->max)
		return -LE_FBIG;
	if (m->n_raw == OUT_SIZE)
		return write_out(m);
	if (len || space || (m->used == m->have && m->at < m->in->size))
		return 0;
	*ret_end = true;
	if (m->used == m->have && decompress_is_whole(m->d))
		return write_out(m);
	return damaged(m, -LE_CORRUPT, "it is cut off");
}

static int unpack_all(struct making *m)
{
	bool end = m->in->size == 0;
	int rc = end ? damaged(m, -LE_CORRUPT, "it is empty") : 0;
	while (rc == 0 && !end)
		rc = some(m, &end);
	return rc;
}

int plain_make(struct env *env, const char *path, const struct format_input *in,
	       const struct plain_options *o, struct plain *ret_plain,
	       struct format_fault *ret_fault)
{
	struct making m = {.in = in, .o = o, .p = ret_plain, .fault = ret_fault};
	*ret_plain = (struct plain){0};
	*ret_fault = (struct format_fault){0, ""};
	m.packed = malloc(IN_SIZE);
	m.raw = malloc(OUT_SIZE);
	int rc = m.packed && m.raw ? decompress_create(o->kind, &m.d) : -LE_NOMEM;
	if (rc == 0)
		rc = env_file_open(env, path, O_RDWR | O_CREAT | O_TRUNC, 0600, &m.file);
	if (rc == 0)
		rc = unpack_all(&m);
	env_file_close(m.file);
	decompress_destroy(m.d);
	free(m.packed);
	free(m.raw);
	if (rc < 0)
		plain_fini(ret_plain);
	return rc;
}
