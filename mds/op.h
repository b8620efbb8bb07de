/*
 * An operation under way, and what the files of ops/ share.
 *
 * A mutation is written as a critical section (store/txn.h): a function that reads the newest
 * state, makes all checks, writes, fills in the reply, and does not yield. op_mutate runs it, loads
 * what it missed and runs it again, adds the replay row, and waits until it is durable. Operations
 * that read are run again after a miss as well, so both kinds may return -LE_MISS anywhere before
 * they have changed anything.
 */
#ifndef LEAT_MDS_OP_H
#define LEAT_MDS_OP_H

#include <sys/stat.h>

#include "mds/mds.h"
#include "mds/perm.h"

struct op {
	struct mds *m;
	struct store *store; /* of m */
	struct rpc_req *r;   /* NULL: the server's own, or a test's */
	const struct msg_desc *desc;
	struct session *session; /* NULL: none */
	uint32_t slot;
	uint64_t seq;
	bool final;      /* the next critical section is the last: its batch takes the replay row */
	bool kept;       /* the replay row has the answer */
	bool lazy;       /* nobody waits for it: what it writes may wait for company */
	bool resumes;    /* carries out an intent of a former incarnation */
	bool owed;       /* ends a durable intent: done even for a lost connection */
	bool begun;      /* others may have seen a part of it: it goes on for a lost connection */
	bool removed;    /* data was queued for removal */
	bool withdrawn;  /* asks whether it was done, and not to do it */
	/* recall.h: what others have leases on, what is blocked until the section has been run */
	struct ino recall[8];
	uint32_t n_recall;
	bool recall_writes; /* write leases only */
	bool recall_own;    /* the session's own as well */
	struct lease_file *blocked[16];
	uint32_t n_blocked;
	struct list told; /* recall.h: sessions that are told of a new owner */
	struct list memory;
};

/* A critical section, or an operation that reads. */
int op_mutate(struct op *op, int (*fn)(struct op *op, const void *in, void *out), const void *in,
	      void *out) CHECK_RESULT;
int op_read(struct op *op, int (*fn)(struct op *op, const void *in, void *out), const void *in,
	    void *out) CHECK_RESULT;
/* Of an operation that opens a file: the one that it has cut so far, also in a former incarnation
 * (0: none); and in the critical section that does it, that it is that one. */
struct ino op_has_cut(const struct op *op);
void op_cuts(struct op *op, struct ino ino);
/* Is it still to be done? What a connection had queued when its session was taken over or ended is
 * not (-LE_DISCONNECTED, -LE_SESSION_GONE), nor what has waited for too long (-LE_TIMEDOUT), nor
 * what its client has withdrawn (-LE_CANCELED). */
int op_alive(const struct op *op) CHECK_RESULT;
/* Memory for the reply, until the operation ends. */
void *op_alloc(struct op *op, size_t size);
void op_init(struct op *op, struct mds *m);
void op_fini(struct op *op);
/* The whole way of one request: session, replay, execution. in and out as rpc has decoded them. */
int op_run(struct op *op, const struct frame_hdr *hdr, const void *in, void *out) CHECK_RESULT;

/* ---- for critical sections ---- */
int64_t op_now(struct op *op);
int name_check(struct bytes name) CHECK_RESULT;
/* The directory of a name: -LE_NOENT when it is gone, -LE_NOTDIR. */
int parent_get(struct op *op, struct ino ino, enum view view, struct inode **ret_dir,
	       const struct inode_rec **ret_rec) CHECK_RESULT;
/* The newest record of a directory that still has a name. -LE_NOTDIR, -LE_NOENT. */
int dir_get(struct op *op, struct ino ino, struct inode **ret_dir,
	    const struct inode_rec **ret_rec) CHECK_RESULT;
/* The same, which the caller may change. */
int dir_get_for_change(struct op *op, const struct cred *c, struct ino ino, struct inode **ret_dir,
		       const struct inode_rec **ret_rec) CHECK_RESULT;
/* An inode of a former lookup: -LE_STALE when it is gone. */
int file_get(struct op *op, struct ino ino, enum view view, struct inode **ret_i,
	     const struct inode_rec **ret_rec) CHECK_RESULT;
/* An entry more or less (delta), a subdirectory more or less (links). */
void dir_changed(struct op *op, struct inode *dir, int delta, int links, struct attr *ret_attr);
void inode_changed(struct op *op, struct inode_rec *rec); /* ctime and change counter */
/* Where it had data there may be none now, or it is shorter: who meets a hole wants to know. */
static inline void inode_cut(struct inode_rec *rec)
{
	rec->attr.cuts++;
}
/* The size is known: what appends were given and have not written is nobody's any more. */
static inline void inode_places_end(struct inode_rec *rec)
{
	if (rec->append_end > rec->attr.size)
		inode_cut(rec);
	rec->append_end = 0;
}
/* mtime accounts for what the chains wrote until then. */
static inline void inode_accounts_for(struct inode_rec *rec, int64_t at_ns)
{
	if (rec->attr.chains_ns < at_ns)
		rec->attr.chains_ns = at_ns;
}
/* And mtime: the data is another one from now on, whatever a writer says later of writes before. */
void inode_data_changed(struct op *op, struct inode_rec *rec);
/* The same for data that was written until at_ns (0: none was), which is heard of now: clients may
 * have shown that time already, and it was no later change. What mtime accounts for is no news. */
void inode_written(struct op *op, struct inode_rec *rec, int64_t at_ns);
/* Does the quota of the directory allow an inode of that type (as for inode_make) in it? -LE_DQUOT
 */
int inode_quota(struct op *op, const struct inode_rec *dir, uint32_t mode) CHECK_RESULT;
/* A new inode in the directory, owned by c. mode: with type, as it was asked for; umask or the
 * directory's default access list apply. Writes. */
