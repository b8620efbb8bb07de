/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: verified copies of data sets on node-local storage, and the data sets themselves.
 *
 * A copy lies in DIR/.leat/ID/data as plain files; ID identifies the content of the data set. A
 * copy is READY when every block of it has been verified in memory and synced to storage; the mark
 * of this is written last. Processes that request the same data set concurrently make one copy.
 * The next call continues a copy that was interrupted, even by kill -9 or a power cut: it keeps
 * data that was synced, verifies data that may not have been, and transfers only what is missing
 * or wrong.
 *
 * Functions block, may be called from any thread, and return 0 or a negative status (leat_errno,
 * leat_strerror); the reason is in the result. Where a comment says "fails with ENOENT",
 * leat_errno of the status is ENOENT. The caller zeroes structs that begin with their size, and
 * sets their size; later versions append members. Texts and pointers of options are borrowed for
 * the call.
 */
#ifndef LEAT_STAGE_H
#define LEAT_STAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct leat_fs; /* a connection to a Leat cluster, see leat.h */

#define LEAT_ID_SIZE 65 /* 64 hexadecimal digits and NUL */

/* The outcome of a staging operation: the exit statuses of `leat stage`, never renumbered. */
enum leat_stage_code {
	LEAT_STAGE_DONE = 0,
	LEAT_STAGE_INTERNAL = 1,
	LEAT_STAGE_USAGE = 2,
	LEAT_STAGE_NOT_READY = 3,
	LEAT_STAGE_TIMEOUT = 4,
	LEAT_STAGE_PARTIAL = 5,
	LEAT_STAGE_SOURCE_CORRUPT = 6,
	LEAT_STAGE_LOCAL_CORRUPT = 7,
	LEAT_STAGE_NO_CAPACITY = 8,
	LEAT_STAGE_SOURCE_GONE = 9, /* missing, or changed since */
	LEAT_STAGE_PERMISSION = 10,
	LEAT_STAGE_AGENT = 11,
	LEAT_STAGE_CANCELLED = 12,
	LEAT_STAGE_INTERRUPTED = 75 /* resumable */
};
/* Returns a code in words: "done", "no capacity". Static text, never NULL. */
const char *leat_stage_code_text(int code);

/* ---- staging in ---- */

struct leat_stage_progress {
	size_t size;
	const char *phase; /* "wait" for another process, "scan", "checksum" of the source, "copy",
			      "verify" */
	uint64_t bytes, bytes_total; /* verified so far, of the total */
	uint64_t bytes_moved;        /* of these bytes, those transferred from the source and
				      * other nodes */
	uint64_t files, files_total;
	uint64_t elapsed_us;
	uint64_t bytes_source, bytes_peers; /* bytes_moved, by origin */
	/* Nodes that make the copy together, including this one; 0: not available. */
	uint32_t nodes;
	const char *slowest; /* with several nodes, the one with the least progress; or NULL */
};

/* Points that a call passes before its end. */
enum leat_stage_milestone {
	LEAT_STAGE_RESERVED = 1, /* the space is reserved */
	LEAT_STAGE_STREAMABLE,	 /* the first window is durable: a loader may start */
};

