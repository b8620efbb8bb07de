/*
 * Staging: verified copies of data sets on node-local storage, and the data sets themselves.
 *
 * A copy lies in DIR/.leat/ID/data as plain files, ID being the content of the data set. It is
 * READY when every block of it has been verified in memory and synced to storage; the mark is the
 * last thing written. N processes that ask for the same data set at once make one copy. A copy that
 * was interrupted, even by kill -9 or a power cut, goes on where it was: what was synced is kept,
 * what may not have been is verified again, only what is missing or wrong is moved.
 *
 * Functions block, may be called from any thread, and return 0 or a negative status (leat_errno,
 * leat_strerror); what is behind it is in the result. Structs that begin with their size are to be
 * set to zero and given their size by the caller, so that they can grow.
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

/* What a staging operation ended with: the exit codes of `leat stage`, never renumbered. */
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
	LEAT_STAGE_SOURCE_GONE = 9, /* missing, or changed meanwhile */
	LEAT_STAGE_PERMISSION = 10,
	LEAT_STAGE_AGENT = 11,
	LEAT_STAGE_CANCELLED = 12,
	LEAT_STAGE_INTERRUPTED = 75 /* resumable */
};
/* One word: "done", "no capacity" */
const char *leat_stage_code_text(int code);

/* ---- staging in ---- */

struct leat_stage_progress {
	size_t size;
	const char *phase; /* "wait" for another process, "scan", "checksum" the source, "copy",
			      "verify" */
	uint64_t bytes, bytes_total; /* verified so far, of how many */
	uint64_t bytes_moved;        /* of them moved: from the source and from other nodes */
	uint64_t files, files_total;
	uint64_t elapsed_us;
	uint64_t bytes_source, bytes_peers; /* what was moved, by where it came from */
	/* How many nodes take part, this one included; 0: not told. */
	uint32_t nodes;
	const char *slowest; /* of several nodes: which is the furthest behind; or NULL */
};

/* What a call has reached on its way, for those who do not wait for its end. */
enum leat_stage_milestone {
	LEAT_STAGE_RESERVED = 1, /* there is room, and it is ours */
	LEAT_STAGE_STREAMABLE,	 /* the first window is durable: a loader may start */
};

struct leat_stage_options {
	size_t size;
	/* Where the source lies: in this Leat namespace, or NULL for the local file system. */
	struct leat_fs *fs;
	/* A directory (absolute), or a data set's alias "name@version". */
	const char *source;
	/* Where aliases are looked up; NULL: "/.leat/datasets". */
	const char *catalog;
	/* The local directory that holds copies. */
	const char *to;
	/* Refuse when all copies in `to` would exceed this together; 0: only free space counts. */
	uint64_t capacity;
	/* How long it may take in all; what has been copied by then stays, and is gone on with by
	 * the next call. 0: as long as it takes. */
	uint32_t timeout_ms;
	/* Read every block back from storage before READY. */
	int readback;
	/* Called at most 10 times a second, from a thread of the library; must not call back into
	 * it. */
	void (*progress)(void *arg, const struct leat_stage_progress *p);
	void *arg;
	/* Non-zero ends the call with LEAT_STAGE_CANCELLED; may be set from a signal handler. The
	 * copy can be resumed. */
	const volatile int *cancel;
	/* leat_dataset_create: what the samples are, as in struct leat_dataset_options; NULL: told
	 * by the files' names. */
	const char *format;
	/* Further local directories, a NULL behind the last: files are spread over all of them by
	 * the space they have; `to` has links to those that are elsewhere. At most 7. */
	const char *const *more_dirs;
	/* Bytes per second read from the source, at most; 0: no limit. */
	uint64_t max_rate;
	/* "seed=N,batch=N,world=N,rank=N[-N],epoch=N,mode=M": fetch in the order in which those
	 * ranks will read in that epoch (leat_loader.h). NULL: as the files lie. */
	const char *order;
	/* How many bytes, at the beginning of that order, are the first window; 0: 1 GiB. */
	uint64_t first_window;
	/* Called once for each milestone, like progress; a copy that is READY has passed all. */
	void (*reached)(void *arg, enum leat_stage_milestone m);
	/* The copy is leased to this job (letters, digits, . _ -) from its beginning on, for ttl_s
	 * seconds (0: until leat_stage_release_job). NULL: not leased. */
	const char *lease;
	uint64_t ttl_s;
	/* If there is no room: evict copies that are not leased, not pinned, and can be made
	 * again. */
	int evict;
	/* leat_stage_out: what is there already is replaced, at once and as a whole. */
	int replace;
	/* Every tar archive ("a/b.tar"; compressed: .tar.gz, .tgz, .tar.zst, .tzst, .tar.lz4)
	 * becomes a folder ("a/b") of its members, with checksums of their own: a copy of its own,
	 * named "NAME@VERSION.unpacked". That of the archives goes when it is done, unless it was
	 * there before. */
	int unpack;
};

