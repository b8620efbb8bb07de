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
	uint64_t bytes_moved;        /* of them read from the source */
	uint64_t files, files_total;
	uint64_t elapsed_us;
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
	/* How long to wait for another process that is making the same copy; 0: for ever. */
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
};

struct leat_stage_result {
	size_t size;
	int code;                /* enum leat_stage_code */
	char id[LEAT_ID_SIZE];   /* "" if it did not get that far */
	char path[4096];         /* DIR/.leat/ID/data */
	uint64_t files, bytes;   /* of the data set */
	uint64_t bytes_verified; /* of them, in the copy now */
	uint64_t bytes_moved;    /* read from the source by this call */
	uint64_t bytes_missing;  /* NO_CAPACITY: so much more space is needed */
	uint64_t elapsed_us;
	uint32_t skipped; /* links and special files of the source, not copied */
	/* Of a failure. */
	char message[512]; /* one sentence with path and offset */
	char fail_path[4096];
	uint64_t fail_offset; /* UINT64_MAX: the file as a whole */
};

/* Returns when the copy is READY, or with what prevented it. */
int leat_stage_in(const struct leat_stage_options *opts, struct leat_stage_result *ret_result);

/* ---- what is there. `what`: an id, the first 6 or more digits of one, "name@version", or a source
 * directory ---- */

enum leat_stage_state {
	LEAT_COPY_PARTIAL,
	LEAT_COPY_STAGING,
	LEAT_COPY_READY,
	LEAT_COPY_DEGRADED
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
	int leased; /* some process uses it */
};
/* each: non-zero ends the walk and is returned. */
int leat_stage_list(const char *to, int (*each)(void *arg, const struct leat_stage_copy *c),
		    void *arg);
/* The status of ENOENT: there is none; of EEXIST: several match. */
int leat_stage_status(const char *to, const char *what, struct leat_stage_copy *ret_copy);
/* The directory with the files: only of a READY copy (else the status of EAGAIN). */
int leat_stage_path(const char *to, const char *what, char *ret_path, size_t size);
/* Reads every block again. What is wrong is no longer READY afterwards and will be fetched again by
 * leat_stage_in; code is LEAT_STAGE_LOCAL_CORRUPT then. Of opts only to, progress, arg and cancel
 * count. */
int leat_stage_verify(const struct leat_stage_options *opts, const char *what,
		      struct leat_stage_result *ret_result);
/* Removes a copy. The status of EBUSY while it is leased or being made. */
int leat_stage_evict(const char *to, const char *what);

/* A lease keeps a copy from being evicted until it is given back or the process ends. */
struct leat_stage_lease;
int leat_stage_lease(const char *to, const char *what, struct leat_stage_lease **ret_lease);
void leat_stage_release(struct leat_stage_lease *lease); /* NULL is fine */

/* ---- data sets: manifests with a name, kept in the file system that holds the data ---- */

struct leat_dataset_info {
	size_t size;
	char id[LEAT_ID_SIZE];
	char name[132], version[132];
	char source[4096];
	uint64_t files, bytes;
	uint64_t samples; /* 0 without a sample index */
	char format[16];  /* as in struct leat_dataset_stat, or "" */
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
/* Removes the name and its manifest, not the data. */
int leat_dataset_remove(struct leat_fs *fs, const char *catalog, const char *alias);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