struct leat_stage_options {
	size_t size;
	/* The Leat namespace that holds the source; NULL: the local file system. */
	struct leat_fs *fs;
	/* A directory (absolute), or a data set's alias "name@version". */
	const char *source;
	/* The directory of aliases; NULL: "/.leat/datasets". */
	const char *catalog;
	/* The local directory that holds copies. */
	const char *to;
	/* Limit in bytes for all copies in `to` together, else NO_CAPACITY; 0: only the free space
	 * counts. */
	uint64_t capacity;
	/* Limit for the whole call, else TIMEOUT; data copied by then is kept, and the next call
	 * continues. 0: no limit. */
	uint32_t timeout_ms;
	/* Non-zero: every block is read back from storage before READY. */
	int readback;
	/* Called at most 10 times a second, from a thread of the library; must not call the
	 * library. May be NULL. */
	void (*progress)(void *arg, const struct leat_stage_progress *p);
	void *arg; /* passed to progress and reached */
	/* A non-zero value ends the call with LEAT_STAGE_CANCELLED; a signal handler may set it.
	 * The next call continues the copy. May be NULL. */
	const volatile int *cancel;
	/* leat_dataset_create: the format of the samples, as in struct leat_dataset_options; NULL:
	 * by the names of the files. */
	const char *format;
	/* Further local directories, at most 7, with a NULL after the last; or NULL. Files are
	 * distributed over all directories by their free space; `to` has links to the files in the
	 * others. */
	const char *const *more_dirs;
	/* Limit for reading from the source, in bytes per second; 0: no limit. */
	uint64_t max_rate;
	/* "seed=N,batch=N,world=N,rank=N[-N],epoch=N,mode=M": transfers the data in the order in
	 * which those ranks will read it in that epoch (leat_loader.h). NULL: file by file. */
	const char *order;
	/* Size of the first window in bytes, from the beginning of that order; 0: 1 GiB. */
	uint64_t first_window;
	/* Called once for each milestone, like progress; a READY copy has passed all of them.
	 * May be NULL. */
	void (*reached)(void *arg, enum leat_stage_milestone m);
	/* The job that the copy is leased to from its beginning on (letters, digits, . _ -), for
	 * ttl_s seconds (0: until leat_stage_release_job). NULL: not leased. */
	const char *lease;
	uint64_t ttl_s;
	/* Non-zero: if the space does not suffice, evicts copies that are neither leased nor
	 * pinned and still have their source. */
	int evict;
	/* leat_stage_out: non-zero: replaces an existing destination, as a whole and in one
	 * step. */
	int replace;
	/* Non-zero: every tar archive ("a/b.tar"; compressed: .tar.gz, .tgz, .tar.zst, .tzst,
	 * .tar.lz4) becomes a folder ("a/b") of its members, which have checksums. The result is a
	 * separate copy, "NAME@VERSION.unpacked". The copy of the archives is removed afterwards,
	 * unless it existed before the call. */
	int unpack;
};

enum leat_stage_skip {
	LEAT_SKIP_LINKS = 1,   /* symbolic links that lead out of the tree, or to nothing */
	LEAT_SKIP_SPECIAL = 2, /* devices, sockets, pipes */
};

/* Entries of a tree that were not copied, for one reason. */
struct leat_stage_left {
	/* The reason: "dangling", "directory", "outside", "loop", "denied" for a link, by its
	 * target; "device", "socket", "pipe"; "member" of an archive that is unpacked. */
	char why[16];
	unsigned skip; /* the bit of enum leat_stage_skip for it */
	uint64_t n;    /* entries */
	uint32_t n_names;
	char names[3][512]; /* the first n_names entries; long names are truncated */
};

struct leat_stage_result {
	size_t size;
	int code;                /* enum leat_stage_code */
	char id[LEAT_ID_SIZE];   /* "": the source was not read completely */
	char path[4096];         /* DIR/.leat/ID/data */
	uint64_t files, bytes;   /* of the data set */
	uint64_t bytes_verified; /* of these bytes, those verified in the copy */
	uint64_t bytes_moved;    /* transferred by this call, from the source and other nodes */
	uint64_t bytes_missing;  /* NO_CAPACITY: the space that is lacking */
	uint64_t elapsed_us;
	uint32_t skipped; /* links and special files that were not copied, see `left` */
	/* Of a failure: one sentence with path and offset; the path; the offset in bytes,
	 * UINT64_MAX for the file as a whole. */
	char message[512];
	char fail_path[4096];
	uint64_t fail_offset;
	uint64_t bytes_source, bytes_peers; /* of bytes_moved */
	/* leat_stage_plan: bytes to be transferred, free in the directories, and held by copies
	 * that could be evicted. */
	uint64_t bytes_needed, bytes_free, bytes_evictable;
	/* If this call has walked a tree: files with several names, each of which is a separate
	 * file in the copy; and what was not copied, n_left entries. */
	uint64_t hard_links;
	uint32_t n_left;
	struct leat_stage_left left[12];
	uint64_t narrowed; /* files and folders with fewer permissions to read than the source */
};