enum leat_stage_skip {
	LEAT_SKIP_LINKS = 1,   /* symbolic links that lead out of the tree, or to nothing */
	LEAT_SKIP_SPECIAL = 2, /* devices, sockets, pipes */
};

/* What was left out of a tree. */
struct leat_stage_left {
	/* "dangling", "directory", "outside", "loop", "denied": a link, by where it leads;
	 * "device", "socket", "pipe"; "member": of an archive that is unpacked */
	char why[16];
	unsigned skip; /* the bit that asks for it */
	uint64_t n;
	uint32_t n_names;
	char names[3][512]; /* the first ones; long ones are cut */
};

struct leat_stage_result {
	size_t size;
	int code;                /* enum leat_stage_code */
	char id[LEAT_ID_SIZE];   /* "" if it did not get that far */
	char path[4096];         /* DIR/.leat/ID/data */
	uint64_t files, bytes;   /* of the data set */
	uint64_t bytes_verified; /* of them, in the copy now */
	uint64_t bytes_moved;    /* moved by this call, from the source or from other nodes */
	uint64_t bytes_missing;  /* NO_CAPACITY: so much more space is needed */
	uint64_t elapsed_us;
	uint32_t skipped; /* links and special files of the source, not copied: `left` */
	/* Of a failure. */
	char message[512]; /* one sentence with path and offset */
	char fail_path[4096];
	uint64_t fail_offset; /* UINT64_MAX: the file as a whole */
	uint64_t bytes_source, bytes_peers; /* of bytes_moved */
	/* leat_stage_plan: still to be moved, free in the directories, and held by copies that
	 * could be evicted. */
	uint64_t bytes_needed, bytes_free, bytes_evictable;
	/* What was left out of a tree that this call has walked; and files that have other names:
	 * each of them is a file of its own in the copy. */
	uint64_t hard_links;
	uint32_t n_left;
	struct leat_stage_left left[12];
	uint64_t narrowed; /* files and folders that fewer may read than at the source */
};

/* Returns when the copy is READY, or with what prevented it. */
int leat_stage_in(const struct leat_stage_options *opts, struct leat_stage_result *ret_result);
/* What leat_stage_in would have to do: changes nothing. code is LEAT_STAGE_NO_CAPACITY where it
 * would not fit. */
int leat_stage_plan(const struct leat_stage_options *opts, struct leat_stage_result *ret_result);
/*
 * The other way: opts->to, a local directory, becomes opts->source, a directory that does not exist
 * yet (or is replaced, see there) in the namespace of opts->fs, or locally where that is NULL. All
 * files are written beside it, synced and compared with their checksums; then it gets its name in
 * one step. What a former call has written is kept if it is right.
 */
int leat_stage_out(const struct leat_stage_options *opts, struct leat_stage_result *ret_result);

/* ---- what is there. `what`: an id, the first 6 or more digits of one, "name@version", or a source
 * directory ---- */

