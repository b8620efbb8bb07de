/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fuse/fake_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/proto/mds_proto.h"

/* A cookie's upper bits are used, as in the servers' cookies, so that folding to 32 bits changes
 * them. */
#define COOKIE(i) (((uint64_t)(i) + 1) << 48)
#define SLOT_SIZE (1u << 20)

struct fake fake;

/* ---- controls ---- */

struct client *fake_start(void)
{
	memset(&fake, 0, sizeof(fake));
	waitq_init(&fake.waiting);
	assert_int_equal(slot_pool_create(SLOT_SIZE, 16, &fake.slots), 0);
	fake.leased = true;
	fake.attr_us = fake.name_us = 2500000;
	fake.n_nodes = 1;
	fake.nodes[0].attr = (struct attr){.ino = LEAT_ROOT_INO,
					   .mode = S_IFDIR | 0755,
					   .nlink = 2,
					   .layout = {.chunk_size = 1 << 20}};
	return (struct client *)&fake;
}

void fake_stop(void)
{
	for (uint32_t i = 0; i < FAKE_LOCKS; i++)
		fake.locks[i].ino = 0;
	fake.fail_fn = NULL;
	fake_unblock();
}

void fake_fini(void)
{
	for (uint32_t i = 0; i < fake.n_nodes; i++)
		free(fake.nodes[i].data);
	slot_pool_destroy(fake.slots);
}

void fake_note(const char *fn)
{
	uint32_t i = 0;

	while (fake.calls[i].fn != NULL && strcmp(fake.calls[i].fn, fn) != 0)
		i++;
	assert_true(i < ARRAY_SIZE(fake.calls) - 1);
	fake.calls[i].fn = fn;
	fake.calls[i].n++;
}

uint32_t fake_count(const char *fn)
{
	for (uint32_t i = 0; fake.calls[i].fn != NULL; i++)
		if (strcmp(fake.calls[i].fn, fn) == 0)
			return fake.calls[i].n;
	return 0;
}

void fake_unblock(void)
{
	fake.block_fn = NULL;
	waitq_wake_all(&fake.waiting);
}

void fake_fail(const char *fn, int status)
{
	fake.fail_fn = fn;
	fake.fail_status = status;
}

static bool is_fn(const char *fn, const char *name)
{
	return name != NULL && strcmp(fn, name) == 0;
}

/* What each call does first. */
int fake_enter(const char *fn)
{
	struct ll_request *r = fiber_local();

	fake_note(fn);
	while (is_fn(fn, fake.block_fn)) {
		if (r != NULL)
			r->waiting = fiber_self();
		int status = waitq_wait(&fake.waiting, NO_DEADLINE);
		if (r != NULL)
			r->waiting = NULL;
		if (!fake.stubborn && (status < 0 || (r != NULL && r->cancelled)))
			return -LE_INTR;
	}
	if (!is_fn(fn, fake.fail_fn))
		return 0;
	if (!fake.fail_always)
		fake.fail_fn = NULL;
	return fake.fail_status;
}

void fake_take_cred(const struct cred *cred)
{
	fake.cred = *cred;
	fake.n_groups = cred->groups.len / 4;
	assert_true(fake.n_groups <= ARRAY_SIZE(fake.groups));
	for (uint32_t i = 0; i < fake.n_groups; i++)
		memcpy(&fake.groups[i], cred->groups.data + 4 * i, 4);
}

/* ---- nodes ---- */

struct fake_node *fake_node_of(struct ino ino)
{
	for (uint32_t i = 0; i < fake.n_nodes; i++)
		if (fake.nodes[i].attr.ino.v == ino.v)
			return &fake.nodes[i];
	return NULL;
}

struct fake_name *fake_name_of(uint64_t dir, const char *name, size_t len)
{
	for (uint32_t i = 0; i < fake.n_names; i++) {
		struct fake_name *n = &fake.names[i];

		if (n->ino != 0 && n->dir == dir && strlen(n->name) == len &&
		    memcmp(n->name, name, len) == 0)
			return n;
	}
	return NULL;
}

struct fake_node *fake_find(uint64_t dir, const char *name)
{
	struct fake_name *n = fake_name_of(dir, name, strlen(name));

	return n ? fake_node_of((struct ino){n->ino}) : NULL;
}

