/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/formats/tar.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Headers of small members are close to each other: one large read contains many of them. */
#define WINDOW_LARGE  (128u << 10)
#define WINDOW_SMALL  (2u << 10)

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8];
	char type;
	char linkname[100], magic[6], version[2], uname[32], gname[32], major[8], minor[8];
	char prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a tar header is one block");

struct scan {
	const struct format_input *in;
	struct format_fault *fault;
	uint8_t *window; /* buffer of WINDOW_LARGE bytes; holds bytes [at, at + have) of the
			  * archive */
	uint64_t at, have;
	char *pax; /* TAR_PAX_MAX */
	/* From a long-name or pax header, for the next member. */
	char name[TAR_NAME_MAX + 1];
	size_t name_len;
	bool has_name, has_size, has_link;
	uint64_t size;
	bool all; /* report links and special files too */
};

static int damaged(struct scan *s, uint64_t off, const char *what)
{
	s->fault->off = off;
	s->fault->what = what;
	return -LE_CORRUPT;
}

/* Returns the header block at off, in the window. *ret_block is NULL at the end of the archive. */
static int block_at(struct scan *s, uint64_t off, uint32_t ahead, const uint8_t **ret_block)
{
	*ret_block = NULL;
	if (off < s->at || off + TAR_BLOCK > s->at + s->have) {
		if (off >= s->in->size)
			return 0;
		int64_t n = s->in->read(s->in->arg, s->window, ahead, off);
		if (n < 0)
			return (int)n;
		s->at = off;
		s->have = (uint64_t)n > ahead ? ahead : (uint64_t)n;
		if (s->have == 0)
			return 0;
		if (s->have < TAR_BLOCK)
			return damaged(s, off, "truncated header");
	}
	*ret_block = s->window + (off - s->at);
	return 0;
}

