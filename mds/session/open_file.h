/*
 * Open files: soft state, counted per (session, inode), reclaimed by the clients after a restart.
 * What several writers and truncations in between mean for the size is kept here while anybody has
 * the file open, some longer operation on its data is under way, or bytes of a quota are reserved
 * for what was written.
 *
 * Owned by the loop.
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
	/* Ever, and cuts: who asked the chains knows whether the data may have changed since. */
	uint32_t write_opens;
	bool converting;    /* a conversion is at it */
	bool cutting;       /* it is to be trimmed, by an intent: appends are given no places */
	bool trimming;      /* and object servers may have begun */
	uint32_t refs;      /* who works with it just now */
	struct fmutex busy; /* data as a whole: truncate, punch, settle, append over unknown ends */
	/* Since the first of the present writers opened: */
	bool dirty;           /* some close said so */
	bool ask_chains;      /* what closes report does not suffice: several sessions wrote, or a
				 truncation */
	bool untracked;       /* not all by one session that knows what it did: no write lease */
	bool had_writers;     /* it was not settled when the first of them opened it */
	bool cut;             /* a truncation: sizes that closes report may be older than it */
	uint64_t replaced_us; /* when a rename took its last name away; 0: none did */
	bool settling;        /* a fiber is at it */
	bool ends_known;      /* appends need not ask the chains */
	bool ends_asked;      /* they are being asked, and nothing was heard against it since */
	uint64_t placed;      /* the newest change counter with which an append was given a place */
	uint64_t size, used;  /* as reported by closes */
	struct quota *quota;  /* with reserved > 0: whose */
	uint64_t reserved;    /* of its bytes, until the record counts what was written */
	struct list owed;     /* of open_files: nobody writes it any more, and it does not yet */
	int64_t mtime_ns;     /* of the newest write that closes told of */
};

struct open {
	struct hmap_node node; /* by session and inode */
	struct list by_session, by_file;
	struct session *session;
	struct open_file *file;
	uint32_t n_read, n_write, n_append; /* n_append of n_write are O_APPEND */
	/* PERM_R, PERM_W: opened with that right. Others are told after a restart, by a client of
	 * which anything may come (exports.h): they count as opens, and are no right. */
	uint8_t granted;
	bool placed; /* it may be writing at a place that an append was given (recall.h) */
	struct list by_presumed;            /* of the session */
	bool presumed;                      /* one of n_read: nobody has told of it */
	/* of these: told by a process from which another one takes the session over */
	uint32_t old_read, old_write, old_append;
};

struct open_files {
	struct hmap map;   /* struct open_file */
	struct hmap opens; /* struct open */
	struct list owed;  /* struct open_file, to be settled */
	uint32_t n, n_max; /* structs open_file */
	uint64_t n_opens;
};

void open_files_init(struct open_files *of, uint32_t n_max);
void open_files_fini(struct open_files *of);

struct open_file *open_file_find(struct open_files *of,
				 struct ino ino); /* NULL: not open, not worked with */
/* Finds or makes it and takes a reference. -LE_NFILE, -LE_NOMEM. Does not yield. */
int open_file_get(struct open_files *of, struct ino ino, struct open_file **ret_f) CHECK_RESULT;
void open_file_put(struct open_files *of, struct open_file *f);

/* Makes room for an open that open_add then counts without failing. -LE_NFILE, -LE_NOMEM. */
int open_prepare(struct open_files *of, struct session *se, struct ino ino,
		 struct open **ret_open) CHECK_RESULT;
/* It was opened with these flags of open(2) by who may. */
void open_grant(struct open *o, uint32_t flags);
/* flags of open(2). settled: the inode was not marked as unsettled before. */
void open_add(struct open_files *of, struct open *o, uint32_t flags, uint32_t n, bool settled);
/* That the session has it open for reading is presumed, until it is asked. -LE_NFILE, -LE_NOMEM. */
int open_presume(struct open_files *of, struct session *se, struct ino ino) CHECK_RESULT;
/* It was asked; o may be gone afterwards. */
void open_presumed_end(struct open_files *of, struct open *o);
/* Undoes a prepare that was not used. */
void open_trim(struct open_files *of, struct open *o);
struct open *open_find(struct open_files *of, const struct session *se, struct ino ino);
/* One open less; o may be gone afterwards. The caller holds a reference to the file. */
void open_drop(struct open_files *of, struct open *o, uint32_t flags);
/* Takes so many bytes of the quota. It is open for writing. */
void open_file_reserve(struct open_file *f, struct quota *q, uint64_t bytes);
/* Its record counts all that was written, or is gone: they are given back, unless somebody writes
 * it again. NULL: nothing was reserved. f may be gone afterwards. */
void open_file_counted(struct open_files *of, struct open_file *f);
/* All of it. */
void open_drop_all(struct open_files *of, struct open *o);
/* All that it is now is of a process that has ended. */
void open_set_old(struct open *o);
/* What is left of that ends, as if it had been silent; o may be gone afterwards. The caller holds a
 * reference to the file. */
void open_drop_old(struct open_files *of, struct open *o);

/* Somebody may have written behind what the chains have said, or still say. */
static inline void open_file_ends_unknown(struct open_file *f)
{
	f->ends_known = f->ends_asked = false;
}

/* An append of it was given a place, with this change counter. */
static inline void open_placed(struct open *o, uint64_t change)
{
	o->placed = true;
	o->file->placed = change;
}

static inline bool open_file_is_open(const struct open_file *f)
{
	return f != NULL && !list_empty(&f->opens);
}
/* Somebody else than this session may write other than by append. */
bool open_file_other_writers(struct open_files *of, const struct open_file *f,
			     const struct session *se, bool but_append);

static inline bool open_flags_write(uint32_t flags)
{
	return (flags & 3) != 0; /* O_WRONLY, O_RDWR of Linux */
}

#endif
