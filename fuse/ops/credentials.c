/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/credentials.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/stat.h>

#include "fuse/kernel/kernel_pages.h"

#define OWNER_CAPS (1ull << CAP_CHOWN | 1ull << CAP_FOWNER)

/* Packs the caller's groups as in a cred. Returns the length in bytes. */
static uint32_t add_groups(fuse_req_t req, uint8_t *packed)
{
	gid_t groups[REQ_GROUPS_MAX];
	int n = fuse_req_getgroups(req, REQ_GROUPS_MAX, groups);

	if (n > (int)REQ_GROUPS_MAX)
		n = REQ_GROUPS_MAX;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < 4; j++)
			packed[i * 4 + j] = (uint8_t)(groups[i] >> (8 * j));
	return n > 0 ? (uint32_t)n * 4 : 0;
}

static void judged(fuse_req_t req, struct req_cred *rc)
{
	rc->cred.flags = 0;
	rc->cred.groups = bytes_of(rc->groups, add_groups(req, rc->groups));
}

void req_cred_init(fuse_req_t req, struct req_cred *rc)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	/* Where the kernel has checked (default_permissions), groups would change nothing. */
	rc->cred = (struct cred){
		.uid = ctx->uid,
		.gid = ctx->gid,
		.flags = CRED_CHECKED,
		.umask = ctx->umask,
	};
	if (ll_mds_checks_access(req_fs(req)->client))
		judged(req, rc);
}

/* ---- capabilities ---- */

#define PROC_PATH_SIZE 64u

static void proc_path(fuse_req_t req, const char *name, char path[PROC_PATH_SIZE])
{
	snprintf(path, PROC_PATH_SIZE, "/proc/%d/%s", (int)fuse_req_ctx(req)->pid, name);
}

static FILE *open_proc(fuse_req_t req, const char *name)
{
	char path[PROC_PATH_SIZE];

	proc_path(req, name, path);
	return fopen(path, "re");
}

/* Returns the caller's effective capabilities, which count in its user namespace. */
static uint64_t caps_of(fuse_req_t req)
{
	FILE *f = open_proc(req, "status");
	uint64_t caps = 0;
	char line[256];

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %" SCNx64, &caps) == 1)
			break;
	fclose(f);
	return caps;
}

/* True if the caller's user namespace maps the id. name: uid_map or gid_map; the second column of
 * these holds the ids of the daemon's namespace. */
static bool is_mapped(fuse_req_t req, const char *name, uint32_t id)
{
	FILE *f = open_proc(req, name);
	uint64_t from, n;
	bool found = false;
	char line[128];

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f))
		found = sscanf(line, "%*u %" SCNu64 " %" SCNu64, &from, &n) == 2 && id >= from &&
			id - from < n;
	fclose(f);
	return found;
}

/* A capability counts only if the caller's user namespace maps owner and group of the inode, as in
 * the kernel (capable_wrt_inode_uidgid). */
static bool may_as_owner(fuse_req_t req, fuse_ino_t ino, const struct cred *cred)
{
	struct leatfs *fs = req_fs(req);
	struct attr a;

	return (caps_of(req) & OWNER_CAPS) != 0 &&
	       ll_getattr(fs->client, cred, ino_of(fs, ino), &a) >= 0 &&
	       is_mapped(req, "uid_map", a.uid) && is_mapped(req, "gid_map", a.gid);
}

void req_cred_of_owner(fuse_req_t req, fuse_ino_t ino, struct req_cred *rc)
{
	req_cred_init(req, rc);
	if (rc->cred.uid != 0 && (rc->cred.flags & CRED_CHECKED) != 0 &&
	    !may_as_owner(req, ino, &rc->cred))
		judged(req, rc);
}

/* Any user may make a user namespace, and has all capabilities in it. */
static bool in_our_namespace(fuse_req_t req)
{
	char path[PROC_PATH_SIZE];
	struct stat its, ours;

	proc_path(req, "ns/user", path);
	return stat(path, &its) == 0 && stat("/proc/self/ns/user", &ours) == 0 &&
	       its.st_dev == ours.st_dev && its.st_ino == ours.st_ino;
}

bool req_is_admin(fuse_req_t req)
{
	return (caps_of(req) >> CAP_SYS_ADMIN & 1) != 0 && in_our_namespace(req);
}

/* ---- set-user-id and set-group-id ---- */

/* True if the caller is in the group, or in more than REQ_GROUPS_MAX groups. */
static bool in_group(fuse_req_t req, gid_t gid)
{
	gid_t groups[REQ_GROUPS_MAX];
	int n = fuse_req_getgroups(req, REQ_GROUPS_MAX, groups);

	if (fuse_req_ctx(req)->gid == gid || n > (int)REQ_GROUPS_MAX)
		return true;
	for (int i = 0; i < n; i++)
		if (groups[i] == gid)
			return true;
	return false;
}

int drop_set_ids(fuse_req_t req, fuse_ino_t ino)
{
	struct leatfs *fs = req_fs(req);
	struct attr attr, set = {.mode = 0};
	uint32_t mask = SET_KILL_SUID;
	struct req_cred rc;

	req_cred_init(req, &rc);
	TRY(ll_getattr_rights(fs->client, &rc.cred, ino_of(fs, ino), &attr));
	if ((attr.mode & (S_ISGID | S_IXGRP)) == S_ISGID && !in_group(req, attr.gid)) {
		/* SET_KILL_SUID stays: by it the client's restart log recognizes a removal of
		 * bits */
		mask |= SET_MODE;
		set.mode = attr.mode & ~(uint32_t)(S_IFMT | S_ISUID | S_ISGID);
	} else if (!(attr.mode & S_ISUID) && !((attr.mode & S_ISGID) && (attr.mode & S_IXGRP))) {
		return 0;
	}
	TRY(ll_setattr(fs->client, &rc.cred, ino_of(fs, ino), NULL, mask, &set, NULL));
	/* The kernel removes the bits from its own attributes for buffered writes only. Dropping
	 * attributes takes no page lock, so it can be done here, before the reply. */
	kernel_size_forget_attr(fs, ino_of(fs, ino));
	return 0;
}

int drop_set_ids_for_user(fuse_req_t req, fuse_ino_t ino)
{
	return fuse_req_ctx(req)->uid != 0 ? drop_set_ids(req, ino) : 0;
}