static void add_name(uint64_t dir, const void *name, size_t len, uint64_t ino)
{
	struct fake_name *n = &fake.names[fake.n_names++];

	assert_true(fake.n_names <= FAKE_NODES && len < sizeof(n->name));
	*n = (struct fake_name){.dir = dir, .ino = ino};
	memcpy(n->name, name, len);
}

struct fake_node *fake_add_node(uint32_t mode)
{
	struct fake_node *n = &fake.nodes[fake.n_nodes++];

	assert_true(fake.n_nodes <= FAKE_NODES);
	n->attr = (struct attr){
		.ino = {99 + fake.n_nodes},
		.mode = mode,
		.nlink = S_ISDIR(mode) ? 2 : 1,
		.mtime_ns = 1000000000,
		.ctime_ns = 1000000000,
		.change = 1,
		.layout = {.table = 1, .width = 2, .chunk_size = 1 << 20, .replicas = 1},
	};
	return n;
}

struct fake_node *fake_make(uint64_t dir, const char *name, uint32_t mode)
{
	struct fake_node *n = fake_add_node(mode);

	add_name(dir, name, strlen(name), n->attr.ino.v);
	return n;
}

void fake_resize(struct fake_node *n, uint64_t size)
{
	n->data = realloc(n->data, size + 1);
	assert_non_null(n->data);
	if (size > n->attr.size)
		memset(n->data + n->attr.size, 0, size - n->attr.size);
	n->attr.size = size;
	n->attr.blocks = (size + 511) / 512;
	n->attr.change++;
}

struct fake_node *fake_file(const char *name, uint8_t byte, uint64_t len)
{
	struct fake_node *n = fake_make(1, name, S_IFREG | 0644);

	fake_resize(n, len);
	memset(n->data, byte, len);
	return n;
}

/* ---- requests ---- */

void ll_request_begin(struct ll_request *r, struct client *c, uint64_t unique)
{
	*r = (struct ll_request){.c = c, .unique = unique, .slot = -1};
	fiber_set_local(r);
}

void ll_request_end(struct ll_request *r)
{
	(void)r;
	fiber_set_local(NULL);
}

uint64_t ll_request_unique(void)
{
	const struct ll_request *r = fiber_local();

	return r ? r->unique : 0;
}

void ll_request_cancel(struct ll_request *r)
{
	fake.n_withdrawn++;
	r->cancelled = true;
	if (r->waiting)
		fiber_interrupt(r->waiting);
}

/* ---- what the kernel may cache ---- */

uint64_t ll_attr_us(struct client *c, const struct attr *attr)
{
	(void)c, (void)attr;
	return fake.attr_us;
}

uint64_t ll_name_us(struct client *c, struct ino dir, struct bytes name, struct ino ino)
{
	(void)c, (void)dir, (void)name, (void)ino;
	return fake.name_us;
}

bool ll_leased(struct client *c, struct ino ino)
{
	(void)c, (void)ino;
	return fake.leased;
}

bool ll_mds_checks_access(const struct client *c)
{
	(void)c;
	return fake.judged;
}

bool ll_hold(struct client *c, struct ino ino)
{
	(void)c, (void)ino;
	fake.n_held++;
	return true;
}

void ll_unhold(struct client *c, struct ino ino)
{
	(void)c, (void)ino;
	fake.n_held--;
}

/* ---- names ---- */

int ll_lookup(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      struct attr *ret_attr)
{
	struct fake_name *n;

	(void)c;
	ENTER();
	fake_take_cred(cred);
	n = fake_name_of(parent.v, (const char *)name.data, name.len);
	if (n == NULL)
		return -LE_NOENT;
	*ret_attr = fake_node_of((struct ino){n->ino})->attr;
	return 0;
}

int ll_getattr(struct client *c, const struct cred *cred, struct ino ino, struct attr *ret_attr)
{
	struct fake_node *n;

	(void)c;
	ENTER();
	fake_take_cred(cred);
	n = fake_node_of(ino);
	if (n == NULL)
		return -LE_STALE;
	*ret_attr = n->attr;
	return 0;
}

int ll_getattr_rights(struct client *c, const struct cred *cred, struct ino ino,
		      struct attr *ret_attr)
{
	return ll_getattr(c, cred, ino, ret_attr);
}

