/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/formats/index.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/checksum.h"
#include "common/base/content_hash.h"

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "the index lies in memory as it lies in the file");

#define MAGIC   0x315844495441454cULL /* "LEATIDX1" */
#define VERSION 5u
#define FLAG_GUESSED 1u
_Static_assert(sizeof(struct index_member) == 32, "as it lies in the file");
/* Types of fields while the index is built. */
#define TYPE_NONE  UINT64_MAX
#define TYPE_MIXED (UINT64_MAX - 1)

struct header {
	uint64_t magic;
	uint32_t version, format;
	uint32_t n_files, n_fields, n_classes;
	uint16_t n_left, flags;
	uint64_t n_samples, n_members, strings_len;
	uint64_t sum; /* xxh3 of all that follows, seeded with that of the header with sum 0 */
};

_Static_assert(sizeof(struct header) == INDEX_HEAD_SIZE, "the file's head");

struct index_builder {
	struct sample_index x;
	uint64_t cap_files, cap_samples, cap_members, cap_fields, cap_types, cap_last, cap_classes;
	uint64_t cap_strings;
	uint64_t *last; /* for each field, the number of the last sample that has it, + 1 */
	int error;
};

/* ---- reading ---- */

void index_destroy(struct sample_index *x)
{
	if (!x)
		return;
	free(x->files);
	free(x->samples);
	free(x->members);
	free(x->fields);
	free(x->types);
	free(x->classes);
	free(x->left);
	free(x->slots);
	free(x->strings);
	free(x);
}

const char *index_left_name(uint64_t why)
{
	static const char *const names[] = {"hidden", "format", "beside", "member"};
	_Static_assert(sizeof(names) / sizeof(names[0]) == INDEX_LEFT_WHYS, "one each");
	return why < INDEX_LEFT_WHYS ? names[why] : "";
}

/* Returns the slot of that name, or the free slot for it. */
static uint32_t slot_of(const struct sample_index *x, const char *name, size_t len)
{
	uint32_t at = (uint32_t)checksum64(name, len) & (x->n_slots - 1);
	for (; x->slots[at]; at = (at + 1) & (x->n_slots - 1)) {
		const char *have = index_string(x, x->fields[x->slots[at] - 1]);
		if (strlen(have) == len && memcmp(have, name, len) == 0)
			break;
	}
	return at;
}

static int field_number(const struct sample_index *x, const char *name, size_t len)
{
	return x->n_slots ? (int)x->slots[slot_of(x, name, len)] - 1 : -1;
}

int index_field(const struct sample_index *x, const char *name)
{
	return field_number(x, name, strlen(name));
}

/* Rebuilds the slots for the first n fields, with space for as many again. */
static int make_slots(struct sample_index *x, uint32_t n)
{
	uint32_t size = 64;
	while (size < 4 * (uint64_t)n)
		size *= 2;
	uint32_t *slots = calloc(size, sizeof(*slots));
	if (!slots)
		return -LE_NOMEM;
	free(x->slots);
	x->slots = slots;
	x->n_slots = size;
	for (uint32_t f = 0; f < n; f++) {
		const char *name = index_string(x, x->fields[f]);
		slots[slot_of(x, name, strlen(name))] = f + 1;
	}
	return 0;
}

int index_know_field(struct sample_index *x, uint32_t f)
{
	const char *name = index_string(x, x->fields[f]);
	if (2 * ((uint64_t)f + 1) > x->n_slots)
		TRY(make_slots(x, f));
	uint32_t at = slot_of(x, name, strlen(name));
	if (x->slots[at])
		return -LE_EXIST;
	x->slots[at] = f + 1;
	return 0;
}

uint64_t *index_shard_firsts(const struct sample_index *x)
{
	uint64_t *first = malloc(((size_t)x->n_files + 1) * sizeof(*first));
	if (!first)
		return NULL;
	for (uint32_t i = 0; i <= x->n_files; i++)
		first[i] = x->files[i].first;
	return first;
}

