/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check reads every record once, collects what it finds per inode (about 100 bytes each), and
 * compares that at the end. Repairs follow, with the transactions that the server uses:
 *
 *   an entry whose inode or directory is missing,
 *     or a second entry of a directory             is removed
 *   an inode without a name                        gets one in /lost+found, "ino.NUMBER"; without
 *                                                  links it becomes an orphan
 *   wrong counts and parents                       are set right
 */
#include "mds/check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/repair.h"
#include "mds/store/acl.h"
#include "mds/store/scan.h"

struct node {
	struct hmap_node hash;
	struct ino ino, parent, named_in; /* parent as recorded, as named */
	uint64_t entries, found_entries;
	uint32_t mode, nlink, names, subdirs;
	uint32_t n_xattrs, found_xattrs, xattr_names, found_xattr_names;
	uint64_t xattr_bytes, found_xattr_bytes;
	bool orphan, reachable, caps, found_caps;
};

struct entry_fix {
	struct ino dir, ino;
	uint64_t cookie;
};

struct check {
	struct store s;
	struct mds_metrics metrics;
	FILE *report;
	bool repair;
	uint64_t n_problems;
	struct hmap nodes;
	uint64_t max_ino, n_inodes, unwritten;
	struct ino lost_found; /* 0: not needed so far */
	uint32_t n_targets, n_chains, n_tables;
	uint32_t class_n[LEAT_REPLICAS_MAX + 1], tables[LEAT_REPLICAS_MAX + 1];
	struct entry_fix *entries; /* to be removed */
	uint32_t n_entries, cap_entries;
	struct {
		struct ino dir;
		uint64_t cookie;
		bool more;
	} last; /* the previous entry */
	int status;
};

static void problem(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void problem(struct check *c, const char *fmt, ...)
{
	va_list ap;

	c->n_problems++;
	va_start(ap, fmt);
	vfprintf(c->report, fmt, ap);
	va_end(ap);
	fputc('\n', c->report);
}

static struct node *node_find(struct check *c, struct ino ino)
{
	struct hmap_node *n = hmap_find(&c->nodes, hash_u64(ino.v));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct node *node = container_of(n, struct node, hash);

		if (node->ino.v == ino.v)
			return node;
	}
	return NULL;
}

static int entry_to_remove(struct check *c, struct ino dir, uint64_t cookie, struct ino ino)
{
	if (c->n_entries == c->cap_entries) {
		uint32_t cap = c->cap_entries == 0 ? 64 : c->cap_entries * 2;
		struct entry_fix *p = realloc(c->entries, cap * sizeof(*p));

		if (p == NULL)
			return -LE_NOMEM;
		c->entries = p;
		c->cap_entries = cap;
	}
	c->entries[c->n_entries++] = (struct entry_fix){dir, ino, cookie};
	return 0;
}

/* ---- reading ---- */

static void count_quota(struct check *c, const struct inode_rec *rec)
{
	const struct attr *a = &rec->attr;
	struct quota *q = quota_find(&c->s, a->project);

	if (a->project == 0)
		return;
	if (q == NULL) {
		problem(c, "inode %" PRIu64 ": quota %u does not exist", a->ino.v, a->project);
		return;
	}
	/* Counts what is found in members that are unused while no server runs. */
	q->ahead_inodes++;
	q->reserved += quota_bytes(rec);
}

static void check_quotas(struct check *c)
{
	for (struct hmap_node *h = hmap_next(&c->s.quotas.map, NULL); h != NULL;
	     h = hmap_next(&c->s.quotas.map, h)) {
		struct quota *q = container_of(h, struct quota, node);

		if (q->rec.inodes == q->ahead_inodes && q->rec.bytes == q->reserved)
			continue;
		problem(c,
			"quota %u: %" PRIu64 " inodes, %" PRIu64 " bytes should be %" PRIu64
			", %" PRIu64,
			q->project, q->rec.inodes, q->rec.bytes, q->ahead_inodes, q->reserved);
		q->to_repair = true;
	}
}

