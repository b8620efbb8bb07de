/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/virtual_xattr.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/proto/mds_proto.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/ops/credentials.h"
#include "fuse/ops/reply.h"
#include "fuse/restart/restart_state.h"

/*
 * Extended attributes that are not stored but computed, so that `leat layout` and `leat status`
 * need nothing but a path on the mount:
 *   leat.layout   text "table=1 width=4 chunk_size=1048576 ..."; setxattr changes it
 *   leat.status   JSON of this mount. system.leat.status has the same value: the kernel checks no
 *                 permissions for system.*, so it needs no attributes and no metadata server
 *   leat.memory   JSON of what its memory is used for (common/base/memory.h)
 *   leat.net      JSON of its connections; leat.net.N: from number N on, where they do not fit
 *   leat.quota    text "project=3 own=1 bytes=4096 ..." of the quota that a file counts to;
 *                 setxattr gives a directory a quota, and removes it with "remove=1"
 *   leat.project  the number of that quota, 0: none; setxattr makes the inode count to another
 */
static void reply_text(fuse_req_t req, const char *text, size_t size)
{
	size_t len = strlen(text);

	if (size == 0)
		fuse_reply_xattr(req, len);
	else if (size < len)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, text, len);
}

static void get_layout(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;
	struct attr a;
	char text[256];
	int status;

	req_cred_init(req, &rc);
	status = ll_getattr(fs->client, &rc.cred, ino_of(fs, ino), &a);
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	snprintf(text, sizeof(text),
		 "table=%u width=%u seed=%u chunk_size=%u gen=%u inherited=%u replicas=%u "
		 "compression=%u",
		 a.layout.table, a.layout.width, a.layout.seed, a.layout.chunk_size, a.layout.gen,
		 (a.layout.flags & LAYOUT_F_INHERITED) ? 1u : 0u, a.layout.replicas,
		 a.layout.compression);
	reply_text(req, text, size);
}

static void get_status(fuse_req_t req, size_t size)
{
	struct leatfs *fs = req_fs(req);
	struct ll_stats s;
	char text[3072], staged[512];

	passthrough_status(fs, staged, sizeof(staged));
	ll_stats(fs->client, &s);
	snprintf(text, sizeof(text),
		 "{\"pid\":%d,\"session\":%" PRIu64
		 ",\"map_epoch\":%u,\"targets\":%u,\"targets_up\":%u,"
		 "\"read_bytes\":%" PRIu64 ",\"written_bytes\":%" PRIu64 ",\"read_ops\":%" PRIu64
		 ",\"write_ops\":%" PRIu64 ",\"meta_ops\":%" PRIu64 ",\"retries\":%" PRIu64
		 ",\"checksum_errors\":%" PRIu64 ",\"hedges\":%" PRIu64 ",\"hedges_won\":%" PRIu64
		 ",\"failovers\":%" PRIu64 ",\"delegated_opens\":%" PRIu64
		 ",\"dirty_bytes\":%" PRIu64 ",\"grant_bytes\":%" PRIu64
		 ",\"slots_total\":%u,\"slots_free\":%u,\"inodes\":%u,\"open\":%u,\"running\":%u,"
		 "\"fuse\":\"%s\",\"lacking\":\"%s\",\"version\":\"%s\","
		 "\"supervisor\":%d,\"restarts\":%u,\"upgrades\":%u,\"upgrades_failed\":%u,%s}",
		 (int)getpid(), s.session, s.map_epoch, s.n_targets, s.n_targets_up, s.read_bytes,
		 s.written_bytes, s.read_ops, s.write_ops, s.meta_ops, s.retries, s.checksum_errors,
		 s.hedges, s.hedges_won, s.failovers, s.delegated_opens, s.dirty_bytes,
		 s.grant_bytes, s.slots_total, s.slots_free, s.n_inodes, s.n_open, fs->n_running,
		 fuse_pkgversion(), FUSE_LACKS, LEAT_VERSION, (int)fs->restart->supervisor,
		 fs->restart->n_crashes, fs->restart->n_upgrades, fs->restart->n_refused, staged);
	reply_text(req, text, size);
}

static void get_memory(fuse_req_t req, size_t size)
{
	json_t *j = ll_memory(req_fs(req)->client);
	char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	if (text)
		reply_text(req, text, size);
	else
		fuse_reply_err(req, ENOMEM);
	free(text);
}