static void set(struct attr *a, uint32_t mask, const struct attr *to)
{
	if (mask & SET_MODE)
		a->mode = (a->mode & S_IFMT) | (to->mode & ~(uint32_t)S_IFMT);
	if (mask & SET_UID)
		a->uid = to->uid;
	if (mask & SET_GID)
		a->gid = to->gid;
	if (mask & SET_ATIME)
		a->atime_ns = to->atime_ns;
	if (mask & SET_MTIME)
		a->mtime_ns = to->mtime_ns;
	if (mask & SET_FLAGS)
		a->flags = (a->flags & ~(uint32_t)ATTR_SETTABLE) | to->flags;
	if (mask & SET_PROJECT)
		a->project = to->project;
	if (mask & SET_KILL_SUID)
		a->mode &= ~(uint32_t)S_ISUID & ~(a->mode & S_IXGRP ? (uint32_t)S_ISGID : 0u);
	a->change++;
}

int ll_setattr(struct client *c, const struct cred *cred, struct ino ino, struct ll_file *file,
	       uint32_t mask, const struct attr *attr, struct attr *ret_attr)
{
	struct fake_node *n = fake_node_of(ino);

	(void)c, (void)file;
	ENTER();
	fake_take_cred(cred);
	fake.mask = mask;
	fake.set = *attr;
	if (n == NULL)
		return -LE_STALE;
	if (mask & SET_SIZE)
		fake_resize(n, attr->size);
	set(&n->attr, mask, attr);
	if (ret_attr)
		*ret_attr = n->attr;
	return 0;
}

int fake_make_name(struct ino parent, struct bytes name, uint32_t mode, struct fake_node **ret_node)
{
	if (fake_name_of(parent.v, (const char *)name.data, name.len) != NULL)
		return -LE_EXIST;
	*ret_node = fake_add_node(mode & ~fake.cred.umask);
	(*ret_node)->attr.uid = fake.cred.uid;
	(*ret_node)->attr.gid = fake.cred.gid;
	add_name(parent.v, name.data, name.len, (*ret_node)->attr.ino.v);
	return 0;
}

int ll_mknod(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	     uint32_t mode, uint32_t rdev, struct attr *ret_attr)
{
	struct fake_node *n;

	(void)c;
	ENTER();
	fake_take_cred(cred);
	TRY(fake_make_name(parent, name, mode, &n));
	n->attr.rdev = rdev;
	*ret_attr = n->attr;
	return 0;
}

int ll_mkdir(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	     uint32_t mode, struct attr *ret_attr)
{
	struct fake_node *n;

	(void)c;
	ENTER();
	fake_take_cred(cred);
	TRY(fake_make_name(parent, name, mode | S_IFDIR, &n));
	*ret_attr = n->attr;
	return 0;
}

int ll_symlink(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	       struct bytes target, struct attr *ret_attr)
{
	struct fake_node *n;

	(void)c;
	ENTER();
	fake_take_cred(cred);
	TRY(fake_make_name(parent, name, S_IFLNK | 0777, &n));
	fake_resize(n, target.len);
	memcpy(n->data, target.data, target.len);
	*ret_attr = n->attr;
	return 0;
}

int ll_readlink(struct client *c, const struct cred *cred, struct ino ino, char *buf, size_t size)
{
	struct fake_node *n = fake_node_of(ino);

	(void)c;
	ENTER();
	fake_take_cred(cred);
	if (n == NULL || !S_ISLNK(n->attr.mode))
		return -LE_INVAL;
	assert_true(size > n->attr.size);
	memcpy(buf, n->data, n->attr.size);
	buf[n->attr.size] = '\0';
	return 0;
}

int ll_link(struct client *c, const struct cred *cred, struct ino ino, struct ino parent,
	    struct bytes name, struct attr *ret_attr)
{
	struct fake_node *n = fake_node_of(ino);

	(void)c;
	ENTER();
	fake_take_cred(cred);
	if (fake_name_of(parent.v, (const char *)name.data, name.len) != NULL)
		return -LE_EXIST;
	add_name(parent.v, name.data, name.len, ino.v);
	n->attr.nlink++;
	*ret_attr = n->attr;
	return 0;
}