static int each_inode(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct check *c = arg;
	struct ino ino = {key_len == 9 ? get_be((const uint8_t *)key + 1, 8) : 0};
	struct inode_rec rec;
	struct wire_r r;
	struct node *n;

	wire_r_init(&r, value, len);
	wire_get_inode_rec(&r, &rec);
	if (ino.v == 0 || r.status < 0 || rec.attr.mode == 0 || acl_check(rec.acl) < 0 ||
	    acl_check(rec.acl_default) < 0) {
		problem(c, "inode %" PRIu64 ": record is damaged", ino.v);
		return 0;
	}
	n = calloc(1, sizeof(*n));
	if (n == NULL)
		return c->status = -LE_NOMEM;
	n->ino = ino;
	n->mode = rec.attr.mode;
	n->nlink = rec.attr.nlink;
	n->parent = rec.parent;
	n->entries = rec.entries;
	n->n_xattrs = rec.n_xattrs;
	n->xattr_names = rec.xattr_names;
	n->xattr_bytes = rec.xattr_bytes;
	n->caps = (rec.attr.flags & ATTR_FILE_CAPS) != 0;
	hmap_insert(&c->nodes, &n->hash, hash_u64(ino.v));
	c->n_inodes++;
	c->unwritten += rec.unwritten;
	count_quota(c, &rec);
	if (ino.v > c->max_ino)
		c->max_ino = ino.v;
	if (S_ISREG(rec.attr.mode) && rec.attr.layout.width != 0 &&
	    (rec.attr.layout.table == 0 || rec.attr.layout.table > c->n_tables))
		problem(c, "inode %" PRIu64 ": chain table %u does not exist", ino.v,
			rec.attr.layout.table);
	return 0;
}

/* True if lookups reach the entry: a collision index above 0 (the low bits of the cookie) needs
 * a predecessor that says that more follow. */
static bool chain_ok(struct check *c, struct ino dir, uint64_t cookie)
{
	return (cookie & 15) == 0 ||
	       (c->last.dir.v == dir.v && c->last.cookie == cookie - 1 && c->last.more);
}

static int count_entry(struct check *c, struct ino dir, uint64_t cookie,
		       const struct dentry_rec *rec)
{
	struct node *d = node_find(c, dir), *n = node_find(c, rec->ino);
	int len = (int)rec->name.len;
	const char *name = rec->name.data;

	if (d == NULL || !S_ISDIR(d->mode)) {
		problem(c, "entry '%.*s': its directory %" PRIu64 " does not exist", len, name,
			dir.v);
		return entry_to_remove(c, dir, cookie, rec->ino);
	}
	if (n == NULL) {
		problem(c, "entry '%.*s' in %" PRIu64 ": inode %" PRIu64 " does not exist", len,
			name, dir.v, rec->ino.v);
		d->found_entries++; /* until the repair */
		return entry_to_remove(c, dir, cookie, rec->ino);
	}
	d->found_entries++;
	if (rec->type != (uint8_t)(n->mode >> 12))
		problem(c, "entry '%.*s' in %" PRIu64 ": wrong type", len, name, dir.v);
	if ((dentry_cookie(&c->s, rec->name) | (cookie & 15)) != cookie &&
	    c->s.hash_mask == UINT64_MAX)
		problem(c, "entry '%.*s' in %" PRIu64 ": not where its name is looked for", len,
			name, dir.v);
	if (S_ISDIR(n->mode) && n->names > 0) {
		problem(c, "entry '%.*s' in %" PRIu64 ": directory %" PRIu64 " has another name",
			len, name, dir.v, rec->ino.v);
		return entry_to_remove(c, dir, cookie, rec->ino);
	}
	n->names++;
	n->named_in = dir;
	d->subdirs += S_ISDIR(n->mode);
	return 0;
}

static int each_entry(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct check *c = arg;
	const uint8_t *k = key;
	struct dentry_rec rec;
	struct ino dir;
	uint64_t cookie;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_dentry_rec(&r, &rec);
	if (key_len != 17 || r.status < 0 || rec.name.len > LEAT_NAME_MAX) {
		problem(c, "directory entry with a damaged record");
		return 0;
	}
	dir.v = get_be(k + 1, 8);
	cookie = get_be(k + 9, 8);
	if (!chain_ok(c, dir, cookie))
		problem(c, "entry '%.*s' in %" PRIu64 ": out of reach in its collision chain",
			(int)rec.name.len, (const char *)rec.name.data, dir.v);
	c->last.dir = dir;
	c->last.cookie = cookie;
	c->last.more = (rec.flags & DENTRY_MORE) != 0;
	if (rec.ino.v == 0)
		return 0; /* a tombstone */
	c->status = count_entry(c, dir, cookie, &rec);
	return c->status;
}