/* "leat.net", or "leat.net.N" from connection N on. */
static void get_net(fuse_req_t req, const char *number, size_t size)
{
	char *text = malloc(LEAT_XATTR_VALUE_MAX), *end = NULL;
	unsigned long from = *number == '.' ? strtoul(number + 1, &end, 10) : 0;

	if (end != NULL && (*end != '\0' || end == number + 1 || from > UINT32_MAX))
		reply_status(req, -LE_NODATA);
	else if (text == NULL)
		reply_status(req, -LE_NOMEM);
	else {
		(void)ll_net(req_fs(req)->client, (uint32_t)from, text, LEAT_XATTR_VALUE_MAX - 512);
		reply_text(req, text, size);
	}
	free(text);
}

/* ---- quotas ---- */

/* A decimal number and nothing else. */
static int take_number(const char *text, uint64_t max, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno || *end || end == text || *text == '-' || *ret > max ? -LE_INVAL : 0;
}

static int64_t over_s(struct leatfs *fs, int64_t since_ns)
{
	int64_t now_ns = ll_mds_now_ns(fs->client);

	/* The client's estimate of that clock may be a little late. */
	return since_ns == 0 || now_ns < since_ns ? 0 : (now_ns - since_ns) / 1000000000;
}

static int quota_text(fuse_req_t req, fuse_ino_t ino, char *text, size_t size)
{
	struct leatfs *fs = req_fs(req);
	struct mds_quota_get_rep rep;
	const struct quota_state *q = &rep.quota;

	TRY(ll_quota_get(fs->client, ino_of(fs, ino), &rep));
	snprintf(text, size,
		 "project=%u own=%d bytes=%" PRIu64 " reserved=%" PRIu64 " bytes_soft=%" PRIu64
		 " bytes_hard=%" PRIu64 " inodes=%" PRIu64 " inodes_soft=%" PRIu64
		 " inodes_hard=%" PRIu64 " bytes_over_s=%" PRId64 " inodes_over_s=%" PRId64
		 " grace_s=%u",
		 q->project, ino_equal(q->root, ino_of(fs, ino)), q->bytes, q->reserved,
		 q->bytes_soft, q->bytes_hard, q->inodes, q->inodes_soft, q->inodes_hard,
		 over_s(fs, q->bytes_over_ns), over_s(fs, q->inodes_over_ns), rep.grace_s);
	return 0;
}

static int project_text(fuse_req_t req, fuse_ino_t ino, char *text, size_t size)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;
	struct attr a;

	req_cred_init(req, &rc);
	TRY(ll_getattr(fs->client, &rc.cred, ino_of(fs, ino), &a));
	snprintf(text, size, "%u", a.project);
	return 0;
}

static int take_word(const char *word, uint64_t v, struct mds_quota_set_req *r)
{
	const struct {
		const char *name;
		uint32_t mask;
		uint64_t *to;
	} words[] = {
		{"bytes_soft", QUOTA_BYTES_SOFT, &r->bytes_soft},
		{"bytes_hard", QUOTA_BYTES_HARD, &r->bytes_hard},
		{"inodes_soft", QUOTA_INODES_SOFT, &r->inodes_soft},
		{"inodes_hard", QUOTA_INODES_HARD, &r->inodes_hard},
		{"remove", QUOTA_REMOVE, NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcmp(word, words[i].name) != 0)
			continue;
		r->mask |= words[i].mask;
		if (words[i].to != NULL)
			*words[i].to = v;
		return 0;
	}
	return -LE_INVAL;
}

