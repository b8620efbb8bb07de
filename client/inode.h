/*
 * What the client knows of inodes: attributes as of the last answer, and for those in use (open,
 * being closed, or with data under way) a struct idata: capability, own size, data under way,
 * prefetched data. Owned by the client's loop.
 *
 * While there is a lease (lease.h) what is known holds; else it is asked for each time. Inodes
 * without users stay in memory for their attributes and leases; params.inodes_max bounds these.
 */
#ifndef LEAT_CLIENT_INODE_H
#define LEAT_CLIENT_INODE_H

#include <fcntl.h>

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/proto/file_locks.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"
#include "common/rt/slot.h"

struct client;
struct idata;
struct name_filter;
struct mds_append_req;

struct inode {
	struct hmap_node node; /* by ino */
	struct list lru;       /* while refs == 0 */
	struct ino ino;
	uint32_t refs;
	bool opened;              /* ever: open_change means something */
	struct attr attr;         /* settled at settled_us, as far as it needs to be: mtime_ns and
				   * chains_ns are then what the chains said, if that is later */
	uint64_t attr_us;         /* when it was told; 0: must be asked for */
	uint64_t outdated_us;     /* changed here since: what was asked for before is older */
	uint64_t lease_us;        /* when what gave the lease was asked for; 0: none */
	uint64_t shared_us;       /* the same, of one that leaves out what writers change */
	uint64_t shared_size;     /* the record's, below which the size does not fall meanwhile */
	uint64_t recalled_us;     /* when it was recalled last */
	uint64_t kernel_until_us; /* a directory: names were given to the kernel until then, perhaps
				   * before it was forgotten, or by a former process */
	uint64_t kernel_attr_us;  /* attributes were given to it for no longer than until then */
	uint64_t names_lost;      /* a directory: of own changes of names up to that one nothing
				   * may be in names.h */
	uint64_t complete_us;     /* a directory: since then all its names are in names.h; or 0 */
	struct name_filter *names_gone; /* of these: what may be there but is not in memory */
	uint64_t settled_us;  /* when the chains were asked; 0: not since the attributes became
				 unsettled */
	uint64_t found_us;    /* when the MDS told us its name's inode; 0: or it was opened since */
	uint64_t open_change; /* the change counter that cached data belongs to */
	uint32_t cuts;        /* truncations by this client */
	uint32_t n_changing;  /* changes of this client under way: what others see is not known */
	uint32_t n_names_changing; /* of these, of a directory: only of names, names.h */
	struct cap cap;            /* to read: delegation.h */
	uint32_t cap_gen;          /* the client's session_gen then; 0: none */
	uint32_t n_held;           /* of refs, by ll_hold: an open directory */
	struct idata *data;        /* NULL when not in use */
};

/* Small writes on their way to becoming a large one. */
struct gather {
	struct list link;  /* of writeback.gathers, oldest first */
	struct slot *slot; /* NULL: nothing gathered */
	uint64_t idx;      /* of the chunk */
	uint32_t base;     /* chunk offset of the slot's first byte */
	uint32_t lo, hi;   /* the bytes that are there, in the slot */
	uint64_t reserved; /* of the target's grant */
	struct target *target;
	uint64_t since_us;
};

/* Of an inode in use. */
struct idata {
	struct inode *inode;
	struct client *c;
	struct list open_link; /* of inode_table.open */

	/* opens as the MDS counts them, those being closed included */
	uint32_t n_read, n_write, n_append, n_closing; /* n_append of n_write are O_APPEND */
	bool read_buffered; /* by a file without O_DIRECT */
	/* session.c: the session in which all of these are open, and, until they are in the present
	 * one, which are */
	uint32_t reopened_gen;
	struct {
		uint32_t gen, n_read, n_write, n_append;
	} reopened;
	uint32_t lost_gen; /* the session in which not all could be: reopened counts on */
	uint32_t n_delegated;  /* opens for reading of which the MDS is not told (delegation.h), */
	bool delegated_told;   /* or only that there are some: one of n_read */
	uint32_t n_lazy, n_close_waiters; /* closes that the MDS may take its time with; waiters */
	uint32_t n_late; /* closes that are asked for beyond their time */
	struct waitq closing_q;
	struct list closes; /* struct ll_file, whose closes are being sent */
	/* capabilities: [0] to read, [1] to write; valid when cap_gen is the client's session_gen
	 */
	struct cap caps[2];
	uint32_t cap_gens[2];
	struct fmutex cap_lock;
	uint32_t renew_uid, renew_gid;

	/* What a former process wrote, what this one wrote while it was being cut, or in a session
	 * that has ended, is where the chains say: what is known of the size is not believed before
	 * they have been asked. */
	bool unsure;

	/* lease.c */
	bool reasking;   /* the MDS is being asked whether it is still shared */
	bool was_shared; /* so the MDS may believe that it is */

