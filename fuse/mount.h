/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data that the modules of mount.leat share. One mount is one loop: it reads requests from
 * /dev/fuse, runs each as a fiber over client/ll.h, and writes the reply, all on one thread. The
 * other threads are two of kernel/invalidate.c, because the kernel may hold an invalidation back
 * until the daemon has answered a request; the workers for blocking calls; and that of /metrics.
 *
 * A node id is the inode number, so the daemon keeps nothing per inode. What must outlive the
 * daemon is in restart/restart_state.h.
 */
#ifndef LEAT_FUSE_MOUNT_H
#define LEAT_FUSE_MOUNT_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

/* What a mount with an older libfuse cannot do; "": nothing. */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define FUSE_LACKS ""
#else
#define FUSE_LACKS                                                                                 \
	"shared mappings of files that others write or that are open to append (mmap: ENODEV), "   \
	"O_TMPFILE, passthrough: built with a libfuse older than 3.17"
#endif

#include "client/ll.h"
#include "common/base/hmap.h"
#include "common/base/metrics.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "fuse/kernel/interrupt.h"
#include "fuse/metrics.h"
#include "fuse/ops/estale_retry.h"
#include "fuse/ops/readdirplus_policy.h"

struct invalidator;
struct passthrough;
struct pass_file;
struct restart;
struct mount_file;

/* The open files of the mount, by their index in restart->files: restart/handle_table.h. */
struct handle_table {
	struct mount_file **files;
	uint32_t *free_places, n_free;
	/* Opened by requests that may not have had their reply from the previous daemon. */
	uint32_t *unreplied, n_unreplied;
};

/* What the daemon knows of the kernel's caches. Only kernel/ uses it. */
struct kernel_pages {
	struct invalidator *invalidator, *behind;
	uint32_t n_behind;               /* fibers in invalidate_inode_behind */
	struct passthrough *passthrough; /* NULL without stage_dir */
	struct hmap sizes;               /* struct kernel_size */
	struct list previous;            /* of files that the previous daemon had open */
	struct turnq probe_turns;
	uint32_t n_probes, n_idle_probes;
	struct kernel_size_helper {
		pid_t pid;
		int fd; /* a socket: inode numbers to the helper, its answers back */
	} idle_probes[4];
	bool probes_refused; /* the kernel does not let the helper open inodes by number */
	bool refusal_logged; /* that the kernel keeps checking old owners for this reason */
	bool owner_unknown;  /* the kernel did not take over a new owner; this has been logged */
};

/* Moves are made by kernel/request_loop.c. */
enum mount_phase {
	MOUNT_STARTS,
	MOUNT_SERVES,     /* attached to the device */
	MOUNT_HANDS_OVER, /* attached, but the reader reads no further requests */
	MOUNT_DETACHED,
	N_MOUNT_PHASES
};

/* A mount. Owner: the mount's loop. */
#define LEATFS_MAGIC 0x4c465553u
struct leatfs {
	uint32_t magic;
	/* Set by main.c before the first request. */
	const struct fuse_lowlevel_ops *ops; /* what libfuse calls */
	/* Called when the kernel has resent the request with that number, to the daemon that took
	 * over from the one that read it first. */
	void (*on_resent)(struct leatfs *fs, uint64_t unique);

	struct env *env;
	struct loop *loop;
	struct client *client;
	struct fuse_session *session;
	struct ino root;            /* the directory that is mounted: node id 1 for the kernel */
	struct slot_pool *requests; /* buffers for large requests (writes) */
	uint64_t aside;             /* bytes of large requests that are not in a slot */
	uint64_t aside_until_us;    /* until then further ones move without waiting for a slot */
	struct mount_metrics metrics;
	struct estale_retry estale_retry;
	struct readdirplus_policy readdirplus_policy;
	struct interrupts interrupts;
	struct list running; /* requests in flight: kernel/request_loop.c */
	struct handle_table handles;
	struct hmap dirs; /* open directories: ops/dir.c */
	struct kernel_pages pages;
	uint32_t max_write;
	uint32_t max_background; /* background requests that the kernel has in flight at most */
	uint32_t slow_ms;
	bool local_locks;   /* the kernel keeps locks to itself */
	bool ino32;         /* kernel/ino32.h */
	bool strict_atime;  /* every read reaches the daemon, so that it updates the access time */
	bool setxattr_ext;  /* requests have the longer struct fuse_setxattr_in */
	uint64_t failed_us; /* when a failed request was last logged */
	uint32_t n_running; /* request fibers */
	uint32_t n_waiting; /* of n_running: fibers that wait for a file lock */
	struct restart *restart;  /* what the next daemon takes over */
	struct fiber *reader;
	bool init_differs; /* libfuse would answer INIT differently from the previous daemon */
	enum mount_phase phase;
	char mountpoint[4096];
};

/* An open file; fuse_file_info.fh is its number. */
#define MOUNT_FILE_MAGIC 0x4c46494cu
struct mount_file {
	uint32_t magic;
	uint32_t flags;
	uint32_t place; /* index in restart->files */
	struct ll_file *file;
	struct pass_file *pass;   /* NULL without stage_dir */
	struct kernel_size *known; /* NULL until a READ of this file fills pages without a lease */
};

/* The mount that the request belongs to. */
static inline struct leatfs *req_fs(fuse_req_t req)
{
	return CAST_OBJ(fuse_req_userdata(req), struct leatfs, LEATFS_MAGIC);
}

static inline bool mount_is_attached(const struct leatfs *fs)
{
	return fs->phase == MOUNT_SERVES || fs->phase == MOUNT_HANDS_OVER;
}

/* The node id of the directory that is mounted is 1, whatever its inode number. */
static inline struct ino ino_of(const struct leatfs *fs, fuse_ino_t id)
{
	return id == FUSE_ROOT_ID ? fs->root : (struct ino){id};
}
static inline fuse_ino_t node_of(const struct leatfs *fs, struct ino ino)
{
	return ino_equal(ino, fs->root) ? FUSE_ROOT_ID : ino.v;
}

#endif
