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
	bool converting;    /* a conversion copies it */
	bool truncating;    /* an intent to truncate it is open: appends get no reservation */
	bool trimming;      /* and object servers may have trimmed already */
	uint32_t refs;      /* references other than opens */
	struct fmutex busy; /* held by truncate, punch, settle, an append that queries the chains */
	/* Since the first of the present writers opened: */
	bool dirty;           /* a close reported that the session has written */
	bool must_query_size; /* settling needs the chains: several sessions wrote, or the
			       * file was truncated */
	bool not_exclusive;   /* not all changes are of one session: no write lease */
	bool had_writers;     /* the file was unsettled at that time */
	bool cut;             /* truncated: sizes that closes report may be older */
	uint64_t replaced_us; /* when a rename took its last name; 0: none did */
	bool settling;        /* a fiber is settling the file */
	bool eof_known;       /* an append need not query the chains for the end */
	bool eof_queried;     /* they are being queried, and no writer has interfered */
	uint64_t placed;      /* the change counter of the newest append reservation */
	uint64_t size, used;  /* as closes reported */
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
	bool placed;                 /* has append reservations (file/append_recall.h) */
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

/* Called when a session may have written beyond the end that the chains have reported, or are
 * about to report: the next append queries them again. */
static inline void open_file_ends_unknown(struct open_file *f)
{
	f->eof_known = f->eof_queried = false;
}

/* Notes that the session got an append reservation, with this change counter. */
static inline void open_has_reservation(struct open *o, uint64_t change)
{
	o->placed = true;
	o->file->placed = change;
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