struct inode *inode_make(struct op *op, const struct cred *c, const struct inode_rec *dir,
			 uint32_t mode, struct inode_rec **ret_rec);
/* Takes one link away. At none the inode goes, or becomes an orphan while it is open (or, a file
 * that was replaced by a rename, for a moment: linger.h). Writes. */
void inode_unlink(struct op *op, struct inode *i, bool replaced, struct attr *ret_attr);
/* The last of an inode: record and data. Writes. */
void inode_remove(struct op *op, struct inode *i);
/* Queues data for removal. Writes. */
void data_remove(struct op *op, const struct attr *a);
/* No data anywhere, and nobody who might be writing some. */
bool inode_has_no_data(const struct inode_rec *rec);
/* The session has it open for writing, and might do that. */
bool op_writes(const struct op *op, struct ino ino);
/* Nobody has it open, and nobody could still reclaim an open. */
bool inode_not_open(struct op *op, struct ino ino);
void op_cap(struct op *op, const struct attr *a, uint32_t flags, struct cap *ret_cap);

/* A write or another owner takes security.capability away. Writes, if there is one. */
void inode_drop_caps(struct op *op, struct inode_rec *rec);
/* Sets what mask says (enum attr_mask, not SET_SIZE). Writes. */
void attr_apply(struct op *op, struct inode_rec *rec, uint32_t mask, const struct attr *new);
/* Empties a file that nobody has open: another data generation, the old data is queued for removal.
 * Writes. */
void data_drop(struct op *op, struct inode_rec *rec);
/* A data generation that was never used. */
uint32_t data_next_gen(const struct inode_rec *rec);
/* A right to read and write, for the session. */
struct cap data_cap(struct mds *m, struct ino ino, uint32_t gen, uint64_t session);

/* ---- data.c: a file's data as a whole ---- */
struct ranges;
struct data_ends {
	uint64_t size, used, n_chunks;
	uint64_t covered; /* of what is prepared */
	int64_t mtime_ns;
};
/* Asks all chains of the layout. prepared: of the file; NULL: does not matter. -LE_TARGET_DOWN at
 * the deadline. Yields. */
int data_stat(struct mds *m, struct ino ino, const struct layout *l,
	      const struct ranges *prepared, uint64_t deadline_us,
	      struct data_ends *ret_ends) CHECK_RESULT;
/*
 * A change of many chunks: data_begin writes the intent, in a critical section; data_carry_out
 * trims or punches on all chains, and tries until it is done or the server stops (then it is
 * finished after the next start), clears the intent and sets the new attributes. -LE_CORRUPT: a
 * chunk of which a part would remain is damaged in all its copies: the intent is cleared, the size
 * is what it was, and nothing behind it was cut off. The file's `busy` is held all the time, and
 * while it is being trimmed getattr says so (ATTR_CUTTING). The last one yields. final: it is the
 * whole operation, whose reply is the attributes: the replay row goes with the end of it; else it
 * is part of one (op_cuts). -LE_OVERLOAD: too many under way, nothing is changed.
 */
int data_begin(struct op *op, struct intent_rec *rec, const struct inode_rec *inode, bool final,
	       uint64_t *ret_no) CHECK_RESULT;
/* At the start, of one that a former incarnation has left: the one that it had, or, where two had
 * the same, another one. -LE_CORRUPT_STORE */
int intent_slot_hold(struct mds *m, uint32_t *slot) CHECK_RESULT;
int data_carry_out(struct op *op, struct open_file *f, uint64_t intent,
		   const struct intent_rec *rec, struct attr *ret_attr) CHECK_RESULT;
/* It was cut or punched by a former incarnation, which may not have waited until nobody shows what
 * it was, as data_carry_out does: does so. Yields. */
void data_cut_before(struct op *op, struct ino ino);
/* Makes the inode settled with the size that the chains tell, if nobody writes it. In the
 * background. */
void data_settle_start(struct mds *m, struct ino ino);
/* The same for files for which bytes of a quota are reserved as long as they are not settled: there
 * were too many at once, or the chains did not answer. */
void data_settle_owed(struct mds *m);
/* What is to be done when an inode has lost an opener: remove an orphan, settle a size. Yields. */
int data_idle(struct mds *m, struct ino ino) CHECK_RESULT;

/* The answer in out was given by a former incarnation: makes the open or close of which it tells
 * count again. Yields. */
int open_state_redo(struct op *op, uint16_t what, const void *in, void *out) CHECK_RESULT;
/* Counts an open again that was known to a former incarnation. -LE_STALE: the inode is gone.
 * Yields. */
int open_reclaim(struct op *op, struct ino ino, uint32_t flags, uint32_t n) CHECK_RESULT;
/* The same with a lock of its. -LE_LOCKED: somebody else has it. */
int lock_reclaim(struct op *op, struct ino ino, const struct file_lock *l) CHECK_RESULT;
/* Background: tells clients of locks that they may try again to get. */
void locks_tell(struct mds *m);
/* A session is over: ends it, its locks and all its opens. Yields. */
int session_end(struct mds *m, struct session *se) CHECK_RESULT;

/* ---- the operations: ops/NAME.c ---- */
struct op_desc {
	uint16_t op;
	enum {
		OP_CTRL,
		OP_READ,
		OP_TXN,
		OP_FLOW
	} kind; /* TXN: fn is a critical section; FLOW: runs its own */
	int (*fn)(struct op *op, const void *in, void *out);
};
#define OP_DECLARE(num, name, kind) int name(struct op *op, const void *in, void *out) CHECK_RESULT;
MDS_OPS(OP_DECLARE)

#endif