static int each_xattr(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct check *c = arg;
	struct node *n = key_len < 10
				 ? NULL
				 : node_find(c, (struct ino){get_be((const uint8_t *)key + 1, 8)});

	(void)value;
	if (n == NULL) {
		problem(c, "extended attribute of an inode that does not exist");
		return 0;
	}
	n->found_xattrs++;
	n->found_xattr_names += (uint32_t)key_len - 9 + 1;
	/* A write removes it without reading it, so the record does not count its length. */
	if (bytes_equal(bytes_of((const char *)key + 9, (uint32_t)key_len - 9),
			bytes_str("security.capability")))
		n->found_caps = true;
	else
		n->found_xattr_bytes += len;
	return 0;
}

static int each_orphan(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct check *c = arg;
	struct ino ino = {key_len == 9 ? get_be((const uint8_t *)key + 1, 8) : 0};
	struct node *n = node_find(c, ino);

	(void)value, (void)len;
	if (n == NULL)
		problem(c, "orphan %" PRIu64 ": no such inode", ino.v);
	else if (n->nlink > 0)
		problem(c, "orphan %" PRIu64 ": has %u links", ino.v, n->nlink);
	else
		n->orphan = true;
	return 0;
}

#define EACH_DECODES(kind, what)                                                                   \
	static int each_##kind(void *arg, const void *key, size_t key_len, const void *value,      \
			       size_t len)                                                         \
	{                                                                                          \
		struct kind rec;                                                                   \
		struct wire_r r;                                                                   \
		(void)key, (void)key_len;                                                          \
		wire_r_init(&r, value, len);                                                       \
		wire_get_##kind(&r, &rec);                                                         \
		if (r.status < 0)                                                                  \
			problem(arg, what ": record is damaged");                                  \
		return 0;                                                                          \
	}
EACH_DECODES(session_rec, "session")
EACH_DECODES(replay_rec, "replay row")
EACH_DECODES(intent_rec, "intent")
EACH_DECODES(removal_rec, "removal")
EACH_DECODES(convert_rec, "conversion")

static int each_target(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct check *c = arg;
	struct target_rec rec;
	struct wire_r r;

	(void)key, (void)key_len;
	wire_r_init(&r, value, len);
	wire_get_target_rec(&r, &rec);
	if (r.status < 0 || rec.info.id != ++c->n_targets)
		problem(c, "target %u: record is damaged", c->n_targets);
	return 0;
}

static int each_chain(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct chain_member m[CHAIN_MEMBERS_MAX];
	struct check *c = arg;
	struct chain_info rec;
	struct wire_r r;
	int n;

	(void)key, (void)key_len;
	wire_r_init(&r, value, len);
	wire_get_chain_info(&r, &rec);
	c->n_chains++;
	if (r.status < 0 || rec.id != c->n_chains || rec.epoch == 0 || rec.replicas < 1 ||
	    rec.replicas > LEAT_REPLICAS_MAX) {
		problem(c, "chain %u: record is damaged", c->n_chains);
		return 0;
	}
	c->class_n[rec.replicas]++;
	n = chain_members_get(&rec, m);
	if (n < 0)
		problem(c, "chain %u: its members are damaged", rec.id);
	else if ((n == 0 || m[0].state != MEMBER_SYNC) != ((rec.flags & CHAIN_LOST) != 0))
		problem(c, rec.flags & CHAIN_LOST ? "chain %u: lost, but a member is complete"
					       : "chain %u: no member is complete",
			rec.id);
	for (int i = 0; i < n; i++)
		if (m[i].target < 1 || m[i].target > c->n_targets)
			problem(c, "chain %u: member %u does not exist", rec.id, m[i].target);
	return 0;
}