uint64_t index_order_word(const struct sample_index *x)
{
	static const char head[] = "leat order 1\n";
	struct content_hash h;
	uint8_t hash[CONTENT_HASH_LEN];
	char size[24];
	uint64_t word;
	content_hash_init(&h);
	content_hash_add(&h, head, sizeof(head) - 1);
	for (uint32_t i = 0; i < x->n_files; i++) {
		const char *path = index_string(x, x->files[i].path);
		int n = snprintf(size, sizeof(size), "%llu\n",
				 (unsigned long long)x->files[i].size);
		content_hash_add(&h, path, strlen(path) + 1);
		content_hash_add(&h, size, (size_t)n);
	}
	content_hash_final(&h, hash);
	memcpy(&word, hash, sizeof(word));
	return word;
}

uint64_t index_bytes(const struct sample_index *x)
{
	uint64_t sum = 0;
	for (uint64_t m = 0; m < x->n_members; m++)
		sum += x->members[m].raw;
	return sum;
}

/* ---- building ---- */

/* Grows an array to n elements of `size` bytes. Keeps the first error. */
static bool grow(struct index_builder *b, void *array, uint64_t *cap, uint64_t n, size_t size)
{
	void **p = array;
	if (b->error)
		return false;
	if (n <= *cap)
		return true;
	uint64_t want = n + n / 2 + 64;
	void *more = realloc(*p, want * size);
	if (!more) {
		b->error = -LE_NOMEM;
		return false;
	}
	*p = more;
	*cap = want;
	return true;
}

static uint64_t add_string(struct index_builder *b, const char *s, size_t len)
{
	struct sample_index *x = &b->x;
	if (memchr(s, 0, len))
		b->error = b->error ? b->error : -LE_INVAL;
	if (!grow(b, &x->strings, &b->cap_strings, x->strings_len + len + 1, 1))
		return 0;
	uint64_t off = x->strings_len;
	memcpy(x->strings + off, s, len);
	x->strings[off + len] = 0;
	x->strings_len += len + 1;
	return off;
}

int index_builder_create(enum index_format format, struct index_builder **ret_builder)
{
	struct index_builder *b = calloc(1, sizeof(*b));
	if (!b)
		return -LE_NOMEM;
	b->x.format = format;
	b->x.left = calloc(INDEX_LEFT_MAX, sizeof(*b->x.left));
	if (!b->x.left) {
		index_builder_destroy(b);
		return -LE_NOMEM;
	}
	*ret_builder = b;
	return 0;
}

void index_builder_destroy(struct index_builder *b)
{
	if (!b)
		return;
	free(b->x.files);
	free(b->x.samples);
	free(b->x.members);
	free(b->x.fields);
	free(b->x.types);
	free(b->x.classes);
	free(b->x.left);
	free(b->x.slots);
	free(b->last);
	free(b->x.strings);
	free(b);
}

int index_builder_error(const struct index_builder *b)
{
	return b->error;
}

void index_add_file(struct index_builder *b, const char *path, uint64_t size)
{
	struct sample_index *x = &b->x;
	/* One more for the end mark, here and with samples. */
	if (!grow(b, &x->files, &b->cap_files, (uint64_t)x->n_files + 2, sizeof(*x->files)))
		return;
	if (x->n_files > 0 && strcmp(index_string(x, x->files[x->n_files - 1].path), path) >= 0)
		b->error = -LE_INVAL;
	else if (x->n_files == INDEX_FILES_MAX || size > INT64_MAX)
		b->error = -LE_FBIG;
	if (b->error)
		return;
	struct index_file *f = &x->files[x->n_files];
	f->path = add_string(b, path, strlen(path));
	f->size = f->plain = size;
	f->packing = PACKED_NOT;
	f->first = x->n_samples;
	x->n_files++;
}

void index_file_packed(struct index_builder *b, enum packing packing, uint64_t plain)
{
	if (b->error)
		return;
	if (plain > INT64_MAX || b->x.n_files == 0) {
		b->error = -LE_FBIG;
		return;
	}
	struct index_file *f = &b->x.files[b->x.n_files - 1];
	f->packing = packing;
	f->plain = plain;
}