	/* own writes */
	uint64_t size;          /* largest end of anything written or known */
	uint64_t durable_end;   /* largest end that a server has confirmed since it got a writer
				   or a session here, or was cut */
	int64_t mtime_ns;       /* of the newest confirmed write; 0: none */
	int64_t mtime_guess_ns; /* of the newest one that is not confirmed; 0: none. It stays:
				   object servers take it over */
	bool was_cut;           /* while it was open here for writing, or perhaps, when a session
				   was lost: closes do not tell its end */
	bool doubted;           /* a write failed whose writer was told: the same */
	bool sparse;            /* used space is not simply the size */
	uint64_t quota_left;    /* bytes that the MDS lets it grow by, where there is a quota */
	bool packed;            /* or it may be less, once all is written: not for a file with
				   data to seem to have none meanwhile */
	struct list writes;     /* struct wreq, oldest first */
	uint64_t write_seq;
	struct waitq write_q; /* a write has ended */
	struct gather gather;
	struct fmutex append_lock; /* who writes at the end, or moves it */
	uint32_t n_both;           /* files that were opened to append and write elsewhere as well:
				    * none of n_append (ll_file.counted) */
	bool appending;            /* at an end that only this client knows: io_write.c */
	struct mds_append_req *append_req; /* while it is sent */
	uint64_t placed;           /* writing at a place that was given with this change; 0: not */
	uint32_t placed_gen;       /* in that session: it is no place in another one */
	bool placed_there;         /* some of what belongs there may be written */
	uint64_t placed_void;      /* places that were given with this change or an older one */
	bool alone;                /* it wrote behind under a write lease, not recalled since */
	/* Writes of pages without a lease; of these, that nobody's kernel shows what was there. */
	uint64_t n_pages, n_pages_seen;
	struct waitq append_q;     /* either has ended */
	int err;          /* the newest error of a write-behind */
	uint32_t mark;    /* kept.c: 1 + the place where it is noted; 0: it is clean */
	uint32_t err_gen; /* counts them: each open file reports one once */
	uint32_t n_files, n_unheard; /* open here; of these, that have not reported the newest */

	/* lock.c: what this mount's programs hold, and those who wait */
	struct file_locks locks;
	struct waitq lock_q;
	uint32_t n_unlocked; /* counts when it is worth to ask again */
	struct waitq lock_turn;
	uint32_t n_lock_calls; /* under way */
	uint32_t n_menders;    /* that wait for their turn */
	bool mending;          /* what the MDS has is being set to what is held */

	/* readahead.c */
	struct list units;
	uint32_t n_units;
	uint64_t ra_window;

	uint64_t n_holes; /* io_read.c: counts reads that met one, or a chunk's end */
};

struct inode_table {
	struct hmap map;
	/* Unused, oldest first: [1] those that were once opened. When there are too many, the list
	 * goes that has more than its half: neither files that are made nor a long listing drive
	 * out all of the other kind, above all the directories in which that happens. */
	struct list lru[2];
	uint32_t n_unused[2];
	struct list open; /* struct idata */
	struct list free, free_data, deferred;
	uint32_t n_free, n_free_data;
};

void inode_table_init(struct client *c);
void inode_table_fini(struct client *c);

/* The inode with a reference, known or new: NULL without memory. */
struct inode *inode_get(struct client *c, struct ino ino);
/* The same, NULL when it is not known. */
struct inode *inode_peek(struct client *c, struct ino ino);
static inline void inode_ref(struct inode *i)
{
	i->refs++;
}
void inode_put(struct client *c, struct inode *i);
/* For walks over inode_table.open: the reference falls with inode_put_deferred. */
void inode_put_later(struct client *c, struct inode *i);
void inode_put_deferred(struct client *c);
/* Its idata; made when there is none. -LE_NOMEM. The caller holds a reference. */
int inode_data(struct client *c, struct inode *i, struct idata **ret_data) CHECK_RESULT;
/* Frees the idata when nothing needs it any more. */
void inode_data_trim(struct client *c, struct inode *i);

/* An answer of the MDS: newer attributes, and perhaps a lease. own: the answer to a change that
 * this client made, so a step of the change counter by one is ours. sent_us: when it was asked for.
 */
void inode_update(struct client *c, struct inode *i, const struct attr *attr, bool own,
		  uint64_t sent_us);
/* Opened, by that answer, with flags of open(2): those that were given before, and come later, know
 * nothing of this writer. */
void inode_opened(struct inode *i, uint32_t flags);
/* Get, update, put: for answers about names. */
void inode_saw(struct client *c, const struct attr *attr, bool own, uint64_t sent_us);
/* We have changed it ourselves, by an answer that does not carry its attributes: a name more or
 * less in a directory, extended attributes. */
void inode_outdated(struct client *c, struct ino ino);
/* This client has changed it, and was not told how it is now. */
void inode_changed_here(struct inode *i);
/* This client has changed the names in a directory: its attributes then, if the MDS has told. */
void inode_dir_changed(struct client *c, struct ino ino, const struct attr *attr, uint64_t sent_us);
/* The attributes with what this client wrote itself. */
void inode_attr(const struct client *c, const struct inode *i, struct attr *ret_attr);
/* Nobody need be asked, but the chains perhaps, for the size of a file with writers. */
bool inode_attr_fresh(const struct client *c, const struct inode *i);
/* Nobody at all. */
bool inode_size_fresh(const struct client *c, const struct inode *i);
/* It has writers, and what this client knows of its size is not to be believed (idata.unsure). */
static inline bool inode_is_unsure(const struct inode *i)
{
	return (i->attr.flags & ATTR_UNSETTLED) != 0 && i->data != NULL && i->data->unsure;
}

/* A sealed file: its data is the same for ever. */
static inline bool inode_is_fixed(const struct inode *i)
{
	return (i->attr.flags & ATTR_SEALED) != 0;
}

#endif
