/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the double of the client library: open files and locks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/fuse/fake_client.h"

/* ---- open files ---- */

static struct ll_file *open_node(struct fake_node *n, uint32_t flags)
{
	struct ll_file *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->node = n;
	f->flags = flags;
	n->opens++;
	fake.n_open++;
	fake.flags = flags;
	fake.unique = ll_request_unique();
	return f;
}

int ll_open(struct client *c, const struct cred *cred, struct ino ino, uint32_t flags,
	    struct ll_file **ret_file, struct attr *ret_attr, bool *ret_changed)
{
	struct fake_node *n = fake_node_of(ino);

	(void)c;
	fake.flags = flags;
	ENTER();
	fake_take_cred(cred);
	if (n == NULL)
		return -LE_STALE;
	if (flags & O_TRUNC)
		fake_resize(n, 0);
	*ret_file = open_node(n, flags);
	*ret_attr = n->attr;
	*ret_changed = fake.changed;
	return 0;
}

void ll_expect_read(struct ll_file *f)
{
	(void)f;
	fake.n_prefetches++;
}

int ll_create(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      uint32_t mode, uint32_t flags, struct ll_file **ret_file, struct attr *ret_attr)
{
	struct fake_name *found = fake_name_of(parent.v, (const char *)name.data, name.len);
	struct fake_node *n;

	(void)c;
	ENTER();
	fake_take_cred(cred);
	if (found != NULL && (flags & O_EXCL))
		return -LE_EXIST;
	if (found != NULL)
		n = fake_node_of((struct ino){found->ino});
	else
		TRY(fake_make_name(parent, name, mode | S_IFREG, &n));
	*ret_file = open_node(n, flags);
	*ret_attr = n->attr;
	return 0;
}

int ll_tmpfile(struct client *c, const struct cred *cred, struct ino parent, uint32_t mode,
	       uint32_t flags, struct ll_file **ret_file, struct attr *ret_attr)
{
	struct fake_node *n;

	(void)c, (void)parent;
	ENTER();
	fake_take_cred(cred);
	n = fake_add_node(mode | S_IFREG);
	n->attr.nlink = 0;
	*ret_file = open_node(n, flags);
	*ret_attr = n->attr;
	return 0;
}

static int take_error(struct ll_file *f)
{
	int status = f->write_error;

	f->write_error = 0;
	return status;
}

int ll_flush(struct ll_file *f)
{
	ENTER();
	return take_error(f);
}

int ll_fsync(struct ll_file *f, bool data_only)
{
	ENTER();
	fake.data_only = data_only;
	return take_error(f);
}

void ll_release(struct ll_file *f)
{
	fake_note(__func__);
	f->node->opens--;
	fake.n_open--;
	free(f);
}

struct ino ll_file_ino(const struct ll_file *f)
{
	return f->node->attr.ino;
}

int ll_read(struct ll_file *f, uint64_t off, uint32_t len, struct ll_data *ret_data)
{
	uint64_t left = off < f->node->attr.size ? f->node->attr.size - off : 0;
	struct slot *s;

	ENTER();
	*ret_data = (struct ll_data){.len = len < left ? len : left};
	if (ret_data->len == 0)
		return 0;
	TRY(slot_get(fake.slots, NO_DEADLINE, &s));
	memcpy(s->data, f->node->data + off, ret_data->len);
	ret_data->vec[0] = (struct slot_vec){s, 0, (uint32_t)ret_data->len};
	ret_data->n = 1;
	return 0;
}

void ll_data_release(struct ll_data *d)
{
	for (uint32_t i = 0; i < d->n; i++)
		slot_unref(d->vec[i].slot);
	d->n = 0;
}

int ll_read_leased(struct ll_file *f, uint64_t off, uint32_t len, struct ll_data *ret_data,
		   struct ll_chunk_leases **ret_leases)
{
	*ret_leases = NULL;
	ENTER();
	TRY(ll_read(f, off, len, ret_data));
	*ret_leases = malloc(1);
	fake.n_leases++;
	return 0;
}

void ll_release_leases(struct ll_chunk_leases *l)
{
	fake.n_leases--;
	free(l);
}

bool ll_past_pages(const struct ll_file *f)
{
	(void)f;
	return fake.past_pages;
}

static int64_t write_at(struct ll_file *f, const void *buf, uint64_t len, uint64_t off)
{
	if (off + len > f->node->attr.size)
		fake_resize(f->node, off + len);
	memcpy(f->node->data + off, buf, len);
	return (int64_t)len;
}

static uint64_t place(const struct ll_file *f, uint64_t off)
{
	return f->flags & O_APPEND ? f->node->attr.size : off;
}

int64_t ll_write(struct ll_file *f, uint64_t off, const struct slot_vec *vec, uint32_t n)
{
	ENTER();
	assert_int_equal(n, 1);
	return write_at(f, vec->slot->data + vec->off, vec->len, place(f, off));
}

