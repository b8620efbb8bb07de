/* Running an operation, and what critical sections share; see op.h. */
#include "mds/op.h"

#include <fcntl.h>
#include <stdlib.h>

#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/acl.h"
#include "mds/recall.h"

struct op_memory {
	struct list link;
	_Alignas(16) uint8_t data[];
};

void op_init(struct op *op, struct mds *m)
{
	*op = (struct op){.m = m, .store = &m->store};
	list_init(&op->told);
	list_init(&op->memory);
}

void op_fini(struct op *op)
{
	struct list *n;

	op_gives_end(op);
	while ((n = list_pop(&op->memory)) != NULL)
		free(list_entry(n, struct op_memory, link));
}

void *op_alloc(struct op *op, size_t size)
{
	struct op_memory *mem;

	if (op->r != NULL)
		return rpc_req_alloc(op->r, size);
	mem = malloc(sizeof(*mem) + size);
	if (mem == NULL)
		return NULL;
	list_push(&op->memory, &mem->link);
	return mem->data;
}

int op_alive(const struct op *op)
{
	if (op->session == NULL || op->owed)
		return 0;
	if (op->session->ended)
		return -LE_SESSION_GONE;
	if (op->begun)
		return 0;
	if (op->r != NULL && op->session->peer != op->r->peer)
		return -LE_DISCONNECTED;
	/* It has waited for something for so long that its client asks again, or has been told that
	 * it failed. */
	if (fiber_deadline() < loop_now_us())
		return -LE_TIMEDOUT;
	return replay_withdrawn(op->session, op->slot, op->seq) ? -LE_CANCELED : 0;
}

/* Runs the section until nothing is missing and nobody else caches what it changes. */
static int run_section(struct op *op, int (*fn)(struct op *op, const void *in, void *out),
		       const void *in, void *out, int *ret_rc)
{
	struct store *s = op->store;
	int rc;

	for (;;) {
		rc = txn_begin(s);
		if (rc >= 0)
			rc = op_alive(op);
		if (rc < 0)
			break;
		*ret_rc = fn(op, in, out);
		if (*ret_rc != -LE_MISS && *ret_rc != -LE_LEASED)
			break;
		ASSERT(!s->wrote);
		rc = *ret_rc == -LE_MISS ? store_load(s) : op_recall(op);
		if (rc < 0)
			break;
	}
	op_unblock(op);
	return rc;
}

int op_mutate(struct op *op, int (*fn)(struct op *op, const void *in, void *out), const void *in,
	      void *out)
{
	struct store *s = op->store;
	uint64_t no, depends;
	int rc;

	TRY(run_section(op, fn, in, out, &rc));
	depends = s->depends;
	if (rc < 0) {
		ASSERT(!s->wrote);
		/* Why it failed may itself not be durable yet. */
		TRY(store_wait(s, depends));
		return rc;
	}
	if (s->wrote && op->session != NULL && !op->session->ended && op->desc != NULL &&
	    op->final) {
		struct replay_slot *row = &op->session->slots[op->slot];

		if (replay_encode(row, op->desc, out) < 0)
			PANIC("reply of %s is too long", op->desc->name);
		replay_put(s, op->session, op->slot);
		op->kept = true;
	}
	no = op->lazy ? txn_end_lazy(s) : txn_end(s);
	if (FAULT(MDS_EARLY_ACK))
		return 0;
	no = no != 0 ? no : depends;
	return op->lazy ? store_wait_lazy(s, no) : store_wait(s, no);
}

struct ino op_has_cut(const struct op *op)
{
	return op->session != NULL ? replay_has_cut(&op->session->slots[op->slot])
				   : (struct ino){0};
}

void op_cuts(struct op *op, struct ino ino)
{
	if (op->session != NULL && !op->session->ended)
		replay_put_cut(op->store, op->session, op->slot, ino);
}

int op_read(struct op *op, int (*fn)(struct op *op, const void *in, void *out), const void *in,
	    void *out)
{
	int rc;

	for (;;) {
		rc = fn(op, in, out);
		if (rc == -LE_MISS)
			rc = store_load(op->store);
		else if (rc == -LE_LEASED)
			rc = op_recall(op);
		else
			break;
		if (rc < 0)
			break;
	}
	op_unblock(op);
	return rc;
}

/* ---- for critical sections ---- */

int64_t op_now(struct op *op)
{
	return env_wall_ns(op->m->env);
}