enum leat_stage_state {
	LEAT_COPY_PARTIAL,
	LEAT_COPY_STAGING,
	LEAT_COPY_READY,
	LEAT_COPY_DEGRADED,
	LEAT_COPY_PLANNED,    /* somebody is looking at the source, or at the space */
	LEAT_COPY_RESERVED,   /* the space is set aside, nothing copied yet */
	LEAT_COPY_STREAMABLE, /* STAGING, and the first window is there */
	LEAT_COPY_STALE,      /* READY, but the name means something newer */
	LEAT_COPY_EVICTING,
	LEAT_COPY_FAILED,     /* fail_code, fail_path, message; what was copied is kept */
	LEAT_COPY_CANCELLED,
	LEAT_COPY_GONE,
	LEAT_COPY_SHARED /* whole in the files that this node's placement gives it: not READY */
};
const char *leat_stage_state_text(int state);

struct leat_stage_copy {
	size_t size;
	char id[LEAT_ID_SIZE];
	char name[132], version[132]; /* "" where it was staged from a directory */
	char source[4096];
	char path[4096];
	int state; /* enum leat_stage_state; DEGRADED: marked ready, but files are missing */
	uint64_t files, bytes, bytes_verified;
	int leased; /* some process or job uses it */
	int pinned;
	int64_t used_s; /* Unix time when it was used last; 0: not known */
	int fail_code;	/* enum leat_stage_code, of FAILED */
	char fail_path[1024];
	char message[256];
	uint64_t bytes_data; /* of bytes: what is not in blocks of zeros, which take no space */
};
/* each: non-zero ends the walk and is returned. */
int leat_stage_list(const char *to, int (*each)(void *arg, const struct leat_stage_copy *c),
		    void *arg);
/* The status of ENOENT: there is none; of EEXIST: several match. */
int leat_stage_status(const char *to, const char *what, struct leat_stage_copy *ret_copy);
/* The directory with the files: only of a READY copy (else the status of EAGAIN), and only where
 * this user may look for files in it (else that of EACCES). */
int leat_stage_path(const char *to, const char *what, char *ret_path, size_t size);
/* Reads every block again. What is wrong is no longer READY afterwards and will be fetched again by
 * leat_stage_in; code is LEAT_STAGE_LOCAL_CORRUPT then. Of opts only to, progress, arg and cancel
 * count. */
int leat_stage_verify(const struct leat_stage_options *opts, const char *what,
		      struct leat_stage_result *ret_result);
/* Removes a copy. The status of EBUSY while it is leased, pinned or being made. */
int leat_stage_evict(const char *to, const char *what);
struct leat_stage_wait_options {
	size_t size;
	int milestone;	     /* enum leat_stage_milestone; 0: READY */
	uint32_t timeout_ms; /* 0: for ever */
	const volatile int *cancel;
};
/* Waits until the copy is READY or has passed the milestone. *ret_code: DONE; TIMEOUT; NOT_READY:
 * it is partial and nobody makes it, or for 10 s there was no trace of it; what it failed with;
 * CANCELLED. */
int leat_stage_wait(const char *to, const char *what, const struct leat_stage_wait_options *opts,
		    int *ret_code, struct leat_stage_copy *ret_copy);
/* Asks whoever makes the copy to stop. The status of ENOENT: nobody does. */
int leat_stage_cancel(const char *to, const char *what);
/* A pinned copy is not evicted by anybody until it is unpinned. */
int leat_stage_pin(const char *to, const char *what, int on);
struct leat_stage_gc_options {
	size_t size;
	struct leat_fs *fs; /* where the namespace is, or NULL */
	const char *to;
	uint64_t bytes;	   /* so much shall be free */
	uint64_t capacity; /* all copies together shall be within that; 0: no matter */
	int dry_run;
	/* Of those that are (dry_run: would be) removed; may be NULL. */
	void (*each)(void *arg, const struct leat_stage_copy *c);
	void *arg;
	/* Further directories, a NULL behind the last: all of them count together. At most 7. */
	const char *const *more_dirs;
};
/* Removes, least recently used first, copies that are not leased, not pinned, and whose source is
 * still there as it was, until there is room (a stale one also when what its name means now is
 * READY here and at its source); and what was left of removals that were interrupted. *ret_bytes:
 * how much that is. */