int64_t ll_pwrite(struct ll_file *f, const void *buf, uint64_t len, uint64_t off)
{
	ENTER();
	return write_at(f, buf, len, place(f, off));
}

int64_t ll_write_pages(struct ll_file *f, uint64_t off, const struct slot_vec *vec, uint32_t n)
{
	ENTER();
	assert_int_equal(n, 1);
	return write_at(f, vec->slot->data + vec->off, vec->len, off);
}

int64_t ll_pwrite_pages(struct ll_file *f, const void *buf, uint64_t len, uint64_t off)
{
	ENTER();
	return write_at(f, buf, len, off);
}

void ll_set_append(struct ll_file *file, bool append)
{
	fake_note(__func__);
	file->flags = append ? file->flags | O_APPEND : file->flags & ~(uint32_t)O_APPEND;
}

int ll_fallocate(struct ll_file *f, uint32_t mode, uint64_t off, uint64_t len)
{
	ENTER();
	fake.mask = mode;
	if (off + len > f->node->attr.size)
		fake_resize(f->node, off + len);
	return 0;
}

int64_t ll_copy(struct ll_file *f, uint64_t off, struct ll_file *to, uint64_t to_off, uint64_t len)
{
	ENTER();
	if (!fake.copies)
		return -LE_NOTSUP;
	return write_at(to, f->node->data + off, len, to_off);
}

int64_t ll_seek(struct ll_file *f, uint64_t off, int whence)
{
	ENTER();
	if (off >= f->node->attr.size)
		return -LE_NXIO;
	return whence == SEEK_DATA ? (int64_t)off : (int64_t)f->node->attr.size;
}

void ll_leaves_pages(struct ll_file *f)
{
	f->leaves_pages = true;
}

bool ll_has_mapped(struct ll_file *f)
{
	bool had = f->mapped;

	f->mapped = false;
	return had;
}

/* ---- locks ---- */

static bool overlap(const struct file_lock *a, const struct file_lock *b)
{
	return a->kind == b->kind && a->first <= b->last && b->first <= a->last;
}

static struct fake_lock *in_the_way(struct ino ino, const struct file_lock *want)
{
	for (uint32_t i = 0; i < FAKE_LOCKS; i++) {
		struct fake_lock *k = &fake.locks[i];

		if (k->ino == ino.v && k->l.owner != want->owner && overlap(&k->l, want) &&
		    (k->l.type == FILE_LOCK_WRITE || want->type == FILE_LOCK_WRITE))
			return k;
	}
	return NULL;
}

/* Whole locks only: no lock is split. */
static void drop_locks(struct ino ino, const struct file_lock *l)
{
	for (uint32_t i = 0; i < FAKE_LOCKS; i++)
		if (fake.locks[i].ino == ino.v && fake.locks[i].l.owner == l->owner &&
		    overlap(&fake.locks[i].l, l))
			fake.locks[i].ino = 0;
	waitq_wake_all(&fake.waiting);
}

int ll_lock(struct ll_file *f, const struct file_lock *want, bool wait)
{
	struct ino ino = ll_file_ino(f);
	uint32_t i = 0;

	ENTER();
	while (want->type != FILE_LOCK_NONE && in_the_way(ino, want) != NULL) {
		if (!wait)
			return -LE_LOCKED;
		TRY(waitq_wait(&fake.waiting, NO_DEADLINE));
	}
	drop_locks(ino, want);
	if (want->type == FILE_LOCK_NONE)
		return 0;
	while (fake.locks[i].ino != 0)
		i++;
	assert_true(i < FAKE_LOCKS);
	fake.locks[i] = (struct fake_lock){ino.v, *want};
	return 0;
}

void ll_unlock_all(struct ll_file *f)
{
	(void)f;
	fake_note(__func__);
}

int ll_lock_test(struct ll_file *f, const struct file_lock *want, struct file_lock *ret_lock)
{
	struct fake_lock *k;

	ENTER();
	k = in_the_way(ll_file_ino(f), want);
	*ret_lock = k ? k->l : (struct file_lock){.type = FILE_LOCK_NONE};
	return 0;
}

/* ---- after another daemon ---- */

int ll_resume_file(struct client *c, struct ino ino, const struct cred *cred, uint32_t flags,
		   struct ll_file **ret_file)
{
	struct fake_node *n = fake_node_of(ino);

	(void)c;
	ENTER();
	fake_take_cred(cred);
	if (n == NULL)
		return -LE_STALE;
	*ret_file = open_node(n, flags);
	return 0;
}

void ll_resume_owner(struct ll_file *f, uint64_t owner)
{
	assert_true(f->n_owners < ARRAY_SIZE(f->owners));
	f->owners[f->n_owners++] = owner;
}