static int each_table(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct check *c = arg;
	struct table_info rec;
	struct wire_r r;

	(void)key, (void)key_len;
	wire_r_init(&r, value, len);
	wire_get_table_info(&r, &rec);
	c->n_tables++;
	if (r.status < 0 || rec.version != c->n_tables || rec.replicas < 1 ||
	    rec.replicas > LEAT_REPLICAS_MAX)
		problem(c, "chain table %u: record is damaged", c->n_tables);
	else if (rec.n <= c->tables[rec.replicas] || rec.n > c->class_n[rec.replicas])
		problem(c, "chain table %u: %u chains of %u", rec.version, rec.n,
			c->class_n[rec.replicas]);
	else
		c->tables[rec.replicas] = rec.n;
	return 0;
}

static int read_all(struct check *c)
{
	const struct {
		struct key prefix;
		int (*each)(void *arg, const void *key, size_t key_len, const void *value,
			    size_t len);
	} passes[] = {
		{{.b = {'C', 't'}, .len = 2}, each_target},
		{{.b = {'C', 'c'}, .len = 2}, each_chain},
		{{.b = {'C', 'v'}, .len = 2}, each_table},
		{key_kind('I'), each_inode},
		{key_kind('D'), each_entry},
		{key_kind('X'), each_xattr},
		{key_kind('O'), each_orphan},
		{key_kind('S'), each_session_rec},
		{key_kind('R'), each_replay_rec},
		{key_kind('T'), each_intent_rec},
		{key_kind('Q'), each_removal_rec},
		{key_kind('V'), each_convert_rec},
	};

	for (size_t i = 0; i < ARRAY_SIZE(passes); i++) {
		TRY(store_scan_prefix(&c->s, passes[i].prefix, passes[i].each, c));
		TRY(c->status);
	}
	return 0;
}

/* ---- repairs; each is one transaction ---- */

struct repair {
	struct check *c;
	struct node *node;
	struct entry_fix entry;
};

static int mutate(struct check *c, int (*fn)(struct store *s, struct repair *r), struct repair *r)
{
	int rc;

	for (;;) {
		TRY(txn_begin(&c->s));
		rc = fn(&c->s, r);
		if (rc != -LE_MISS)
			break;
		TRY(store_load(&c->s));
	}
	TRY(rc);
	return store_wait(&c->s, txn_end(&c->s));
}

static int remove_entry(struct store *s, struct repair *r)
{
	return repair_entry(s, r->entry.dir, r->entry.cookie, r->entry.ino);
}

static int fix_quotas(struct store *s, struct repair *r)
{
	(void)r;
	for (struct hmap_node *h = hmap_next(&s->quotas.map, NULL); h != NULL;
	     h = hmap_next(&s->quotas.map, h)) {
		struct quota *q = container_of(h, struct quota, node);

		if (!q->to_repair)
			continue;
		q->rec.inodes = q->ahead_inodes;
		q->rec.bytes = q->reserved;
		quota_changed(s, q);
	}
	return 0;
}

static uint32_t right_nlink(const struct node *n)
{
	return S_ISDIR(n->mode) ? 2 + n->subdirs : n->names;
}

static int fix_inode(struct store *s, struct repair *r)
{
	const struct node *n = r->node;
	bool root = n->ino.v == LEAT_ROOT_INO.v;
	struct repair_counts right = {n->names > 0 || root ? right_nlink(n) : n->nlink,
				      n->found_entries, root ? LEAT_ROOT_INO : n->named_in};
	struct inode_rec *rec;
	struct inode *i;

	TRY(inode_get(s, n->ino, VIEW_NEWEST, &i, NULL));
	TRY(repair_counts(s, n->ino, &right));
	rec = inode_edit(s, i);
	rec->n_xattrs = n->found_xattrs;
	rec->xattr_names = n->found_xattr_names;
	rec->xattr_bytes = n->found_xattr_bytes;
	rec->attr.flags &= ~(uint32_t)ATTR_FILE_CAPS;
	rec->attr.flags |= n->found_caps ? ATTR_FILE_CAPS : 0;
	return 0;
}

static int add_orphan(struct store *s, struct repair *r)
{
	return repair_orphan(s, r->node->ino);
}

static int drop_orphan(struct store *s, struct repair *r)
{
	return repair_false_orphan(s, r->node->ino);
}

static int make_lost_found(struct store *s, struct repair *r)
{
	return repair_lost_found(s, &r->c->lost_found);
}

static int to_lost_found(struct store *s, struct repair *r)
{
	const struct node *n = r->node;

	return repair_name(s, n->ino, r->c->lost_found, S_ISDIR(n->mode) ? 2 + n->subdirs : 1);
}