void index_add_sample(struct index_builder *b, const char *key, size_t key_len, int32_t label)
{
	struct sample_index *x = &b->x;
	if (!grow(b, &x->samples, &b->cap_samples, x->n_samples + 2, sizeof(*x->samples)))
		return;
	if (x->n_files == 0 || x->n_samples == INDEX_SAMPLES_MAX) {
		b->error = -LE_INVAL;
		return;
	}
	struct index_sample *s = &x->samples[x->n_samples];
	s->first = x->n_members;
	s->key = add_string(b, key, key_len);
	s->file = x->n_files - 1;
	s->label = label;
	x->n_samples++;
}

bool index_has_member(const struct index_builder *b, const char *field, size_t field_len)
{
	const struct sample_index *x = &b->x;
	int f = field_number(x, field, field_len);
	return !b->error && f >= 0 && x->n_samples > 0 && b->last[f] == x->n_samples;
}

/* Returns the field's number and adds the field if necessary; negative: error. */
static int need_field(struct index_builder *b, const char *name, size_t len)
{
	struct sample_index *x = &b->x;
	int f = field_number(x, name, len);
	if (f >= 0 || b->error)
		return f;
	if (x->n_fields == INDEX_FIELDS_MAX) {
		b->error = -LE_2BIG;
		return -1;
	}
	uint64_t n = (uint64_t)x->n_fields + 1, at = add_string(b, name, len);
	if (!grow(b, &x->fields, &b->cap_fields, n, sizeof(*x->fields)) ||
	    !grow(b, &x->types, &b->cap_types, n, sizeof(*x->types)) ||
	    !grow(b, &b->last, &b->cap_last, n, sizeof(*b->last)))
		return -1;
	f = (int)x->n_fields;
	x->fields[f] = at;
	x->types[f] = TYPE_NONE;
	b->last[f] = 0;
	int rc = index_know_field(x, (uint32_t)f);
	if (rc < 0) {
		b->error = rc;
		return -1;
	}
	x->n_fields++;
	return f;
}

void index_field_type(struct index_builder *b, const char *field, size_t field_len,
		      const char *type)
{
	struct sample_index *x = &b->x;
	int f = need_field(b, field, field_len);
	if (f < 0)
		return;
	if (x->types[f] == TYPE_NONE)
		x->types[f] = add_string(b, type, strlen(type));
	else if (x->types[f] != TYPE_MIXED && strcmp(index_string(x, x->types[f]), type) != 0)
		x->types[f] = TYPE_MIXED;
}

void index_member_check(struct index_builder *b, enum index_check check, uint32_t crc)
{
	if (b->error || b->x.n_members == 0)
		return;
	b->x.members[b->x.n_members - 1].check = (uint32_t)check & 15;
	b->x.members[b->x.n_members - 1].crc = crc;
}

void index_member_deflated(struct index_builder *b, uint64_t raw)
{
	if (b->error || b->x.n_members == 0)
		return;
	b->x.members[b->x.n_members - 1].codec = INDEX_DEFLATED;
	b->x.members[b->x.n_members - 1].raw = raw;
}

void index_add_member(struct index_builder *b, const char *field, size_t field_len, uint64_t off,
		      uint64_t len)
{
	struct sample_index *x = &b->x;
	if (!grow(b, &x->members, &b->cap_members, x->n_members + 1, sizeof(*x->members)))
		return;
	uint64_t size = x->n_files ? x->files[x->n_files - 1].plain : 0;
	if (x->n_samples == 0 || off > size || len > size - off ||
	    x->n_members - x->samples[x->n_samples - 1].first >= INDEX_MEMBERS_MAX) {
		b->error = -LE_INVAL;
		return;
	}
	int f = need_field(b, field, field_len);
	if (f < 0)
		return;
	b->last[f] = x->n_samples;
	x->members[x->n_members++] = (struct index_member){
		.off = off, .len = len, .raw = len, .field = (uint32_t)f & INDEX_FIELDS_MAX};
}

