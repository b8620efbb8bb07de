/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A double of the client library at client/ll.h: a file system in memory, of one client, that
 * behaves as the comments there say. A test may make a call fail or wait, and can read what was
 * requested.
 *
 * There is one per process, owned by the loop that called fake_start. No code reads `struct
 * client`.
 */
#ifndef LEAT_TESTS_UNIT_FUSE_FAKE_CLIENT_H
#define LEAT_TESTS_UNIT_FUSE_FAKE_CLIENT_H

#include "client/ll.h"

#define FAKE_NODES  8192u
#define FAKE_LOCKS  32u
#define FAKE_XATTRS 16u

struct fake_node {
	struct attr attr; /* ino 0: free */
	uint8_t *data;    /* a file's bytes, or a link's target */
	uint64_t opens;
};

struct ll_file {
	struct fake_node *node;
	uint32_t flags;
	bool mapped, leaves_pages;
	int write_error;    /* reported once, at flush, fsync */
	uint64_t owners[4]; /* of ll_resume_owner */
	uint32_t n_owners;
};

extern struct fake {
	/* Controls: the named call fails, once or always; the named call waits. */
	const char *fail_fn, *block_fn;
	int fail_status;
	bool fail_always;
	bool stubborn; /* a waiting call is not ended by an interrupt */
	bool leased, judged, changed, past_pages;
	uint64_t attr_us, name_us;
	int drain_status;
	bool copies; /* ll_copy works */
	int64_t mds_now_ns;
	/* What was requested. */
	struct cred cred;
	uint32_t n_groups, groups[64];
	uint32_t flags, mask; /* of the last open, create, setattr, setxattr, rename */
	struct attr set;
	uint32_t n_prefetches, n_look_ahead, n_held, n_leases, n_withdrawn, n_pages_gone;
	uint64_t unique; /* of the request of the last open */
	bool data_only;
	/* The content. */
	struct fake_node nodes[FAKE_NODES];
	uint32_t n_nodes;
	struct fake_name {
		uint64_t dir, ino; /* ino 0: removed */
		char name[32];
	} names[FAKE_NODES];
	uint32_t n_names;
	struct fake_xattr {
		uint64_t ino; /* 0: free */
		char name[64];
		uint32_t len;
		uint8_t value[256];
	} xattrs[FAKE_XATTRS];
	struct fake_lock {
		uint64_t ino; /* 0: free */
		struct file_lock l;
	} locks[FAKE_LOCKS];
	uint32_t n_open;
	struct {
		const char *fn;
		uint32_t n;
	} calls[96];
	struct slot_pool *slots;
	struct waitq waiting;
} fake;
/* The last arguments of ll_layout_set and ll_quota_set (common/proto/mds_proto.h). */
struct mds_quota_set_req;
extern struct layout fake_layout;
extern struct mds_quota_set_req fake_quota;

/* Starts an empty file system, in a fiber. stop: ends the waits. fini: nothing may be open. */
struct client *fake_start(void);
void fake_stop(void);
void fake_fini(void);

/* Makes a node without a request. mode includes the type. */
struct fake_node *fake_make(uint64_t dir, const char *name, uint32_t mode);
/* Makes a file of len bytes, all equal to byte. */
struct fake_node *fake_file(const char *name, uint8_t byte, uint64_t len);
/* Returns NULL if there is none. */
struct fake_node *fake_find(uint64_t dir, const char *name);
/* Returns the number of calls of a function of ll.h since fake_start. */
uint32_t fake_count(const char *fn);
/* Wakes the waiting calls. */
void fake_unblock(void);
/* Makes the next call of that function fail. */
void fake_fail(const char *fn, int status);

/* ---- for its own files ---- */

/* What each call does first. */
#define ENTER() TRY(fake_enter(__func__))
int fake_enter(const char *fn);
void fake_note(const char *fn);
void fake_take_cred(const struct cred *cred);
/* Returns NULL if there is none. */
struct fake_node *fake_node_of(struct ino ino);
struct fake_name *fake_name_of(uint64_t dir, const char *name, size_t len);
struct fake_node *fake_add_node(uint32_t mode);
/* Returns 0 or -LE_EXIST. The node belongs to the caller; the bits of the umask are cleared. */
int fake_make_name(struct ino parent, struct bytes name, uint32_t mode,
		   struct fake_node **ret_node);
void fake_resize(struct fake_node *n, uint64_t size);

#endif