static int unlink_name(struct ino parent, struct bytes name)
{
	struct fake_name *n = fake_name_of(parent.v, (const char *)name.data, name.len);

	if (n == NULL)
		return -LE_NOENT;
	fake_node_of((struct ino){n->ino})->attr.nlink--;
	n->ino = 0;
	return 0;
}

int ll_unlink(struct client *c, const struct cred *cred, struct ino parent, struct bytes name)
{
	(void)c;
	ENTER();
	fake_take_cred(cred);
	return unlink_name(parent, name);
}

int ll_rmdir(struct client *c, const struct cred *cred, struct ino parent, struct bytes name)
{
	struct fake_name *n = fake_name_of(parent.v, (const char *)name.data, name.len);

	(void)c;
	ENTER();
	fake_take_cred(cred);
	for (uint32_t i = 0; n != NULL && i < fake.n_names; i++)
		if (fake.names[i].ino != 0 && fake.names[i].dir == n->ino)
			return -LE_NOTEMPTY;
	return unlink_name(parent, name);
}

int ll_rename(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      struct ino new_parent, struct bytes new_name, uint32_t flags)
{
	struct fake_name *n = fake_name_of(parent.v, (const char *)name.data, name.len);

	(void)c;
	ENTER();
	fake_take_cred(cred);
	fake.flags = flags;
	if (n == NULL)
		return -LE_NOENT;
	if (flags == 0)
		(void)!unlink_name(new_parent, new_name);
	else if (fake_name_of(new_parent.v, (const char *)new_name.data, new_name.len) != NULL)
		return -LE_EXIST;
	n->dir = new_parent.v;
	memset(n->name, 0, sizeof(n->name));
	memcpy(n->name, new_name.data, new_name.len);
	return 0;
}

int ll_access(struct client *c, const struct cred *cred, struct ino ino, uint32_t mask)
{
	(void)c, (void)ino;
	ENTER();
	fake_take_cred(cred);
	fake.mask = mask;
	return 0;
}

int ll_readdir(struct client *c, const struct cred *cred, struct ino ino, uint64_t cookie,
	       bool plus, int (*each)(void *arg, const struct ll_dirent *e), void *arg,
	       bool *ret_eof)
{
	(void)c;
	ENTER();
	fake_take_cred(cred);
	for (uint32_t i = 0; i < fake.n_names; i++) {
		const struct fake_name *n = &fake.names[i];
		struct ll_dirent e = {.cookie = COOKIE(i), .name = bytes_str(n->name)};

		if (n->ino == 0 || n->dir != ino.v || COOKIE(i) <= cookie)
			continue;
		e.attr = fake_node_of((struct ino){n->ino})->attr;
		if (!plus)
			e.attr = (struct attr){.ino = e.attr.ino, .mode = e.attr.mode & S_IFMT};
		*ret_eof = false;
		if (each(arg, &e) > 0)
			return 0;
	}
	*ret_eof = true;
	return 0;
}

bool ll_still_listed(struct client *c, struct ino dir, struct bytes name, struct attr *attr)
{
	struct fake_name *n = fake_name_of(dir.v, (const char *)name.data, name.len);

	(void)c;
	if (n == NULL || n->ino != attr->ino.v)
		return false;
	*attr = fake_node_of(attr->ino)->attr;
	return true;
}

void ll_prefetch_attrs(struct client *c, const struct cred *cred, struct ino dir, bool first)
{
	(void)c, (void)cred, (void)dir, (void)first;
	fake.n_look_ahead++;
}

/* ---- extended attributes, statfs, quota ---- */

static struct fake_xattr *xattr_of(struct ino ino, struct bytes name)
{
	for (uint32_t i = 0; i < FAKE_XATTRS; i++) {
		struct fake_xattr *x = &fake.xattrs[i];

		if (x->ino == ino.v && strlen(x->name) == name.len &&
		    memcmp(x->name, name.data, name.len) == 0)
			return x;
	}
	return NULL;
}

static int64_t put(void *buf, size_t size, const void *data, size_t len)
{
	if (size > 0 && size < len)
		return -LE_RANGE;
	if (size > 0)
		memcpy(buf, data, len);
	return (int64_t)len;
}