void index_add_class(struct index_builder *b, const char *name, size_t len)
{
	struct sample_index *x = &b->x;
	if (!grow(b, &x->classes, &b->cap_classes, (uint64_t)x->n_classes + 1, sizeof(*x->classes)))
		return;
	x->classes[x->n_classes++] = add_string(b, name, len);
}

void index_set_guessed(struct index_builder *b)
{
	b->x.guessed = true;
}

/* Returns the entry of this reason and kind, or the last entry if the table is full. */
static struct index_left *left_of(struct index_builder *b, const struct index_left_out *l)
{
	struct sample_index *x = &b->x;
	for (uint32_t i = 0; i < x->n_left; i++) {
		struct index_left *have = &x->left[i];
		if (have->why == l->why && strcmp(index_string(x, have->kind), l->kind) == 0)
			return have;
	}
	if (x->n_left == INDEX_LEFT_MAX)
		return &x->left[INDEX_LEFT_MAX - 1];
	bool last = x->n_left + 1 == INDEX_LEFT_MAX;
	uint64_t kind = add_string(b, l->kind, last ? 0 : strlen(l->kind));
	uint64_t first = add_string(b, l->first, strlen(l->first));
	if (b->error)
		return NULL;
	x->left[x->n_left] = (struct index_left){.kind = kind, .first = first, .why = l->why};
	return &x->left[x->n_left++];
}

void index_add_left(struct index_builder *b, const struct index_left_out *l)
{
	struct index_left *to = b->error ? NULL : left_of(b, l);
	if (!to)
		return;
	to->n += l->n;
	to->bytes += l->bytes;
}

int index_builder_finish(struct index_builder *b, struct sample_index **ret_index)
{
	struct sample_index *x = &b->x;
	(void)grow(b, &x->files, &b->cap_files, (uint64_t)x->n_files + 1, sizeof(*x->files));
	(void)grow(b, &x->samples, &b->cap_samples, x->n_samples + 1, sizeof(*x->samples));
	(void)grow(b, &x->members, &b->cap_members, x->n_members + 1, sizeof(*x->members));
	(void)grow(b, &x->classes, &b->cap_classes, (uint64_t)x->n_classes + 1,
		   sizeof(*x->classes));
	uint64_t empty = add_string(b, "", 0);
	if (b->error)
		return b->error;
	for (uint32_t i = 0; i < x->n_fields; i++) {
		if (x->types[i] >= TYPE_MIXED)
			x->types[i] = empty;
	}
	x->files[x->n_files] = (struct index_file){.path = empty, .first = x->n_samples};
	x->samples[x->n_samples] = (struct index_sample){.first = x->n_members, .key = empty};
	struct sample_index *done = malloc(sizeof(*done));
	if (!done)
		return -LE_NOMEM;
	*done = *x;
	memset(x, 0, sizeof(*x));
	*ret_index = done;
	return 0;
}

/* ---- the file ---- */

struct part {
	void **array;
	uint64_t n;
	size_t size;
};

#define N_PARTS 8
static void parts_of(struct sample_index *x, struct part p[N_PARTS])
{
	p[0] = (struct part){(void **)&x->files, (uint64_t)x->n_files + 1, sizeof(*x->files)};
	p[1] = (struct part){(void **)&x->samples, x->n_samples + 1, sizeof(*x->samples)};
	p[2] = (struct part){(void **)&x->members, x->n_members, sizeof(*x->members)};
	p[3] = (struct part){(void **)&x->fields, x->n_fields, sizeof(uint64_t)};
	p[4] = (struct part){(void **)&x->types, x->n_fields, sizeof(uint64_t)};
	p[5] = (struct part){(void **)&x->classes, x->n_classes, sizeof(uint64_t)};
	p[6] = (struct part){(void **)&x->left, x->n_left, sizeof(*x->left)};
	p[7] = (struct part){(void **)&x->strings, x->strings_len, 1};
}

