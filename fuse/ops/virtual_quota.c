/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/virtual_quota.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/proto/mds_proto.h"
#include "fuse/ops/credentials.h"

/*
 *   leat.quota     text "project=3 own=1 bytes=4096 ..." of the quota that a file counts to;
 *                  setxattr gives a directory a quota, and removes it with "remove=1"
 *   leat.project   the number of that quota, 0: none; setxattr makes the inode count to another
 */
static int64_t over_s(struct leatfs *fs, int64_t since_ns)
{
	int64_t now_ns = ll_mds_now_ns(fs->client);

	/* The client's estimate of that clock may be a little late. */
	return since_ns == 0 || now_ns < since_ns ? 0 : (now_ns - since_ns) / 1000000000;
}

int virtual_xattr_quota_text(fuse_req_t req, fuse_ino_t ino, char *text, size_t size)
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

int virtual_xattr_project_text(fuse_req_t req, fuse_ino_t ino, char *text, size_t size)
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

/* A decimal number and nothing else. */
static int take_number(const char *text, uint64_t max, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno || *end || end == text || *text == '-' || *ret > max ? -LE_INVAL : 0;
}

int virtual_xattr_quota_set(fuse_req_t req, fuse_ino_t ino, char *text)
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

int virtual_xattr_project_set(fuse_req_t req, fuse_ino_t ino, const char *text)
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