/* Changes text. */
static int quota_set(fuse_req_t req, fuse_ino_t ino, char *text)
{
	struct leatfs *fs = req_fs(req);
	struct mds_quota_set_req r = {.ino = ino_of(fs, ino)};
	struct req_cred rc;
	char *save = NULL;
	struct attr a;
	bool made;

	for (char *word = strtok_r(text, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
		char *value = strchr(word, '=');
		uint64_t v;

		if (!value)
			return -LE_INVAL;
		*value++ = '\0';
		TRY(take_number(value, UINT64_MAX, &v));
		TRY(take_word(word, v, &r));
	}
	req_cred_init(req, &rc);
	r.cred = rc.cred;
	return ll_quota_set(fs->client, &r, &a, &made);
}

static int project_set(fuse_req_t req, fuse_ino_t ino, const char *text)
{
	struct leatfs *fs = req_fs(req);
	struct attr set = {.mode = 0}, a;
	struct req_cred rc;
	uint64_t v;

	TRY(take_number(text, UINT32_MAX, &v));
	set.project = (uint32_t)v;
	req_cred_init(req, &rc);
	return ll_setattr(fs->client, &rc.cred, ino_of(fs, ino), NULL, SET_PROJECT, &set, &a);
}

static void get_computed(fuse_req_t req, fuse_ino_t ino,
			 int (*fn)(fuse_req_t req, fuse_ino_t ino, char *text, size_t size),
			 size_t size)
{
	char text[512];
	int status = fn(req, ino, text, sizeof(text));

	if (status < 0)
		reply_status(req, status);
	else
		reply_text(req, text, size);
}

bool virtual_xattr_get(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	if (strcmp(name, "leat.layout") == 0)
		get_layout(req, ino, size);
	else if (strcmp(name, "leat.status") == 0 || strcmp(name, "system.leat.status") == 0)
		get_status(req, size);
	else if (strcmp(name, "leat.memory") == 0)
		get_memory(req, size);
	else if (strncmp(name, "leat.net", 8) == 0 && (name[8] == '\0' || name[8] == '.'))
		get_net(req, name + 8, size);
	else if (strcmp(name, "leat.quota") == 0)
		get_computed(req, ino, quota_text, size);
	else if (strcmp(name, "leat.project") == 0)
		get_computed(req, ino, project_text, size);
	else
		return false;
	return true;
}

int virtual_layout_parse(const char *text, size_t size, struct layout *ret_layout)
{
	char copy[256], *save = NULL;
	struct layout l = {.table = 0};

	if (size >= sizeof(copy))
		return -LE_INVAL;
	memcpy(copy, text, size);
	copy[size] = '\0';
	for (char *word = strtok_r(copy, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
		char *value = strchr(word, '=');
		uint64_t v;

		if (!value)
			return -LE_INVAL;
		*value++ = '\0';
		TRY(take_number(value, UINT32_MAX, &v));
		if (strcmp(word, "width") == 0)
			l.width = (uint32_t)v;
		else if (strcmp(word, "chunk_size") == 0)
			l.chunk_size = (uint32_t)v;
		else if (strcmp(word, "replicas") == 0 && v <= LEAT_REPLICAS_MAX)
			l.replicas = (uint8_t)v;
		else if (strcmp(word, "compression") == 0 && v <= COMPRESSION_OFF)
			l.compression = (uint8_t)v;
		else if (strcmp(word, "convert") == 0 && v <= 1)
			l.flags |= v ? LAYOUT_F_CONVERT : LAYOUT_F_STOP;
		else
			return -LE_INVAL;
	}
	*ret_layout = l;
	return 0;
}

bool virtual_xattr_set(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		      size_t size)
{
	struct leatfs *fs = req_fs(req);
	struct req_cred rc;
	struct layout l;
	int status;

	if (strncmp(name, "leat.", 5) != 0)
		return false;
	if (strcmp(name, "leat.quota") == 0 || strcmp(name, "leat.project") == 0) {
		char text[256];

		snprintf(text, sizeof(text), "%.*s", (int)(size < 255 ? size : 255), value);
		if (size >= sizeof(text))
			reply_status(req, -LE_INVAL);
		else if (strcmp(name, "leat.quota") == 0)
			reply_status(req, quota_set(req, ino, text));
		else
			reply_status(req, project_set(req, ino, text));
		return true;
	}
	if (strcmp(name, "leat.layout") != 0) {
		reply_status(req, -LE_PERM);
		return true;
	}
	status = virtual_layout_parse(value, size, &l);
	if (status == 0) {
		req_cred_init(req, &rc);
		/* The kernel checks no permissions for it, so the metadata server must. */
		rc.cred.flags = 0;
		status = ll_layout_set(fs->client, &rc.cred, ino_of(fs, ino), &l, NULL);
	}
	reply_status(req, status);
	return true;
}