static uint64_t file_sum(const struct header *h, const void *body, size_t len)
{
	struct header zeroed = *h;
	zeroed.sum = 0;
	return checksum64_seed(body, len, checksum64(&zeroed, sizeof(zeroed)));
}

int index_encode(const struct sample_index *x, void **ret_data, size_t *ret_len)
{
	struct sample_index copy = *x;
	struct part parts[N_PARTS];
	size_t len = sizeof(struct header);
	parts_of(&copy, parts);
	for (int i = 0; i < N_PARTS; i++)
		len += parts[i].n * parts[i].size;
	uint8_t *data = malloc(len), *at = data + sizeof(struct header);
	if (!data)
		return -LE_NOMEM;
	for (int i = 0; i < N_PARTS; i++) {
		size_t n = parts[i].n * parts[i].size;
		if (n)
			memcpy(at, *parts[i].array, n);
		at += n;
	}
	struct header h = {.magic = MAGIC,
			   .version = VERSION,
			   .format = x->format,
			   .n_files = x->n_files,
			   .n_fields = x->n_fields,
			   .n_classes = x->n_classes,
			   .n_left = (uint16_t)x->n_left,
			   .flags = x->guessed ? FLAG_GUESSED : 0,
			   .n_samples = x->n_samples,
			   .n_members = x->n_members,
			   .strings_len = x->strings_len};
	h.sum = file_sum(&h, data + sizeof(h), len - sizeof(h));
	memcpy(data, &h, sizeof(h));
	*ret_data = data;
	*ret_len = len;
	return 0;
}

/* Enters all fields into the slots. -LE_CORRUPT, also if two have one name; -LE_NOMEM. */
static int know_fields(struct sample_index *x)
{
	for (uint32_t f = 0; f < x->n_fields; f++) {
		if (x->fields[f] >= x->strings_len || x->types[f] >= x->strings_len)
			return -LE_CORRUPT;
		int rc = index_know_field(x, f);
		if (rc < 0)
			return rc == -LE_EXIST ? -LE_CORRUPT : rc;
	}
	return 0;
}

static bool strings_are_sound(const struct sample_index *x)
{
	if (x->strings_len == 0 || x->strings[x->strings_len - 1] != 0)
		return false;
	for (uint32_t c = 0; c < x->n_classes; c++) {
		if (x->classes[c] >= x->strings_len)
			return false;
	}
	for (uint32_t i = 0; i < x->n_left; i++) {
		if (x->left[i].kind >= x->strings_len || x->left[i].first >= x->strings_len ||
		    x->left[i].why >= INDEX_LEFT_WHYS)
			return false;
	}
	return true;
}

static bool files_are_sound(const struct sample_index *x)
{
	if (x->files[0].first != 0 || x->files[x->n_files].first != x->n_samples)
		return false;
	for (uint32_t i = 0; i < x->n_files; i++) {
		const struct index_file *f = &x->files[i];
		if (f->path >= x->strings_len || f->size > INT64_MAX || f[0].first > f[1].first ||
		    f->plain > INT64_MAX || f->packing >= PACKINGS ||
		    (f->packing == PACKED_NOT && f->plain != f->size))
			return false;
		if (i > 0 && strcmp(index_string(x, f[-1].path), index_string(x, f->path)) >= 0)
			return false;
	}
	return true;
}

static bool member_is_sound(const struct index_member *m, uint32_t n_fields, uint64_t size)
{
	return m->field < n_fields && m->off <= size && m->len <= size - m->off &&
	       m->codec <= INDEX_DEFLATED && m->check <= INDEX_CRC32 && m->raw <= INT64_MAX &&
	       (m->codec != INDEX_PLAIN || m->raw == m->len);
}

/* A batch has one cell for each field of a sample, so a field may not occur twice. last: for
 * each field, as in the builder. */