int leat_stage_gc(const struct leat_stage_gc_options *opts, uint64_t *ret_bytes);

/* A descriptor to read the lines of events below `to` from, each a JSON object, close-on-exec. The
 * status of ENOENT: nothing has happened yet; LEAT_EFOREIGN: what is there is no file, or somebody
 * else's. */
int leat_stage_events(const char *to);

/* A lease keeps a copy from being evicted until it is given back or the process ends. */
struct leat_stage_lease;
int leat_stage_lease(const char *to, const char *what, struct leat_stage_lease **ret_lease);
void leat_stage_release(struct leat_stage_lease *lease); /* NULL is fine */
/* The same for a job that no process of this machine stands for: for ttl_s seconds, 0: until it is
 * released. Also of a copy that is not READY yet. */
int leat_stage_lease_job(const char *to, const char *what, const char *job, uint64_t ttl_s);
/* what NULL: every lease of the job below `to`. The status of ENOENT: it had none. */
int leat_stage_release_job(const char *to, const char *what, const char *job);

/* ---- the agent of a node: makes copies when it is asked to, and hands them on to other nodes ----
 */

struct leat_agent;
/* On the instance fs, which it needs until it is stopped: section [agent] of conf (NULL: the
 * default), params "name=value", a NULL behind the last, or NULL. */
int leat_agent_start(struct leat_fs *fs, const char *conf, const char *const *params,
		     struct leat_agent **ret_agent);
/* What it was doing can be gone on with. */
void leat_agent_stop(struct leat_agent *agent);
/* Where other nodes reach it: "host:port". */
const char *leat_agent_addr(const struct leat_agent *agent);

/* ---- data sets: manifests with a name, kept in the file system that holds the data ---- */

/* As struct leat_left of leat_loader.h; texts are cut where they are too long. */
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
	int damaged; /* in a list: its manifest is not there, or not right; of the rest only name,
		      * version and perhaps id are known */
	/* Names of fields, the first of n_fields, a newline between two. */
	uint32_t n_fields, n_classes, n_left;
	char fields[512];
	struct leat_dataset_left left[LEAT_LEFT_MAX]; /* of its files, what no sample has */
	/* In a list: not for this user; of the rest only name, version and id are told. */
	int denied;
};

/* Makes a manifest and a sample index of opts->source, a directory, and names it; checksums are
 * imported without reading the data where the source is a Leat namespace. An existing alias gives
 * the status of EEXIST. Of opts fs, source, catalog, progress, arg and cancel count. */
int leat_dataset_create(const struct leat_stage_options *opts, const char *alias,
			struct leat_dataset_info *ret_info, struct leat_stage_result *ret_result);
/* fs NULL: catalog is a local directory. catalog NULL: "/.leat/datasets" of fs. */
int leat_dataset_list(struct leat_fs *fs, const char *catalog,
		      int (*each)(void *arg, const struct leat_dataset_info *i), void *arg);
int leat_dataset_show(struct leat_fs *fs, const char *catalog, const char *alias,
		      struct leat_dataset_info *ret_info);
/* Makes all files of the data set immutable, for ever and for everybody: no writing, truncation,
 * change of attributes or further link; only root may rename or remove them. Before and after, they
 * are compared with the manifest without reading them: code SOURCE_GONE if they have changed. Of
 * opts fs, catalog, and cancel count. */
int leat_dataset_seal(const struct leat_stage_options *opts, const char *alias,
		      struct leat_stage_result *ret_result);
/* Removes the name and its manifest, not the data. */
int leat_dataset_remove(struct leat_fs *fs, const char *catalog, const char *alias);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