int name_check(struct bytes name)
{
	if (name.len > LEAT_NAME_MAX)
		return -LE_NAMETOOLONG;
	if (name.len == 0 || memchr(name.data, '/', name.len) != NULL ||
	    memchr(name.data, 0, name.len) != NULL)
		return -LE_INVAL;
	if (name.len <= 2 && memcmp(name.data, "..", name.len) == 0)
		return -LE_EXIST;
	return 0;
}

int parent_get(struct op *op, struct ino ino, enum view view, struct inode **ret_dir,
	       const struct inode_rec **ret_rec)
{
	/* Removed: there is no name in it, and none can be made. */
	TRY(inode_get(op->store, ino, view, ret_dir, ret_rec));
	return S_ISDIR((*ret_rec)->attr.mode) ? 0 : -LE_NOTDIR;
}

int dir_get(struct op *op, struct ino ino, struct inode **ret_dir, const struct inode_rec **ret_rec)
{
	const struct inode_rec *rec;

	TRY(parent_get(op, ino, VIEW_NEWEST, ret_dir, &rec));
	if (rec->attr.nlink == 0)
		return -LE_NOENT;
	*ret_rec = rec;
	return 0;
}

int dir_get_for_change(struct op *op, const struct cred *c, struct ino ino, struct inode **ret_dir,
		       const struct inode_rec **ret_rec)
{
	TRY(cred_check(c));
	TRY(dir_get(op, ino, ret_dir, ret_rec));
	return perm_access(c, *ret_rec, PERM_W | PERM_X);
}

int file_get(struct op *op, struct ino ino, enum view view, struct inode **ret_i,
	     const struct inode_rec **ret_rec)
{
	int rc = inode_get(op->store, ino, view, ret_i, ret_rec);

	return rc == -LE_NOENT ? -LE_STALE : rc;
}

void inode_changed(struct op *op, struct inode_rec *rec)
{
	ASSERT(FAULT(MDS_NO_RECALL) ||
	       !lease_foreign(&op->m->leases, rec->attr.ino, op->session, false));
	rec->attr.ctime_ns = op_now(op);
	rec->attr.change++;
}

void inode_data_changed(struct op *op, struct inode_rec *rec)
{
	inode_changed(op, rec);
	rec->attr.mtime_ns = rec->attr.ctime_ns;
	inode_accounts_for(rec, rec->attr.mtime_ns);
}

void inode_written(struct op *op, struct inode_rec *rec, int64_t at_ns)
{
	int64_t before = rec->attr.ctime_ns;

	inode_changed(op, rec);
	rec->attr.ctime_ns = before;
	if (attr_chains_time(&rec->attr, at_ns))
		attr_take_written(&rec->attr, at_ns);
}

void dir_changed(struct op *op, struct inode *dir, int delta, int links, struct attr *ret_attr)
{
	struct inode_rec *rec = inode_edit(op->store, dir);

	inode_changed(op, rec);
	rec->attr.mtime_ns = rec->attr.ctime_ns;
	rec->entries = (uint64_t)((int64_t)rec->entries + delta);
	rec->attr.nlink = (uint32_t)((int64_t)rec->attr.nlink + links);
	*ret_attr = rec->attr;
}

/* What a new inode counts from the beginning: a directory's block, and the lists it inherits. */
static uint64_t bytes_at_birth(const struct inode_rec *dir, uint32_t mode)
{
	struct bytes list = dir->acl_default, none = bytes_of(NULL, 0);
	bool inherits = !S_ISLNK(mode) && list.len > 0;
	bool same_list = inherits && acl_base(list).has_mask;
	struct inode_rec rec = {
		.attr.blocks = S_ISDIR(mode) ? DIR_BLOCKS : 0,
		.acl = same_list ? list : none,
		.acl_default = inherits && S_ISDIR(mode) ? list : none,
	};

	return quota_bytes(&rec);
}

int inode_quota(struct op *op, const struct inode_rec *dir, uint32_t mode)
{
	return quota_check(op->store, dir->attr.project, bytes_at_birth(dir, mode), 1);
}