/* Counts an entry that a repair has added after the scan. */
static void count_added(struct check *c, struct ino dir, bool is_dir)
{
	struct node *n = node_find(c, dir);

	if (n == NULL)
		return;
	n->entries++;
	n->found_entries++;
	n->nlink += is_dir;
	n->subdirs += is_dir;
}

static int rescue(struct check *c, struct node *n)
{
	struct repair r = {.c = c, .node = n};
	uint64_t before = c->s.counters.n_inodes;

	if (c->lost_found.v == 0) {
		TRY(mutate(c, make_lost_found, &r));
		if (c->s.counters.n_inodes > before)
			count_added(c, LEAT_ROOT_INO, true);
	}
	TRY(mutate(c, to_lost_found, &r));
	count_added(c, c->lost_found, S_ISDIR(n->mode));
	return 0;
}

/* ---- evaluation ---- */

/* A directory is reachable if the chain of directories that name it begins at the root. */
static void mark_reachable(struct check *c, struct node *n)
{
	struct node *at = n;
	uint32_t depth = 0;

	while (at != NULL && !at->reachable && depth++ < 65536)
		at = at->ino.v == LEAT_ROOT_INO.v
			     ? at
			     : (at->names > 0 ? node_find(c, at->named_in) : NULL);
	if (at == NULL || !at->reachable)
		return;
	for (at = n; !at->reachable; at = node_find(c, at->named_in))
		at->reachable = true;
}

static bool counts_wrong(struct check *c, const struct node *n)
{
	bool root = n->ino.v == LEAT_ROOT_INO.v;
	uint64_t before = c->n_problems;

	if ((n->names > 0 || root) && n->nlink != right_nlink(n))
		problem(c, "inode %" PRIu64 ": link count %u should be %u", n->ino.v, n->nlink,
			right_nlink(n));
	if (n->n_xattrs != n->found_xattrs)
		problem(c, "inode %" PRIu64 ": count of extended attributes %u should be %u",
			n->ino.v, n->n_xattrs, n->found_xattrs);
	if (n->xattr_names != n->found_xattr_names)
		problem(c, "inode %" PRIu64 ": %u bytes of attributes' names should be %u",
			n->ino.v, n->xattr_names, n->found_xattr_names);
	if (n->xattr_bytes != n->found_xattr_bytes)
		problem(c,
			"inode %" PRIu64 ": %" PRIu64
			" bytes of attributes' values should be %" PRIu64,
			n->ino.v, n->xattr_bytes, n->found_xattr_bytes);
	if (n->caps != n->found_caps)
		problem(c, "inode %" PRIu64 ": %s file capabilities", n->ino.v,
			n->caps ? "has no" : "does not know of its");
	if (S_ISDIR(n->mode) && n->entries != n->found_entries)
		problem(c, "directory %" PRIu64 ": %" PRIu64 " entries should be %" PRIu64,
			n->ino.v, n->entries, n->found_entries);
	if (S_ISDIR(n->mode) && !root && n->names > 0 && n->parent.v != n->named_in.v)
		problem(c, "directory %" PRIu64 ": parent %" PRIu64 " should be %" PRIu64, n->ino.v,
			n->parent.v, n->named_in.v);
	return c->n_problems > before;
}

static int judge(struct check *c, struct node *n)
{
	struct repair r = {.c = c, .node = n};
	bool root = n->ino.v == LEAT_ROOT_INO.v;

	if (counts_wrong(c, n) && c->repair)
		TRY(mutate(c, fix_inode, &r));
	if (n->orphan && n->names > 0) {
		problem(c, "inode %" PRIu64 ": an orphan with a name", n->ino.v);
		return c->repair ? mutate(c, drop_orphan, &r) : 0;
	}
	if (n->names > 0 || root || n->orphan)
		return 0;
	if (n->nlink == 0) {
		problem(c, "inode %" PRIu64 ": no links, but not among the orphans", n->ino.v);
		return c->repair ? mutate(c, add_orphan, &r) : 0;
	}
	problem(c, "inode %" PRIu64 ": has no name", n->ino.v);
	return c->repair ? rescue(c, n) : 0;
}