/* Makes a copy of opts->source in opts->to, or continues one, and returns when it is READY. Returns
 * a negative status for wrong options or a failure of the library; else 0, with the outcome in
 * ret_result->code. */
int leat_stage_in(const struct leat_stage_options *opts, struct leat_stage_result *ret_result);
/* Computes what leat_stage_in would have to do, and changes nothing. ret_result->code is
 * LEAT_STAGE_NO_CAPACITY if the copy would not fit. */
int leat_stage_plan(const struct leat_stage_options *opts, struct leat_stage_result *ret_result);
/* Copies the local directory opts->to to opts->source, a directory in the namespace of opts->fs, or
 * in the local file system if that is NULL. The destination must not exist, unless opts->replace is
 * set; else fails with EEXIST. All files are written beside it, synced and compared with their
 * checksums; then the directory gets its name in one step. Data that an earlier call has written is
 * kept if it is right. */
int leat_stage_out(const struct leat_stage_options *opts, struct leat_stage_result *ret_result);

/* ---- copies ---- */
/* `to` is a directory that holds copies. `what` names one of them: an id, the first 6 or more
 * digits of one, "name@version", or a source directory. */

enum leat_stage_state {
	LEAT_COPY_PARTIAL,
	LEAT_COPY_STAGING,
	LEAT_COPY_READY,
	LEAT_COPY_DEGRADED,
	LEAT_COPY_PLANNED,    /* a process examines the source and the space */
	LEAT_COPY_RESERVED,   /* the space is reserved, nothing is copied yet */
	LEAT_COPY_STREAMABLE, /* STAGING, and the first window is complete */
	LEAT_COPY_STALE,      /* READY, but the name means newer content */
	LEAT_COPY_EVICTING,
	LEAT_COPY_FAILED,     /* see fail_code, fail_path, message; copied data is kept */
	LEAT_COPY_CANCELLED,
	LEAT_COPY_GONE,
	LEAT_COPY_SHARED /* complete in the files that the placement assigns to this node */
};
/* Returns a state in capitals: "READY". Static text, never NULL. */
const char *leat_stage_state_text(int state);

struct leat_stage_copy {
	size_t size;
	char id[LEAT_ID_SIZE];
	char name[132], version[132]; /* "": staged from a directory */
	char source[4096];
	char path[4096];
	int state; /* enum leat_stage_state; DEGRADED: marked READY, but files are missing */
	uint64_t files, bytes, bytes_verified;
	int leased; /* a process or a job has a lease on it */
	int pinned;
	int64_t used_s; /* Unix time of the last use; 0: never noted */
	int fail_code;	/* enum leat_stage_code, of FAILED */
	char fail_path[1024];
	char message[256];
	uint64_t bytes_data; /* of bytes, without blocks of zeros, which take no space */
};
/* Calls `each` for every copy below `to`. A value other than 0 that it returns ends the call and is
 * returned. */
int leat_stage_list(const char *to, int (*each)(void *arg, const struct leat_stage_copy *c),
		    void *arg);
/* Describes one copy. Fails with ENOENT if there is none, with EEXIST if several match. */
int leat_stage_status(const char *to, const char *what, struct leat_stage_copy *ret_copy);
/* Returns the directory of a READY copy's files in ret_path, of size bytes. Fails with EAGAIN if
 * the copy is not READY, with EACCES if this user may not search the directory. */