static bool members_are_sound(const struct sample_index *x, uint64_t s, uint64_t *last)
{
	uint64_t size = x->files[x->samples[s].file].plain;
	for (uint64_t m = x->samples[s].first; m < x->samples[s + 1].first; m++) {
		const struct index_member *member = &x->members[m];
		if (!member_is_sound(member, x->n_fields, size) || last[member->field] == s + 1)
			return false;
		last[member->field] = s + 1;
	}
	return true;
}

static bool samples_are_sound(const struct sample_index *x, uint64_t *last)
{
	if (x->samples[0].first != 0 || x->samples[x->n_samples].first != x->n_members)
		return false;
	for (uint32_t i = 0; i < x->n_files; i++) {
		for (uint64_t s = x->files[i].first; s < x->files[i + 1].first; s++) {
			const struct index_sample *sample = &x->samples[s];
			if (sample->file != i || sample->key >= x->strings_len ||
			    sample->label < -1 || sample->label >= (int64_t)x->n_classes ||
			    sample[0].first > sample[1].first ||
			    sample[1].first - sample[0].first > INDEX_MEMBERS_MAX ||
			    sample[1].first > x->n_members ||
			    !members_are_sound(x, s, last))
				return false;
		}
	}
	return true;
}

static bool header_is_sound(const struct header *h, size_t len)
{
	if (h->format >= INDEX_FORMATS ||
	    h->flags > FLAG_GUESSED || h->n_left > INDEX_LEFT_MAX)
		return false;
	if (h->n_files > INDEX_FILES_MAX || h->n_fields > INDEX_FIELDS_MAX || h->n_samples > len ||
	    h->n_members > len || h->strings_len > len || h->n_classes > len)
		return false;
	uint64_t want = sizeof(*h) + ((uint64_t)h->n_files + 1) * sizeof(struct index_file) +
			(h->n_samples + 1) * sizeof(struct index_sample) +
			h->n_members * sizeof(struct index_member) +
			(2 * (uint64_t)h->n_fields + h->n_classes) * sizeof(uint64_t) +
			h->n_left * sizeof(struct index_left) + h->strings_len;
	return want == len;
}

int index_decode(const void *data, size_t len, struct sample_index **ret_index)
{
	struct header h;
	struct part parts[N_PARTS];
	const uint8_t *at = data;
	if (len < sizeof(h))
		return -LE_CORRUPT;
	memcpy(&h, data, sizeof(h));
	if (h.magic != MAGIC || file_sum(&h, at + sizeof(h), len - sizeof(h)) != h.sum)
		return -LE_CORRUPT;
	if (h.version != VERSION)
		return -LE_NOTSUP;
	if (!header_is_sound(&h, len))
		return -LE_CORRUPT;
	struct sample_index *x = calloc(1, sizeof(*x));
	if (!x)
		return -LE_NOMEM;
	int rc = 0;
	x->format = (enum index_format)h.format;
	x->n_files = h.n_files;
	x->n_fields = h.n_fields;
	x->n_classes = h.n_classes;
	x->n_left = h.n_left;
	x->guessed = h.flags & FLAG_GUESSED;
	x->n_samples = h.n_samples;
	x->n_members = h.n_members;
	x->strings_len = h.strings_len;
	parts_of(x, parts);
	at += sizeof(h);
	for (int i = 0; i < N_PARTS && rc == 0; i++) {
		size_t n = parts[i].n * parts[i].size;
		*parts[i].array = malloc(n ? n : 1);
		if (!*parts[i].array)
			rc = -LE_NOMEM;
		else if (n)
			memcpy(*parts[i].array, at, n);
		at += n;
	}
	uint64_t *last = rc == 0 ? calloc((size_t)x->n_fields + 1, sizeof(*last)) : NULL;
	if (rc == 0 && !last)
		rc = -LE_NOMEM;
	if (rc == 0 && !strings_are_sound(x))
		rc = -LE_CORRUPT;
	if (rc == 0)
		rc = know_fields(x);
	if (rc == 0 && !(files_are_sound(x) && samples_are_sound(x, last)))
		rc = -LE_CORRUPT;
	free(last);
	if (rc < 0)
		index_destroy(x);
	else
		*ret_index = x;
	return rc;
}
