/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/formats/unstream.h"

#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/sniff.h"
#include "common/base/decompress.h"
#include "common/rt/env.h"
#include "common/rt/loop.h"

#define IN_SIZE   (256u << 10)
#define STEP      (256u << 10)
/* Unpacked bytes in memory; formats do not read back farther than their windows. */
#define KEEP      (512u << 10)
#define BACKS_MAX 4u

struct unstream {
	const struct format_input *in;
	struct decompress *d;
	uint8_t *packed;
	uint64_t at; /* offset in the packed file after the bytes in `packed` */
	size_t have, used;
};

static int kind_of(enum packing packing)
{
	switch (packing) {
	case PACKED_GZIP:
		return DECOMPRESS_GZIP;
	case PACKED_ZSTD:
		return DECOMPRESS_ZSTD;
	case PACKED_LZ4:
		return DECOMPRESS_LZ4;
	default:
		return -LE_NOTSUP;
	}
}

int unstream_create(enum packing packing, const struct format_input *in,
		    struct unstream **ret_stream)
{
	int kind = kind_of(packing);
	if (kind < 0)
		return kind;
	struct unstream *s = calloc(1, sizeof(*s));
	if (!s)
		return -LE_NOMEM;
	s->in = in;
	s->packed = malloc(IN_SIZE);
	int rc = s->packed ? decompress_create((enum decompress_kind)kind, &s->d) : -LE_NOMEM;
	if (rc < 0)
		unstream_destroy(s);
	else
		*ret_stream = s;
	return rc;
}

void unstream_destroy(struct unstream *s)
{
	if (!s)
		return;
	decompress_destroy(s->d);
	free(s->packed);
	free(s);
}

static int read_more(struct unstream *s)
{
	size_t want = s->in->size - s->at < IN_SIZE ? (size_t)(s->in->size - s->at) : IN_SIZE;
	struct format_fault ignored;
	TRY(format_read(s->in, s->packed, want, s->at, &ignored));
	s->at += want;
	s->have = want;
	s->used = 0;
	return 0;
}

struct step {
	struct unstream *s;
	uint8_t *out;
	size_t space, made;
	bool moved;
	int rc;
};

/* On a worker: unpacks until the input that was read, or the space, is used up. */
static void unpack_some(void *arg)
{
	struct step *t = arg;
	struct unstream *s = t->s;
	for (bool moves = true; moves && t->made < t->space && t->rc == 0;) {
		size_t len = s->have - s->used, space = t->space - t->made;
		t->rc = decompress_some(s->d, s->packed + s->used, &len, t->out + t->made, &space);
		if (t->rc < 0)
			return;
		s->used += len;
		t->made += space;
		moves = len || space;
		t->moved |= moves;
	}
}

static int run_step(struct step *t)
{
	struct loop *l = loop_self();
	if (l)
		TRY(env_offload(loop_env(l), unpack_some, t));
	else
		unpack_some(t);
	return t->rc;
}

static int fault_at(const struct unstream *s, int rc, const char *what, struct format_fault *f)
{
	*f = (struct format_fault){s->at - s->have + s->used, what};
	return rc;
}

int64_t unstream_next(struct unstream *s, void *buf, size_t len, struct format_fault *ret_fault)
{
	size_t made = 0;
	while (made < len) {
		struct step t = {.s = s, .out = (uint8_t *)buf + made, .space = len - made};
		t.space = t.space < STEP ? t.space : STEP;
		if (s->used == s->have && s->at < s->in->size)
			TRY(read_more(s));
		int rc = run_step(&t);
		if (rc == -LE_CORRUPT)
			return fault_at(s, rc, "its packed contents are damaged", ret_fault);
		if (rc == -LE_NOTSUP)
			return fault_at(s, rc, "it was packed with a window that is too large",
					ret_fault);
		TRY(rc);
		made += t.made;
		if (t.moved || (s->used == s->have && s->at < s->in->size))
			continue;
		if (s->used < s->have || !decompress_is_whole(s->d))
			return fault_at(s, -LE_CORRUPT, "its packed contents are truncated",
					ret_fault);
		break;
	}
	return (int64_t)made;
}

int unstream_measure(enum packing packing, const struct format_input *in, uint64_t *ret_size,
		     struct format_fault *ret_fault)
{
	struct unstream *s;
	uint64_t size = 0;
	TRY(unstream_create(packing, in, &s));
	uint8_t *buf = malloc(STEP);
	int64_t n = buf ? 1 : -LE_NOMEM;
	while (n > 0 && size <= UNSTREAM_MAX) {
		n = unstream_next(s, buf, STEP, ret_fault);
		size += n > 0 ? (uint64_t)n : 0;
	}
	free(buf);
	unstream_destroy(s);
	if (n < 0)
		return (int)n;
	if (size > UNSTREAM_MAX)
		return -LE_FBIG;
	*ret_size = size;
	return 0;
}

/* ---- the view for formats ---- */

struct unstream_view {
	enum packing packing;
	const struct format_input *in;
	struct unstream *s;
	uint8_t *restart;
	size_t have;
	uint64_t end; /* unpacked offset after the stored bytes, which is that of the stream */
	uint32_t n_back;
	struct format_fault fault;
};

int unstream_view_create(enum packing packing, const struct format_input *in,
			 struct unstream_view **ret_view)
{
	struct unstream_view *v = calloc(1, sizeof(*v));
	if (!v)
		return -LE_NOMEM;
	v->packing = packing;
	v->in = in;
	v->fault.what = "";
	v->restart = malloc(KEEP);
	int rc = v->restart ? unstream_create(packing, in, &v->s) : -LE_NOMEM;
	if (rc < 0)
		unstream_view_destroy(v);
	else
		*ret_view = v;
	return rc;
}

void unstream_view_destroy(struct unstream_view *v)
{
	if (!v)
		return;
	unstream_destroy(v->s);
	free(v->restart);
	free(v);
}

static int begin_again(struct unstream_view *v)
{
	if (v->n_back++ == BACKS_MAX) {
		v->fault = (struct format_fault){
			0, "packed, this format cannot be read: unpack it"};
		return -LE_NOTSUP;
	}
	unstream_destroy(v->s);
	v->s = NULL;
	v->have = 0;
	v->end = 0;
	return unstream_create(v->packing, v->in, &v->s);
}

/* Unpacks the next bytes. Returns 1, or 0 at the end. */
static int go_on(struct unstream_view *v)
{
	if (v->have > KEEP / 2) {
		memmove(v->restart, v->restart + v->have - KEEP / 2, KEEP / 2);
		v->have = KEEP / 2;
	}
	int64_t n = unstream_next(v->s, v->restart + v->have, KEEP / 2, &v->fault);
	if (n < 0)
		return (int)n;
	v->have += (size_t)n;
	v->end += (uint64_t)n;
	return n > 0;
}

int64_t unstream_view_read(void *arg, void *buf, size_t len, uint64_t off)
{
	struct unstream_view *v = arg;
	size_t done = 0;
	if (!v->s || off < v->end - v->have)
		TRY(begin_again(v));
	while (done < len) {
		uint64_t at = off + done;
		if (at < v->end) {
			size_t n = (size_t)(v->end - at) < len - done ? (size_t)(v->end - at)
								      : len - done;
			memcpy((uint8_t *)buf + done, v->restart + v->have - (v->end - at), n);
			done += n;
			continue;
		}
		int rc = go_on(v);
		if (rc <= 0)
			return rc < 0 ? rc : (int64_t)done;
	}
	return (int64_t)done;
}

struct format_fault unstream_view_fault(const struct unstream_view *v)
{
	return v->fault;
}