int leat_stage_path(const char *to, const char *what, char *ret_path, size_t size);
/* Reads and verifies every block of a copy. If any is wrong, ret_result->code is
 * LEAT_STAGE_LOCAL_CORRUPT, the copy is no longer READY, and leat_stage_in repairs it. Uses to,
 * progress, arg and cancel of opts. */
int leat_stage_verify(const struct leat_stage_options *opts, const char *what,
		      struct leat_stage_result *ret_result);
/* Removes a copy. Fails with EBUSY while it is leased, pinned or being made. */
int leat_stage_evict(const char *to, const char *what);
struct leat_stage_wait_options {
	size_t size;
	int milestone;	     /* enum leat_stage_milestone; 0: READY */
	uint32_t timeout_ms; /* 0: no limit */
	const volatile int *cancel; /* as in struct leat_stage_options */
};
/* Waits until the copy is READY or has passed the milestone. *ret_code is DONE; TIMEOUT; CANCELLED;
 * the code that the copy failed with; or NOT_READY if it is partial and no process makes it, or if
 * no such copy has appeared for 10 s. */
int leat_stage_wait(const char *to, const char *what, const struct leat_stage_wait_options *opts,
		    int *ret_code, struct leat_stage_copy *ret_copy);
/* Requests the process that makes the copy to stop, and does not wait for it. Fails with ENOENT
 * if no process makes it. */
int leat_stage_cancel(const char *to, const char *what);
/* Pins the copy (on: non-zero), so that no process evicts it, or unpins it. */
int leat_stage_pin(const char *to, const char *what, int on);
struct leat_stage_gc_options {
	size_t size;
	struct leat_fs *fs; /* the namespace of the sources; may be NULL */
	const char *to;
	uint64_t bytes;	   /* the space to be free afterwards */
	uint64_t capacity; /* limit for all copies together; 0: none */
	int dry_run;       /* non-zero: nothing is removed */
	/* Called for each copy that is (with dry_run: would be) removed; may be NULL. */
	void (*each)(void *arg, const struct leat_stage_copy *c);
	void *arg;
	/* Further directories, at most 7, with a NULL after the last; or NULL. All count
	 * together. */
	const char *const *more_dirs;
	/* Set to the bytes that are (with dry_run: would be) lacking to `bytes`; may be NULL. */
	uint64_t *ret_missing;
};
/* Removes copies, the least recently used first, until opts->bytes are free and all copies are
 * within opts->capacity. Removes a copy only if it is neither leased nor pinned and its source
 * exists unchanged; a stale copy also if the present content of its name is READY here and exists
 * at its source. Also completes removals that were interrupted. *ret_bytes: the bytes removed. */
int leat_stage_gc(const struct leat_stage_gc_options *opts, uint64_t *ret_bytes);

/* Returns a descriptor (close-on-exec) from which the events below `to` can be read, one JSON
 * object a line; the caller closes it. Fails with ENOENT if there are no events yet. Fails with
 * EPERM if the file of the events is no regular file or belongs to another user. */
int leat_stage_events(const char *to);

struct leat_stage_lease;
/* Takes a lease on a copy: it is not evicted until leat_stage_release, or until the process
 * ends. */
int leat_stage_lease(const char *to, const char *what, struct leat_stage_lease **ret_lease);
/* Releases the lease and frees it. lease may be NULL. */
void leat_stage_release(struct leat_stage_lease *lease);
/* Takes a lease for a job, which outlives the calling process: for ttl_s seconds, 0: until
 * leat_stage_release_job. The copy need not be READY yet. */
int leat_stage_lease_job(const char *to, const char *what, const char *job, uint64_t ttl_s);
/* Releases the job's lease on a copy; what NULL: all its leases below `to`. Fails with ENOENT if it
 * has none. */
int leat_stage_release_job(const char *to, const char *what, const char *job);