static int check_all(struct check *c)
{
	struct node *root = node_find(c, LEAT_ROOT_INO);
	struct repair r = {.c = c};

	if (root == NULL) {
		problem(c, "the root directory does not exist");
		return 0;
	}
	root->reachable = true;
	if (c->s.counters.next_ino <= c->max_ino) {
		problem(c, "next inode number %" PRIu64 " is in use already",
			c->s.counters.next_ino);
		/* With the old number, inodes from it on could not be repaired. Written with the
		 * next repair. */
		c->s.counters.next_ino = c->repair ? c->max_ino + 1 : c->s.counters.next_ino;
		c->s.counters_dirty = true;
	}
	check_quotas(c);
	if (c->repair)
		TRY(mutate(c, fix_quotas, &r));
	if (c->s.counters.n_inodes != c->n_inodes) {
		problem(c, "number of inodes %" PRIu64 " should be %" PRIu64,
			c->s.counters.n_inodes, c->n_inodes);
		c->s.counters.n_inodes = c->n_inodes;
		c->s.counters_dirty = true; /* written with the next repair */
	}
	if (c->s.counters.unwritten != c->unwritten) {
		problem(c, "%" PRIu64 " bytes prepared and not written should be %" PRIu64,
			c->s.counters.unwritten, c->unwritten);
		c->s.counters.unwritten = c->unwritten;
		c->s.counters_dirty = true;
	}
	for (uint32_t i = 0; c->repair && i < c->n_entries; i++) {
		struct node *dir = node_find(c, c->entries[i].dir);

		r.entry = c->entries[i];
		TRY(mutate(c, remove_entry, &r));
		if (dir != NULL) {
			dir->found_entries--;
			dir->entries--;
		}
	}
	for (struct hmap_node *h = hmap_next(&c->nodes, NULL); h != NULL;
	     h = hmap_next(&c->nodes, h)) {
		struct node *n = container_of(h, struct node, hash);

		TRY(judge(c, n));
		if (S_ISDIR(n->mode) && n->names > 0)
			mark_reachable(c, n);
		if (S_ISDIR(n->mode) && n->names > 0 && !n->reachable)
			problem(c, "directory %" PRIu64 ": cannot be reached from the root",
				n->ino.v);
	}
	return 0;
}

/* ---- the command ---- */

static int open_check(struct env *env, const struct mds_params *p, struct check *c)
{
	char path[CONFIG_STR_MAX + 16];
	struct store_options so = {
		.path = path,
		.sync = true,
		.cache_bytes = (uint64_t)p->cache_mib << 20,
		.kv_cache_bytes = (uint64_t)p->kv_cache_mib << 20,
		.batch_ops_max = 1024,
		.batch_bytes_max = 1 << 22,
		.metrics = &c->metrics,
	};

	snprintf(path, sizeof(path), "%s/store", p->data_dir);
	TRY(store_open(env, &so, &c->s));
	c->s.opt.path = NULL;
	return 0;
}

static void close_check(struct check *c)
{
	struct hmap_node *h = hmap_next(&c->nodes, NULL);

	while (h != NULL) {
		struct hmap_node *next = hmap_next(&c->nodes, h);

		free(container_of(h, struct node, hash));
		h = next;
	}
	hmap_fini(&c->nodes);
	free(c->entries);
	if (c->s.running)
		store_stop(&c->s);
	store_close(&c->s);
}

int mds_check(struct env *env, const struct mds_params *p, bool repair, FILE *report,
	      uint64_t *ret_problems)
{
	struct check *c = calloc(1, sizeof(*c));
	int rc;

	if (c == NULL)
		return -LE_NOMEM;
	c->report = report;
	c->repair = repair;
	rc = open_check(env, p, c);
	if (rc < 0) {
		free(c);
		return rc;
	}
	hmap_init(&c->nodes, 1024);
	rc = repair ? store_run(&c->s) : 0;
	if (rc == 0)
		rc = read_all(c);
	if (rc == 0)
		rc = check_all(c);
	if (rc == 0) {
		*ret_problems = c->n_problems;
		fprintf(report, "%" PRIu64 " inodes, %" PRIu64 " problems%s\n", c->n_inodes,
			c->n_problems,
			repair && c->n_problems > 0 ? ", what can be was repaired" : "");
	}
	close_check(c);
	free(c);
	return rc;
}
