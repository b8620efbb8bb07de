/*
 * What a mount keeps beyond the life of its daemon, in a memory file that the supervisor holds
 * (supervisor.h): the INIT exchange, the open files, and what the client library keeps (struct
 * ll_kept). Each step is noted before what follows from it, because the daemon may be killed at any
 * of them; a daemon that finds it filled goes on from there. Without a supervisor it is plain
 * memory.
 *
 * Written by the daemon, but for what says otherwise; read by the next one, who must know the same
 * version of it.
 */
#ifndef LEAT_FUSE_KEPT_H
#define LEAT_FUSE_KEPT_H

#include <sys/types.h>

#include "client/ll.h"

#define KEPT_MAGIC     0x4c4b4550u
#define KEPT_VERSION   5u
#define KEPT_INIT_MAX  512u
#define KEPT_FILES_MAX (1u << 18)
#define KEPT_OWNERS    2u

/* How the kernel reads an open file (passthrough.h). */
struct kept_pass {
	uint64_t ver;       /* of the staged file */
	int32_t backing_id; /* 0: it asks the daemon */
	uint8_t sealed;
};

/* An open file. Its number for the kernel: use << 32 | its place here, so that no number comes
 * twice. */
struct kept_file {
	uint64_t ino;
	uint64_t unique; /* of the request that opened it, until the kernel has the answer; or 0 */
	uint64_t owners[KEPT_OWNERS]; /* who took locks by it last */
	uint32_t flags, uid, gid;     /* of open(2); of who opened it */
	uint32_t use;
	uint8_t used, unused, next_owner;
	struct kept_pass pass;
};

enum kept_end {
	KEPT_KILLED, /* it did not come to say anything else */
	KEPT_HANDED_OVER,
	KEPT_UNMOUNTED,
};

struct kept {
	uint32_t magic, version;
	uint64_t size;
	pid_t supervisor;               /* 0: none */
	uint32_t n_crashes, n_upgrades; /* written by the supervisor; upgrades that went well */
	uint32_t n_refused;             /* upgrades that did not */
	uint8_t end;      /* enum kept_end: how the daemon has ended; the supervisor sets it back */
	int64_t ready_ms; /* when, of the monotonic clock */
	uint32_t n_ready; /* daemons that have come so far as to serve */
	uint8_t mounted, resend; /* resend: the kernel gives requests again */
	uint8_t init_done;       /* what it was answered, or is going to be, is below */
	uint8_t on_overlay;      /* then; stage_dir may come to be on one later */
	uint8_t anew;    /* the daemon is to take the key from its file; by the supervisor */
	uint8_t has_key; /* what served last had this one */
	struct rpc_key key;
	uint64_t dev;    /* of the mount */
	struct ino root; /* the directory that is mounted, whatever its path has become */
	uint32_t init_len, answer_len;
	uint8_t init[KEPT_INIT_MAX], answer[KEPT_INIT_MAX];
	uint64_t next_dir;
	struct ll_kept client;
	uint32_t files_top; /* beyond that none was ever used */
	struct kept_file files[KEPT_FILES_MAX];
};

/* New and empty: in *ret_fd, a memory file, or in plain memory where ret_fd is NULL. NULL: errno.
 */
struct kept *kept_create(int *ret_fd);
/* That of a former daemon. NULL: it is of another version, or none. */
struct kept *kept_open(int fd);

/* The daemon serves, with that key. */
void kept_ready(struct kept *k, const struct rpc_key *key);
int64_t monotonic_ms(void);

/* Each store is before the next one, whenever the process is killed. */
#define KEPT_BARRIER() __atomic_signal_fence(__ATOMIC_SEQ_CST)

#endif