/* ---- the agent of a node ---- */
/* An agent makes copies on request and serves their blocks to other nodes. */
struct leat_agent;
/* Starts an agent on the instance fs, which must outlive it, and returns it; leat_agent_stop ends
 * it. Its parameters are section [agent] of conf (NULL: as for leat_open_fs) and then params,
 * "name=value" with a NULL after the last; or NULL. */
int leat_agent_start(struct leat_fs *fs, const char *conf, const char *const *params,
		     struct leat_agent **ret_agent);
/* Stops the agent and frees it. Copies that it was making are kept and can be continued. */
void leat_agent_stop(struct leat_agent *agent);
/* Returns the address at which other nodes reach the agent, "host:port"; valid until it is
 * stopped. */
const char *leat_agent_addr(const struct leat_agent *agent);

/* ---- data sets ---- */
/* A data set is a manifest with a name, stored in the file system that holds the data. */

/* As struct leat_left of leat_loader.h; long texts are truncated. */
struct leat_dataset_left {
	char why[16], kind[16], first[256];
	uint64_t n, bytes;
};
#define LEAT_LEFT_MAX 16

struct leat_dataset_info {
	size_t size;
	char id[LEAT_ID_SIZE];
	char name[132], version[132];
	char source[4096];
	uint64_t files, bytes;
	uint64_t samples; /* 0 without a sample index */
	char format[16];  /* as in struct leat_dataset_stat, or "" */
	int sealed;	  /* its files can never change */
	int damaged; /* in a list: the manifest is missing or wrong; only name, version and perhaps
		      * id are set */
	/* fields: the names of the first of n_fields fields, with a newline between two. */
	uint32_t n_fields, n_classes, n_left;
	char fields[512];
	struct leat_dataset_left left[LEAT_LEFT_MAX]; /* files that no sample uses, n_left */
	/* In a list: this user may not read it; only name, version, id, made_ns and made_uid are
	 * set. */
	int denied;
	/* The creation of the name: nanoseconds since 1970 by the clock of the file system that
	 * holds the catalogue, or 0; the user; and the host name of the machine, or "". */
	int64_t made_ns;
	uint32_t made_uid;
	char made_host[72];
};

/* Makes a manifest and a sample index of the directory opts->source, and gives it the name `alias`,
 * "name@version". In a Leat namespace, checksums are taken from the servers and the data is not
 * read. Fails with EEXIST if the name exists. Uses fs, source, catalog, format, progress, arg and
 * cancel of opts. */
int leat_dataset_create(const struct leat_stage_options *opts, const char *alias,
			struct leat_dataset_info *ret_info, struct leat_stage_result *ret_result);
/* Calls `each` for every data set of a catalogue. fs NULL: catalog is a local directory. catalog
 * NULL: "/.leat/datasets" of fs. A value other than 0 that `each` returns ends the call and is
 * returned. */
int leat_dataset_list(struct leat_fs *fs, const char *catalog,
		      int (*each)(void *arg, const struct leat_dataset_info *i), void *arg);
/* Describes one data set. fs and catalog as for leat_dataset_list. Fails with ENOENT if there is
 * no such name. */
int leat_dataset_show(struct leat_fs *fs, const char *catalog, const char *alias,
		      struct leat_dataset_info *ret_info);
/* Makes all files of the data set immutable for ever and for all users: they cannot be written,
 * truncated or linked, their attributes cannot change, and only root may rename or remove them. The
 * files are compared with the manifest before and after, without reading their data;
 * ret_result->code is LEAT_STAGE_SOURCE_GONE if they have changed. Uses fs, catalog and cancel of
 * opts. */
int leat_dataset_seal(const struct leat_stage_options *opts, const char *alias,
		      struct leat_stage_result *ret_result);
/* Removes the name and its manifest; the data stays. fs and catalog as for leat_dataset_list. */
int leat_dataset_remove(struct leat_fs *fs, const char *catalog, const char *alias);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