int64_t ll_getxattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name,
		    void *buf, size_t size)
{
	struct fake_xattr *x = xattr_of(ino, name);

	(void)c;
	ENTER();
	fake_take_cred(cred);
	return x ? put(buf, size, x->value, x->len) : -LE_NODATA;
}

int64_t ll_listxattr(struct client *c, const struct cred *cred, struct ino ino, void *buf,
		     size_t size)
{
	char names[FAKE_XATTRS * 64];
	size_t len = 0;

	(void)c;
	ENTER();
	fake_take_cred(cred);
	for (uint32_t i = 0; i < FAKE_XATTRS; i++)
		if (fake.xattrs[i].ino == ino.v)
			len += (size_t)snprintf(names + len, sizeof(names) - len, "%s",
						fake.xattrs[i].name) +
			       1;
	return put(buf, size, names, len);
}

int ll_setxattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name,
		struct bytes value, uint32_t flags)
{
	struct fake_xattr *x = xattr_of(ino, name);

	(void)c;
	ENTER();
	fake_take_cred(cred);
	fake.flags = flags;
	for (uint32_t i = 0; x == NULL; i++) {
		assert_true(i < FAKE_XATTRS && name.len < sizeof(x->name));
		if (fake.xattrs[i].ino == 0)
			x = &fake.xattrs[i];
	}
	*x = (struct fake_xattr){.ino = ino.v, .len = value.len};
	assert_true(value.len <= sizeof(x->value));
	memcpy(x->name, name.data, name.len);
	memcpy(x->value, value.data, value.len);
	return 0;
}

int ll_removexattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name)
{
	struct fake_xattr *x = xattr_of(ino, name);

	(void)c;
	ENTER();
	fake_take_cred(cred);
	if (x == NULL)
		return -LE_NODATA;
	x->ino = 0;
	return 0;
}

int ll_statfs(struct client *c, struct ino ino, struct ll_statfs *ret_st)
{
	(void)c, (void)ino;
	ENTER();
	*ret_st = (struct ll_statfs){1 << 30, 1 << 29, 1 << 28, 1000, 5000};
	return 0;
}

int64_t ll_mds_now_ns(const struct client *c)
{
	(void)c;
	return fake.mds_now_ns;
}

int ll_quota_get(struct client *c, struct ino ino, struct mds_quota_get_rep *ret_q)
{
	(void)c;
	ENTER();
	*ret_q = (struct mds_quota_get_rep){.quota = {.project = 3,
						      .root = ino,
						      .bytes = 4096,
						      .bytes_soft = 100,
						      .bytes_over_ns = 5000000000},
					    .grace_s = 60};
	return 0;
}

struct mds_quota_set_req fake_quota;
int ll_quota_set(struct client *c, const struct mds_quota_set_req *req, struct attr *ret_attr,
		 bool *ret_made)
{
	(void)c;
	ENTER();
	fake_quota = *req;
	fake.mask = req->mask;
	*ret_attr = (struct attr){.ino = req->ino};
	*ret_made = true;
	return 0;
}

struct layout fake_layout;
int ll_layout_set(struct client *c, const struct cred *cred, struct ino ino,
		  const struct layout *layout, struct attr *ret_attr)
{
	(void)c, (void)ino, (void)ret_attr;
	ENTER();
	fake_take_cred(cred);
	fake_layout = *layout;
	return 0;
}

/* ---- statistics ---- */

void ll_stats(struct client *c, struct ll_stats *ret_stats)
{
	(void)c;
	*ret_stats = (struct ll_stats){.session = 42, .read_ops = 7, .n_open = fake.n_open};
}

json_t *ll_memory(const struct client *c)
{
	(void)c;
	return json_pack("{s:i}", "total", 12345);
}

size_t ll_net(struct client *c, uint32_t from, char *buf, size_t size)
{
	(void)c;
	return (size_t)snprintf(buf, size, "{\"from\":%u}", from);
}

struct uuid ll_cluster(const struct client *c)
{
	(void)c;
	return (struct uuid){{1}};
}

int ll_drain(struct client *c, uint64_t deadline_us)
{
	(void)c, (void)deadline_us;
	ENTER();
	return fake.drain_status;
}

void ll_previous_pages_gone(struct client *c)
{
	(void)c;
	fake.n_pages_gone++;
}