/* Parses an octal number, or base-256 if the first bit is set (GNU). */
static bool number(const char *field, size_t len, uint64_t *ret_value)
{
	const uint8_t *p = (const uint8_t *)field;
	uint64_t v = 0;
	size_t i = 0;
	if (p[0] & 0x80) {
		if (p[0] != 0x80)
			return false; /* negative, or above 2^62 */
		for (i = 1; i < len; i++) {
			if (v >> 55)
				return false;
			v = v << 8 | p[i];
		}
		*ret_value = v;
		return true;
	}
	while (i < len && p[i] == ' ')
		i++;
	for (; i < len && p[i] >= '0' && p[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(p[i] - '0'); /* at most 12 digits */
	if (i < len && p[i] != 0 && p[i] != ' ')
		return false;
	*ret_value = v;
	return true;
}

static bool sum_is_right(const struct header *h)
{
	const uint8_t *p = (const uint8_t *)h;
	uint64_t want, plain = 0;
	int64_t with_sign = 0; /* some old writers summed signed bytes */
	if (!number(h->sum, sizeof(h->sum), &want))
		return false;
	for (size_t i = 0; i < TAR_BLOCK; i++) {
		bool in_sum =
			i >= offsetof(struct header, sum) && i < offsetof(struct header, type);
		uint8_t c = in_sum ? ' ' : p[i];
		plain += c;
		with_sign += (int8_t)c;
	}
	return want == plain || (int64_t)want == with_sign;
}

bool tar_begins(const uint8_t block[TAR_BLOCK])
{
	struct header h;
	uint64_t size;
	memcpy(&h, block, sizeof(h));
	return h.name[0] && sum_is_right(&h) && number(h.size, sizeof(h.size), &size);
}

static void set_name(struct scan *s, const char *name, size_t len)
{
	while (len >= 2 && name[0] == '.' && name[1] == '/') {
		name += 2;
		len -= 2;
	}
	memmove(s->name, name, len);
	s->name[len] = 0;
	s->name_len = len;
	s->has_name = true;
}

static int read_extra(struct scan *s, uint64_t off, uint64_t len, uint64_t max)
{
	if (len > max)
		return damaged(s, off, "name or pax header too long");
	for (uint64_t got = 0; got < len;) {
		int64_t n = s->in->read(s->in->arg, s->pax + got, len - got, off + got);
		if (n < 0)
			return (int)n;
		if (n == 0 || (uint64_t)n > len - got)
			return damaged(s, off, "truncated name or pax header");
		got += (uint64_t)n;
	}
	return 0;
}

static int take_long_name(struct scan *s, uint64_t off, uint64_t len)
{
	TRY(read_extra(s, off, len, TAR_NAME_MAX + 1));
	size_t n = strnlen(s->pax, len);
	if (n > TAR_NAME_MAX)
		return damaged(s, off, "name too long");
	set_name(s, s->pax, n);
	return 0;
}

static bool decimal(const char *s, size_t len, uint64_t *ret_value)
{
	uint64_t v = 0;
	if (len == 0 || len > 19)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(s[i] - '0');
	}
	*ret_value = v;
	return true;
}

static bool is_key(const char *key, size_t len, const char *name)
{
	return strlen(name) == len && memcmp(key, name, len) == 0;
}

static int take_record(struct scan *s, uint64_t off, const char *key, size_t len)
{
	const char *eq = memchr(key, '=', len);
	if (!eq)
		return damaged(s, off, "bad pax record");
	size_t key_len = (size_t)(eq - key), value_len = len - key_len - 1;
	if (is_key(key, key_len, "path")) {
		if (value_len > TAR_NAME_MAX || memchr(eq + 1, 0, value_len))
			return damaged(s, off, "bad name in a pax record");
		set_name(s, eq + 1, value_len);
	} else if (is_key(key, key_len, "size")) {
		if (!decimal(eq + 1, value_len, &s->size))
			return damaged(s, off, "bad size in a pax record");
		s->has_size = true;
	} else if (is_key(key, key_len, "linkpath")) {
		s->has_link = true;
	} else if (key_len > 11 && memcmp(key, "GNU.sparse.", 11) == 0) {
		s->fault->off = off;
		s->fault->what = "sparse member";
		return -LE_NOTSUP;
	}
	return 0;
}

/* Parses records "LEN key=value\n"; LEN includes itself. */
static int take_pax(struct scan *s, uint64_t off, uint64_t len)
{
	TRY(read_extra(s, off, len, TAR_PAX_MAX));
	for (size_t at = 0; at < len && s->pax[at] != 0;) {
		const char *rec = s->pax + at, *space = memchr(rec, ' ', len - at);
		uint64_t n;
		if (!space || !decimal(rec, (size_t)(space - rec), &n))
			return damaged(s, off, "bad pax record");
		size_t head = (size_t)(space - rec) + 1;
		if (n > len - at || n < head + 2 || rec[n - 1] != '\n')
			return damaged(s, off, "bad pax record");
		TRY(take_record(s, off, space + 1, n - head - 1));
		at += n;
	}
	return 0;
}

static void header_name(struct scan *s, const struct header *h)
{
	char name[sizeof(h->prefix) + sizeof(h->name) + 1];
	size_t n = 0;
	/* "ustar\0" is POSIX; GNU writes "ustar " and uses prefix otherwise. */
	if (memcmp(h->magic, "ustar", 6) == 0 && h->prefix[0]) {
		n = strnlen(h->prefix, sizeof(h->prefix));
		memcpy(name, h->prefix, n);
		name[n++] = '/';
	}
	size_t len = strnlen(h->name, sizeof(h->name));
	memcpy(name + n, h->name, len);
	set_name(s, name, n + len);
}

static int tell(struct scan *s, const struct header *h, uint64_t off, uint64_t size,
		int (*each)(void *arg, const struct tar_member *m), void *arg)
{
	bool file = h->type == '0' || h->type == 0 || h->type == '7';
	char link[sizeof(h->linkname) + 1];
	if ((!file && !s->all) || h->type == '5')
		return 0;
	if (!s->has_name)
		header_name(s, h);
	struct tar_member m = {.name = s->name, .name_len = s->name_len, .off = off, .len = size};
	if (m.name_len > 0 && m.name[m.name_len - 1] == '/')
		return 0;
	m.kind = file ? TAR_FILE : h->type == '1' ? TAR_LINK : TAR_OTHER;
	snprintf(link, sizeof(link), "%.*s", (int)sizeof(h->linkname), h->linkname);
	if (m.kind == TAR_LINK && !s->has_link)
		m.link = strncmp(link, "./", 2) == 0 ? link + 2 : link;
	return each(arg, &m);
}

/* Handles the header at *off and advances *off to the next. Calls `each` for a regular file. */
static int take_member(struct scan *s, const struct header *h, uint64_t *off,
		       int (*each)(void *arg, const struct tar_member *m), void *arg)
{
	uint64_t size, data = *off + TAR_BLOCK;
	if (!sum_is_right(h))
		return damaged(s, *off, "header checksum mismatch");
	if (!number(h->size, sizeof(h->size), &size))
		return damaged(s, *off, "bad size");
	bool extra = h->type == 'L' || h->type == 'K' || h->type == 'x' || h->type == 'g';
	if (s->has_size && !extra)
		size = s->size;
	/* Links, devices and directories have no data, whatever size the header has. */
	if (h->type >= '1' && h->type <= '6')
		size = 0;
	if (data > s->in->size || size > s->in->size - data)
		return damaged(s, *off, "member reaches beyond the end of the archive");
	if (h->type == 'S') {
		s->fault->off = *off;
		s->fault->what = "sparse member";
		return -LE_NOTSUP;
	}
	*off = data + (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
	if (h->type == 'L')
		return take_long_name(s, data, size);
	if (h->type == 'x')
		return take_pax(s, data, size);
	s->has_link |= h->type == 'K';
	if (extra)
		return 0;
	int rc = tell(s, h, data, size, each, arg);
	s->has_name = s->has_size = s->has_link = false;
	return rc;
}

static int walk(struct scan *s, int (*each)(void *arg, const struct tar_member *m), void *arg)
{
	static const uint8_t zeros[TAR_BLOCK];
	uint32_t ahead = WINDOW_LARGE;
	for (uint64_t off = 0;;) {
		const uint8_t *block;
		struct header h;
		TRY(block_at(s, off, ahead, &block));
		if (!block || memcmp(block, zeros, TAR_BLOCK) == 0) {
			if (off == 0 && s->in->size > 0 && !block)
				return damaged(s, 0, "not a tar archive");
			return 0;
		}
		memcpy(&h, block, sizeof(h));
		uint64_t before = off;
		int rc = take_member(s, &h, &off, each, arg);
		if (rc != 0)
			return rc;
		ahead = off - before > WINDOW_LARGE / 4 ? WINDOW_SMALL : WINDOW_LARGE;
	}
}

static int scan(const struct format_input *in, bool all,
		int (*each)(void *arg, const struct tar_member *m), void *arg,
		struct format_fault *ret_fault)
{
	struct scan *s = calloc(1, sizeof(*s));
	int rc = -LE_NOMEM;
	*ret_fault = (struct format_fault){0, ""};
	if (!s)
		return -LE_NOMEM;
	s->in = in;
	s->all = all;
	s->fault = ret_fault;
	s->window = malloc(WINDOW_LARGE);
	s->pax = malloc(TAR_PAX_MAX);
	if (s->window && s->pax)
		rc = walk(s, each, arg);
	free(s->window);
	free(s->pax);
	free(s);
	return rc;
}

int tar_scan(const struct format_input *in, int (*each)(void *arg, const struct tar_member *m),
	     void *arg, struct format_fault *ret_fault)
{
	return scan(in, false, each, arg, ret_fault);
}

int tar_scan_all(const struct format_input *in, int (*each)(void *arg, const struct tar_member *m),
		 void *arg, struct format_fault *ret_fault)
{
	return scan(in, true, each, arg, ret_fault);
}

/* ---- WebDataset ---- */

struct grouping {
	struct index_builder *b;
	struct format_fault *fault;
	const char *archive; /* its path; may be NULL */
	char key[TAR_NAME_MAX + 1], field[TAR_NAME_MAX + 1], left[2 * TAR_NAME_MAX + 4];
	size_t key_len;
	bool open; /* a sample with this key is being filled */
};

/* True for "__meta__" and "__meta__/x.json", which are for other programs. */
static bool is_meta(const struct tar_member *m)
{
	const char *slash = memchr(m->name, '/', m->name_len);
	size_t len = slash ? (size_t)(slash - m->name) : m->name_len;
	return len >= 4 && memcmp(m->name, "__", 2) == 0 && memcmp(m->name + len - 2, "__", 2) == 0;
}

/* Returns the length of the key; 0: the member belongs to no sample. The key ends before the
 * first period of the last component. If that component begins with a period, the key ends after
 * the slash before it, unless that folder's name has a period. */
static size_t split_name(const struct tar_member *m)
{
	const char *slash = memrchr(m->name, '/', m->name_len);
	const char *base = slash ? slash + 1 : m->name;
	const char *end = m->name + m->name_len;
	const char *dot = memchr(base, '.', (size_t)(end - base));
	if (!dot || is_meta(m))
		return 0;
	if (dot == base) {
		if (!slash)
			return 0;
		const char *before = memrchr(m->name, '/', (size_t)(slash - m->name));
		const char *folder = before ? before + 1 : m->name;
		if (memchr(folder, '.', (size_t)(slash - folder)))
			return 0;
	}
	return (size_t)(dot - m->name);
}

static void leave_member(struct grouping *g, const struct tar_member *m)
{
	snprintf(g->left, sizeof(g->left), "%s%s%s", g->archive ? g->archive : "",
		 g->archive ? ": " : "", m->name);
	index_add_left(g->b, &(struct index_left_out){.why = INDEX_LEFT_MEMBER,
						      .kind = "",
						      .first = g->left,
						      .n = 1,
						      .bytes = m->len});
}

static int group_member(void *arg, const struct tar_member *m)
{
	struct grouping *g = arg;
	size_t key_len = split_name(m);
	if (key_len == 0) {
		leave_member(g, m);
		return index_builder_error(g->b);
	}
	size_t field_len = m->name_len - key_len - 1;
	for (size_t i = 0; i < field_len; i++)
		g->field[i] = (char)tolower((unsigned char)m->name[key_len + 1 + i]);
	if (!g->open || key_len != g->key_len || memcmp(m->name, g->key, key_len) != 0) {
		memcpy(g->key, m->name, key_len);
		g->key_len = key_len;
		g->open = true;
		index_add_sample(g->b, g->key, key_len, -1);
	} else if (index_has_member(g->b, g->field, field_len)) {
		*g->fault = (struct format_fault){m->off, "the same field twice in one sample: "
							  "two members have the same name, but for "
							  "capitals of the extension"};
		return -LE_CORRUPT;
	}
	index_add_member(g->b, g->field, field_len, m->off, m->len);
	int rc = index_builder_error(g->b);
	if (rc == -LE_2BIG)
		*g->fault = (struct format_fault){m->off, "too many fields"};
	return rc;
}

int tar_index(struct index_builder *b, const struct format_input *in,
	      struct format_fault *ret_fault)
{
	struct grouping *g = calloc(1, sizeof(*g));
	if (!g)
		return -LE_NOMEM;
	struct format_fault scan_fault;
	*ret_fault = (struct format_fault){0, ""};
	g->b = b;
	g->fault = ret_fault;
	g->archive = in->path;
	int rc = tar_scan(in, group_member, g, &scan_fault);
	if (rc < 0 && ret_fault->what[0] == 0)
		*ret_fault = scan_fault;
	free(g);
	return rc;
}
