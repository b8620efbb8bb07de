/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files: soft state, counted for each (session, inode), reclaimed by the clients after a
 * restart. A struct open_file exists while a session has the file open, an operation on its data
 * runs, or bytes of a quota are reserved for what was written. Besides the counts it has what
 * closes have reported of the file's size, which is not in the record yet.
 *
 * Owned by the loop. Nothing here yields.
 */
#ifndef LEAT_MDS_SESSION_OPEN_FILE_H
#define LEAT_MDS_SESSION_OPEN_FILE_H

#include "mds/session/session.h"

/*
 * Who knows the size of a file. The table of moves is in open_file.c. A write lease needs a file
 * that one session changes. The close of the last writer settles the file by what closes have
 * reported, or else by a query to the chains.
 */
enum size_state {
	SIZE_SETTLED,   /* the record has it */
	SIZE_EXCLUSIVE, /* one session makes all changes, and no close has reported anything */
	SIZE_REPORTED,  /* one session makes all changes, and closes have reported what it wrote */
	/* One session makes all changes, a truncation among them. Query the chains: sizes that
	 * closes report may be older than the truncation. */
	SIZE_TRUNCATED,
	/* Query the chains: several sessions have written, or one whose writes were not reported.
	 * Sizes that closes report are lower bounds. */
	SIZE_SHARED,
	/* Query the chains: as SIZE_SHARED, and reported sizes may be older than a truncation. */
	SIZE_SHARED_TRUNCATED,
	N_SIZE_STATES,
};

/* The phase of a truncation of the file. */
enum truncation_phase {
	TRUNCATION_NONE,
	TRUNCATION_BEGUN, /* its intent is open: appends get no reservation */
	TRUNCATION_TRIMS, /* and object servers may have trimmed already */
};

/* Whether an append must query the chains for the end of the file. */
enum append_end {
	APPEND_END_UNKNOWN, /* yes: a session may have written there without a report */
	APPEND_END_QUERIED, /* they are being queried, and no session has interfered */
	APPEND_END_KNOWN,
};

struct open_file {
	struct hmap_node node;
	struct ino ino;
	struct list opens; /* struct open, by_file */
	uint32_t n_readers, n_writers,
		n_append; /* opens, of all sessions; n_append are among n_writers */
	/* Number of opens for writing and of truncations so far. If it did not change during a
	 * query to the chains, no session has begun to write and nothing was truncated
	 * meanwhile. */
	uint32_t write_opens;
	enum size_state size_state;
	enum truncation_phase truncation;
	enum append_end append_end;
	bool converting;    /* a conversion copies it */
	bool settling;      /* a fiber is settling the file */
	bool had_writers;   /* it was unsettled when the first of the present writers opened it */
	uint32_t refs;      /* references other than opens */
	struct fmutex busy; /* held by truncate, punch, settle, an append that queries the chains */
	uint64_t replaced_us; /* when a rename took its last name; 0: none did */
	uint64_t size, used;  /* as closes reported since the first of the present writers opened */
	struct quota *quota;  /* of `reserved`, if that is not 0 */
	uint64_t reserved;    /* bytes, until the record counts what was written */
	struct list owed;     /* in open_files.owed if it has reserved bytes and no writers */
	int64_t mtime_ns;     /* of the newest write that closes reported */
};

struct open {
	struct hmap_node node; /* by session and inode */
	struct list by_session, by_file;
	struct session *session;
	struct open_file *file;
	uint32_t n_read, n_write, n_append; /* n_append: those of n_write with O_APPEND */
	/* PERM_R, PERM_W: opened with that right. Opens that a client of a squashed network
	 * (access/exports.h) reclaims after a restart count, but give no right. */
	uint8_t granted;
	struct list by_assumed_open; /* of the session */
	bool assumed;                /* one of n_read is assumed, not reported by the client */
	/* Of n_read, n_write, n_append: opens of the process before a takeover. */
	uint32_t old_read, old_write, old_append;
};

struct open_files {
	struct hmap map;   /* struct open_file */
	struct hmap opens; /* struct open */
	struct list owed;  /* struct open_file that have to be settled */
	uint32_t n, n_max; /* structs open_file */
	uint64_t n_opens;
};

