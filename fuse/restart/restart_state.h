/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a mount that outlives its daemon, in a memory file that the supervisor holds
 * (supervisor.h): the INIT exchange, the open files, and the restart state of the client library
 * (struct ll_restart_state). Each step is recorded before its consequences, because the daemon may
 * be killed between any two of them; a daemon that finds the state filled takes over from there.
 * Without a supervisor it is plain memory.
 *
 * Written by the daemon, but for the fields that say otherwise. A daemon reads only a state of its
 * own version.
 */
#ifndef LEAT_FUSE_RESTART_RESTART_STATE_H
#define LEAT_FUSE_RESTART_RESTART_STATE_H

#include <sys/types.h>

#include "client/ll.h"

#define RESTART_MAGIC     0x4c4b4550u
#define RESTART_VERSION   7u
#define RESTART_INIT_MAX  512u
#define RESTART_FILES_MAX (1u << 18)
#define RESTART_OWNERS    2u

/* How the kernel reads an open file (kernel/passthrough.h). */
struct restart_state_pass {
	uint64_t ver;       /* version of the staged file */
	int32_t backing_id; /* 0: its reads reach the daemon */
	uint8_t sealed;
};

/* An open file. Its number for the kernel is use << 32 | index, so that no number is used twice. */
struct restart_file {
	uint64_t ino;
	uint64_t unique; /* number of the request that opened it; 0: the kernel has its reply */
	uint64_t owners[RESTART_OWNERS]; /* owners of the locks that were last taken through it */
	/* flags of open(2); user and group of the program that opened it */
	uint32_t flags, uid, gid;
	uint32_t use;
	uint8_t used, unused, next_owner;
	struct restart_state_pass pass;
};

enum restart_state_end {
	RESTART_KILLED, /* the daemon recorded no other end */
	RESTART_HANDED_OVER,
	RESTART_UNMOUNTED,
};

struct restart {
	uint32_t magic, version;
	uint64_t size;
	pid_t supervisor;               /* 0: none */
	uint32_t n_crashes, n_upgrades; /* written by the supervisor; successful upgrades */
	uint32_t n_refused;             /* failed upgrades */
	uint8_t end;      /* enum restart_state_end: how the daemon has ended; the supervisor
	                   * resets it */
	int64_t ready_ms; /* monotonic_ms() when the last daemon was ready */
	uint32_t n_ready; /* daemons that have become ready to serve */
	int64_t turned_ms; /* monotonic_ms() of the loop's last turn; 0: none yet. Reset with end */
	uint8_t mounted, resend; /* resend: the kernel can resend requests */
	uint8_t init_done;       /* the answer below has been sent, or is about to be */
	uint8_t ino32;           /* as negotiated at INIT */
	uint8_t on_overlay;      /* at INIT; later folders of stage_dir may be on overlayfs */
	uint8_t anew; /* written by the supervisor: the daemon is to load the key from its file */
	uint8_t has_key; /* key is that of the last daemon that was ready */
	struct rpc_key key;
	uint64_t dev;    /* of the mount */
	struct ino root; /* the directory that is mounted, whatever its path is now */
	uint32_t init_len, answer_len;
	uint8_t init[RESTART_INIT_MAX], answer[RESTART_INIT_MAX];
	uint64_t next_dir;
	struct ll_restart_state client;
	uint32_t files_top; /* no entry from there on was ever used */
	struct restart_file files[RESTART_FILES_MAX];
};

/* Makes an empty state: in a memory file, *ret_fd, or in plain memory if ret_fd is NULL. Returns
 * NULL and sets errno if that fails. */
struct restart *restart_state_create(int *ret_fd);
/* Maps the state of a previous daemon. Returns NULL if it is of another version, or is damaged. */
struct restart *restart_state_open(int fd);

/* Records that the daemon is ready, and the cluster key that it uses. */
void restart_state_ready(struct restart *k, const struct rpc_key *key);
/* The monotonic clock, which the supervisor and all daemons share. */
int64_t monotonic_ms(void);

/* Stores before it reach the memory file before stores after it, wherever the process is killed. */
#define RESTART_BARRIER() __atomic_signal_fence(__ATOMIC_SEQ_CST)

#endif