struct inode *inode_make(struct op *op, const struct cred *c, const struct inode_rec *dir,
			 uint32_t mode, struct inode_rec **ret_rec)
{
	struct inode_rec *rec;
	struct inode *i;
	int64_t now = op_now(op);
	bool same_list = false;
	uint32_t gid;

	perm_new(c, &dir->attr, &mode, &gid);
	if (!S_ISLNK(mode) && dir->acl_default.len > 0)
		mode = acl_inherit(dir->acl_default, mode, &same_list);
	else if (!S_ISLNK(mode))
		mode &= ~(c->umask & 0777);
	i = inode_create(op->store, &rec);
	if (same_list)
		acl_replace(op->store, &rec->acl, dir->acl_default);
	i->whole = S_ISDIR(mode);
	if (S_ISDIR(mode))
		acl_replace(op->store, &rec->acl_default, dir->acl_default);
	rec->attr.mode = mode;
	rec->attr.nlink = S_ISDIR(mode) ? 2 : 1;
	rec->attr.uid = c->uid;
	rec->attr.gid = gid;
	rec->attr.atime_ns = rec->attr.mtime_ns = rec->attr.ctime_ns = rec->attr.btime_ns = now;
	rec->attr.chains_ns = now;
	rec->attr.change = 1;
	rec->attr.flags |= dir->attr.flags & (ATTR_NODUMP | ATTR_NOATIME);
	rec->attr.project = dir->attr.project;
	quota_ahead(op->store, rec->attr.project, bytes_at_birth(dir, mode), 1);
	inode_set_plain(rec);
	*ret_rec = rec;
	return i;
}

bool inode_has_no_data(const struct inode_rec *rec)
{
	return !S_ISREG(rec->attr.mode) || rec->attr.layout.width == 0 ||
	       (rec->attr.size == 0 && rec->attr.blocks == 0 && rec->append_end == 0 &&
		(rec->attr.flags & ATTR_UNSETTLED) == 0);
}

bool op_writes(const struct op *op, struct ino ino)
{
	const struct open *o =
		op->session != NULL ? open_find(&op->m->opens, op->session, ino) : NULL;

	return o != NULL && o->n_write > 0 && (o->granted & PERM_W) != 0;
}

bool inode_not_open(struct op *op, struct ino ino)
{
	return op->m->recovery.sessions_back &&
	       !open_file_is_open(open_file_find(&op->m->opens, ino));
}

void data_remove(struct op *op, const struct attr *a)
{
	struct removal_rec rec = {a->ino, a->layout};

	TXN_PUT(op->store, key_of('Q', ++op->m->removal_seq), removal_rec, &rec);
	op->removed = true;
}

void inode_remove(struct op *op, struct inode *i)
{
	struct inode_rec *rec = inode_edit(op->store, i);
	struct quota *q = quota_find(op->store, rec->attr.project);

	if (!inode_has_no_data(rec))
		data_remove(op, &rec->attr);
	if (q != NULL && ino_equal(q->rec.root, i->ino))
		quota_end(op->store, q);
	inode_delete(op->store, i);
	leases_drop_inode(&op->m->leases, i->ino);
	open_file_counted(&op->m->opens, open_file_find(&op->m->opens, i->ino));
}

void inode_unlink(struct op *op, struct inode *i, bool replaced, struct attr *ret_attr)
{
	struct open_file *f = open_file_find(&op->m->opens, i->ino);
	struct inode_rec *rec = inode_edit(op->store, i);

	rec->attr.nlink = S_ISDIR(rec->attr.mode) ? 0 : rec->attr.nlink - 1;
	inode_changed(op, rec);
	*ret_attr = rec->attr;
	if (rec->attr.nlink > 0)
		return;
	if (inode_not_open(op, i->ino) &&
	    !(replaced && S_ISREG(rec->attr.mode) && linger_add(op->m, i->ino))) {
		inode_remove(op, i);
		return;
	}
	txn_put(op->store, key_of('O', i->ino.v), NULL, 0);
	if (replaced && f != NULL)
		f->replaced_us = loop_now_us();
	if (!op->m->recovery.sessions_back && recovery_orphan(op->m, i->ino) < 0)
		log_warn("orphan inode %llu stays until the next start",
			 (unsigned long long)i->ino.v);
}

void op_cap(struct op *op, const struct attr *a, uint32_t flags, struct cap *ret_cap)
{
	struct mds *m = op->m;
	uint32_t acc = flags & O_ACCMODE;

	*ret_cap = (struct cap){
		.ino = a->ino,
		.gen = a->layout.gen,
		.epoch = m->cluster.epoch,
		/* Writers read too: parts of blocks are filled up by reading. */
		.rights = acc == O_RDONLY ? CAP_READ : CAP_READ | CAP_WRITE,
		.session = op->session != NULL ? op->session->id : SESSION_MDS,
		.expiry_s = op_now(op) / 1000000000 + m->params.cap_ttl_s,
	};
	cap_sign(&m->cap_key, ret_cap);
}