/* Makes an empty table for at most n_max files. */
void open_files_init(struct open_files *of, uint32_t n_max);
/* Frees the table and all that is in it. */
void open_files_fini(struct open_files *of);

/* The file with that inode; NULL: it is not open, and no operation works with it. */
struct open_file *open_file_find(struct open_files *of, struct ino ino);
/* Finds the file or makes one, and takes a reference. Returns 0, -LE_NFILE or -LE_NOMEM. */
int open_file_get(struct open_files *of, struct ino ino, struct open_file **ret_f) CHECK_RESULT;
/* Drops a reference; frees the file if it is not open and nothing else holds it. */
void open_file_put(struct open_files *of, struct open_file *f);

/* Finds or makes the struct open of the session and inode, so that open_add cannot fail. Returns
 * 0, -LE_NFILE or -LE_NOMEM. */
int open_prepare(struct open_files *of, struct session *se, struct ino ino,
		 struct open **ret_open) CHECK_RESULT;
/* Notes the right that an open with these flags of open(2) gives. */
void open_grant(struct open *o, uint32_t flags);
/* Counts n opens with these flags of open(2). settled: the inode was settled before. */
void open_add(struct open_files *of, struct open *o, uint32_t flags, uint32_t n, bool settled);
/* Counts an open for reading that the session is assumed to have (lease/assumed_open.h). Returns 0,
 * -LE_NFILE or -LE_NOMEM. */
int open_assume(struct open_files *of, struct session *se, struct ino ino) CHECK_RESULT;
/* Drops the assumed open: the client has reported its opens. Frees o if it has no other. */
void open_assumed_end(struct open_files *of, struct open *o);
/* Undoes an open_prepare that was not used. */
void open_trim(struct open_files *of, struct open *o);
/* The opens of the session of that inode; NULL: none. */
struct open *open_find(struct open_files *of, const struct session *se, struct ino ino);
/* Drops one open with these flags; frees o if it was the last. The caller holds a reference to the
 * file. */
void open_drop(struct open_files *of, struct open *o, uint32_t flags);
/* Reserves bytes of the quota for a file that is open for writing. */
void open_file_reserve(struct open_file *f, struct quota *q, uint64_t bytes);
/* Called when the record counts all that was written, or the inode was removed: releases the
 * reserved bytes, unless the file has writers. f: NULL is fine; it may be freed. */
void open_file_counted(struct open_files *of, struct open_file *f);
/* Drops all opens of o, and frees it. */
void open_drop_all(struct open_files *of, struct open *o);
/* Marks all opens of o as those of the process before a takeover. */
void open_set_old(struct open *o);
/* Drops the opens of the process before the takeover like those of a silent client; frees o if
 * none is left. The caller holds a reference to the file. */
void open_drop_old(struct open_files *of, struct open *o);

/* Called when the record has the size and the file has no writers. */
void size_is_settled(struct open_file *f);
/* Called, before the open is dropped, when a close reports what its session has written. */
void size_is_reported(struct open_file *f);
/* Called when not all changes since the file was settled are known to be of one session. Has no
 * effect on a settled file, which has no writers. */
void size_is_shared(struct open_file *f);
/* Called when the file with writers was truncated, or a client does not know whether it was. own:
 * by the only session that has it open for writing. */
void size_is_truncated(struct open_file *f, bool own);

/* True if one session has made all changes since the file was settled. */
static inline bool size_is_exclusive(const struct open_file *f)
{
	return f->size_state <= SIZE_TRUNCATED;
}
/* True if settling needs the chains, whatever closes report. */
static inline bool size_must_be_queried(const struct open_file *f)
{
	return f->size_state >= SIZE_TRUNCATED;
}
/* True if the sizes that closes report may be older than a truncation. */
static inline bool size_reports_are_old(const struct open_file *f)
{
	return f->size_state == SIZE_TRUNCATED || f->size_state == SIZE_SHARED_TRUNCATED;
}

/* True if a session has the file open. f: NULL is fine. */
static inline bool open_file_is_open(const struct open_file *f)
{
	return f != NULL && !list_empty(&f->opens);
}
/* True if a session other than se has the file open for writing; but_append: and not only with
 * O_APPEND. */
bool open_file_other_writers(struct open_files *of, const struct open_file *f,
			     const struct session *se, bool but_append);

#endif
