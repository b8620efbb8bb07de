/*
 * The chunks of one target: an index (common/kv) and a data file. Copy-on-write per block,
 * every block with the checksum of its plain bytes, every change seen by readers when it joins
 * and durable when its wait returns, all changes of a moment in one group commit. See README.md
 * for what happens when.
 *
 * Owned by the loop that opened it; calls come from its fibers and yield unless said
 * otherwise. Reads of a chunk take no lock and see what has joined; what concerns all chunks of
 * a file waits until that is durable.
 */
#ifndef LEAT_OSSD_CHUNK_STORE_H
#define LEAT_OSSD_CHUNK_STORE_H

#include "common/proto/oss_proto.h"
#include "common/proto/ranges.h"
#include "common/rt/slot.h"
#include "ossd/chunk/chunk_cache.h"
#include "ossd/chunk/data_file.h"
#include "ossd/chunk/group_commit.h"
#include "ossd/chunk/ledger.h"
#include "ossd/chunk/replay.h"
#include "ossd/chunk/space.h"
#include "ossd/chunk/writers.h"
#include "ossd/metrics.h"
#include "ossd/params.h"

#define STORE_FORMAT 4u
/* What the store is: row 'M' "store" of the index. */
#define store_super_FIELDS(F)                                                                      \
	F(u32, format) F(uuid, uuid) F(uuid, cluster) F(u32, target) F(u64, capacity)
WIRE_STRUCT(store_super)
/* Was it decoded by r, and is it of this format? Says what to do if not. -LE_STORE_FORMAT */
int store_super_check(const struct wire_r *r, const struct store_super *super,
		      const char *dir) CHECK_RESULT;

#define CHUNK_READ_VECS 32u
struct chunk_store {
	struct env *env;
	const struct ossd_params *p;
	struct ossd_metrics *metrics;
	struct kv *kv;
	struct store_super super;
	uint64_t commits, commits_next; /* durable; of the group that is being committed */
	struct data_file data;
	struct space space;
	struct chunk_cache cache;
	struct group_commit gc;
	struct replay replay;
	struct writers writers;
	struct ledger ledger;
	/* Leases of chunks: to whom some were given, as it is on the disk, and was at the start: a
	 * session, LEASED_MANY, or 0; when the last one ends. */
	uint64_t leased, leased_before;
	uint64_t leased_until_us;
	struct fmutex leasing;
	struct slot_pool *read_pool, *small_pool, *merge_pool;
	struct fmutex many_slots; /* of a reader that needs more than one: so that two do not share
				     the last */
	struct slot *zero;
	uint32_t n_writing;
	uint64_t n_vanished; /* rows, so far, that were missed while the store was in use */
	uint64_t last_write_us;
	bool stopping, zeroing;
	struct latch fibers;
	/* For what is done without a yield. */
	uint8_t scratch[CHUNK_RECORD_MAX];  /* a record between encode and put */
	uint8_t block[LEAT_BLOCK_SIZE_MAX]; /* a block on its way into or out of LZ4 */
};

/* p and m live as long as the store. */
int chunk_store_open(struct env *env, const struct ossd_params *p, struct ossd_metrics *m,
		     struct chunk_store **ret_store) CHECK_RESULT;
void chunk_store_close(struct chunk_store *s);
/* Durable: who this store belongs to. */
int chunk_store_set_owner(struct chunk_store *s, const struct uuid *cluster,
			  uint32_t target) CHECK_RESULT;
/* 0, or the failure after which it takes no more writes. Does not yield. */
int chunk_store_status(const struct chunk_store *s);
void chunk_store_gauges(struct chunk_store *s);
/* Leases of chunks (ops/lease.h) of the session may last until then: whoever opens the store next
 * knows that there were some. Yields for the first one, and for that of a second session. -LE_IO */
#define LEASED_MANY UINT64_MAX
int chunk_store_leased(struct chunk_store *s, uint64_t session, uint64_t until_us) CHECK_RESULT;

/* ---- changes: begin, look at tx.rec, join, wait ---- */

/*
 * One change of one chunk. begin takes the chunk's lock, checks everything, writes the data
 * and leaves the new record in `rec` (NULL: deletion). join puts it into the open group, shows
 * it to readers and gives up the lock; wait returns when it is durable. A crash between the two
 * leaves the old record. After a successful begin exactly one of join (then wait) and abort.
 *
 * With `held` set before join (chains), being durable is not the end: the change stays pending
 * until chunk_tx_commit, or chunk_tx_take_back and chunk_tx_taken_back.
 */
enum chunk_change {
	CHANGE_WRITE,
	CHANGE_TRIM,
	CHANGE_PUNCH,
	CHANGE_REMOVE
};
struct chunk_write;
struct chunk_merged {
	uint32_t block, off; /* where its bytes lie in tx->stage */
};
struct chunk_tx {
	struct commit_member member;
	struct chunk_store *s;
	struct chunk_ent *ent;
	struct chunk_record *old, *rec;
	struct list under_way; /* of ent, from join until the group has ended; not of held ones */
	uint64_t session;      /* CHANGE_WRITE: whose it is */
	uint64_t group;
	uint64_t version; /* of rec, or of the removal */
	bool data, locked, changes;
	bool over;     /* begun by chunk_tx_begin_over where there is nothing that can be read */
	bool over_row; /* then: but there is a row */
	bool lost;     /* then: it is known that the chunk is lost */
	bool lose;     /* set before join of a deletion: that the chunk is lost takes its place */
	bool lazy;     /* set before join: others may wait with it for a commit */
	/* It is durable (0), or never will be. Must not yield. */
	void (*held)(struct chunk_tx *tx, int status);
	/* What was done, so that it can be done elsewhere: of CHANGE_WRITE and CHANGE_PUNCH [off,
	 * off + len). */
	enum chunk_change change;
	uint32_t off, len;
	/* CHANGE_WRITE with w->keep: the blocks that were merged. A reference or NULL. */
	struct slot *stage;
	struct chunk_merged merged[2];
	uint32_t n_merged;
};
/* Lock, load, tx->old: the newest record. Nothing to undo when it fails. Then one of the four,
 * which end the tx when they fail, or chunk_tx_cancel. */
int chunk_tx_begin(struct chunk_store *s, const struct chunk_key *id,
		   struct chunk_tx *tx) CHECK_RESULT;
/* The same, but where the record cannot be read, or its row is lost, it is like none: what the tx
 * puts there takes its place. */
int chunk_tx_begin_over(struct chunk_store *s, const struct chunk_key *id,
			struct chunk_tx *tx) CHECK_RESULT;
void chunk_tx_cancel(struct chunk_tx *tx);
/* The same for a write: what others have under way where it writes is durable before. So what is
 * lost with this server is not two things that somebody has seen in an order, and the repetitions
 * may come in any. */
int chunk_tx_begin_write(struct chunk_store *s, const struct chunk_write *w,
			 struct chunk_tx *tx) CHECK_RESULT;
/* Is it another session's, and does it change something where w writes? Under the chunk's lock. */
bool chunk_tx_in_the_way(const struct chunk_tx *tx, const struct chunk_write *w);

void chunk_tx_join(struct chunk_tx *tx); /* does not yield */
int chunk_tx_wait(struct chunk_tx *tx) CHECK_RESULT;
void chunk_tx_abort(struct chunk_tx *tx); /* does not yield */
/* Blocks [first, last] of tx->rec from the disk into slots of their own, one behind the other,
 * as they are stored (block_room bytes each), verified. The slots of vec carry a reference each for
 * the caller. Of a held tx, which may end meanwhile (-LE_STALE, if that was before it had slots).
 * -LE_CORRUPT, -LE_TOO_BIG, -LE_TIMEDOUT. Yields. */
int chunk_tx_read(const struct chunk_tx *tx, uint32_t first, uint32_t last,
		  struct slot_vec vec[CHUNK_READ_VECS], uint32_t *ret_n) CHECK_RESULT;
/* A held one that is durable, and the oldest of its chunk: readers see it now. Ends it. */
void chunk_tx_commit(struct chunk_tx *tx);
/* A held one that is the newest of its chunk, under the chunk's lock: puts the record before it
 * into the open group. When that is durable: taken_back, which ends it. */
void chunk_tx_take_back(struct chunk_tx *tx);
void chunk_tx_taken_back(struct chunk_tx *tx);

struct chunk_write {
	struct chunk_key id;
	uint32_t chunk_size, off, len;
	uint64_t session; /* whose grant is used */
	bool keep;        /* the merged blocks stay in tx->stage */
	bool pack;        /* merged blocks are compressed where that pays */
	bool placed;      /* only where nobody has written, or the same bytes: -LE_EXIST */
	/* Of the chunk, as its head has them; NULL: as they follow from this write. */
	const struct chunk_gaps *gaps;
	struct bytes pieces;
	/* What the pieces tell of, piece_room bytes each; the padding of the last may be
	 * overwritten. */
	const struct slot_vec *bulk;
	uint32_t n_bulk;
};
/* Piece i of a write that was checked. Does not yield. */
static inline struct piece chunk_write_piece(const struct chunk_write *w, uint32_t i)
{
	struct piece p;

	piece_decode((const uint8_t *)w->pieces.data + (size_t)i * PIECE_WIRE_SIZE, &p);
	return p;
}
/* Everything that can be told of a write without its chunk: limits, pieces against data. */
int chunk_write_check(const struct chunk_write *w) CHECK_RESULT;
int chunk_tx_write(struct chunk_tx *tx, const struct chunk_write *w) CHECK_RESULT;
int chunk_tx_trim(struct chunk_tx *tx, uint32_t end) CHECK_RESULT;
int chunk_tx_punch(struct chunk_tx *tx, uint32_t off, uint32_t len) CHECK_RESULT;
int chunk_tx_remove(struct chunk_tx *tx) CHECK_RESULT;
/* begin and the change in one.
 * -LE_INVAL, -LE_CORRUPT_WIRE (data does not match its pieces), -LE_NOSPC, -LE_CORRUPT (an old
 * block to merge with is damaged), -LE_IO. */
int chunk_write_begin(struct chunk_store *s, const struct chunk_write *w,
		      struct chunk_tx *tx) CHECK_RESULT;
/* Cuts at end (< the present one), or deletes when end is 0. tx->changes tells whether there is
 * anything to join; if not, it has ended already. */
int chunk_trim_begin(struct chunk_store *s, const struct chunk_key *id, uint32_t end,
		     struct chunk_tx *tx) CHECK_RESULT;
/* [off, off + len) becomes zeros; whole blocks give their space back. */
int chunk_punch_begin(struct chunk_store *s, const struct chunk_key *id, uint32_t off, uint32_t len,
		      struct chunk_tx *tx) CHECK_RESULT;

#define CHUNK_EDITS_MAX 64u /* joined before each wait */
/* How the changes of many chunks are made, where that is not the store's own affair (chains). */
struct chunk_edits {
	void *arg;
	/* The store's own way, where begin is NULL: may a change still be made? Right before it. */
	int (*may)(void *arg);
	/* Like chunk_tx_begin; like chunk_tx_begin_over where nothing of the chunk is to remain. 1:
	 * it is changed already. */
	int (*begin)(void *arg, const struct chunk_key *id, bool whole, struct chunk_tx *tx);
	/* Takes over what *tx holds (a copy of it may be made), also when it fails. */
	int (*join)(void *arg, struct chunk_tx *tx);
	/* All that was joined has ended. */
	int (*wait)(void *arg);
};

/* ---- many chunks: durable when they return ----
 * file: any chunk of the file, on the chain that is meant. edits: NULL: the store's own. */

/* Nothing at or beyond file offset size survives. ret_n: chunks that changed, also before it
 * failed. */
int chunk_trim_file(struct chunk_store *s, const struct chunk_edits *edits,
		    const struct chunk_key *file, uint32_t chunk_size, uint64_t size,
		    uint64_t *ret_n) CHECK_RESULT;
/* [off, off + len) of the file reads as zeros. */
struct chunk_punch {
	struct chunk_key file;
	uint32_t chunk_size;
	uint64_t off, len;
};
int chunk_punch_file(struct chunk_store *s, const struct chunk_edits *edits,
		     const struct chunk_punch *p, uint64_t *ret_n) CHECK_RESULT;
int chunk_remove_file(struct chunk_store *s, const struct chunk_edits *edits,
		      const struct chunk_key *file, uint64_t *ret_n) CHECK_RESULT;
/* Many of one chain, in the order of their rows, each once; idx 0. What fails ends it: chunks of
 * any of them may be left. */
int chunk_remove_files(struct chunk_store *s, const struct chunk_edits *edits,
		       const struct chunk_key *files, uint32_t n, uint64_t *ret_n) CHECK_RESULT;

/* ---- reads ---- */

/* A slot that several reads share, each behind those before it. */
struct read_room {
	struct slot *slot;
	uint32_t used;
};
struct chunk_read {
	struct chunk_key id;
	uint32_t off, len;
	bool verify;
	/* What is committed, though there be newer; or, with it, -LE_PENDING when there is. */
	bool committed, quiet;
	/* Asked when the record is chosen: may it be read? Must not yield. May be NULL. */
	int (*admit)(void *arg);
	void *admit_arg;
	/* NULL: it takes slots of its own. Else its blocks go there, as many as [off, off + len)
	 * touches, and vec has one entry (-LE_TOO_BIG: so many do not fit), or zeros. */
	struct read_room *room;
	/* Room for pieces, at least chunk_read_pieces_max(len). */
	struct piece *pieces;
	uint32_t n_pieces_max;
	/* Results. The slots of vec carry a reference each for the caller. */
	uint64_t version;
	uint32_t end;
	int64_t mtime_ns;
	uint32_t n_pieces, n_vec;
	struct slot_vec vec[CHUNK_READ_VECS];
};
static inline uint32_t chunk_read_pieces_max(uint32_t len)
{
	return 2 * (len / LEAT_BLOCK_SIZE_MIN + 2);
}
/* -LE_CORRUPT with a log line, -LE_TOO_BIG, -LE_TIMEDOUT (no buffer in time), -LE_IO. A chunk that
 * does not exist: end 0. */
int chunk_read(struct chunk_store *s, struct chunk_read *r) CHECK_RESULT;

/* The record, with a reference for the caller; NULL when there is no such chunk. */
int chunk_store_record(struct chunk_store *s, const struct chunk_key *id,
		       struct chunk_record **ret_rec) CHECK_RESULT;
/* Of a chunk that cannot be read (-LE_CORRUPT): should it be there, but is not? LOST: its row says
 * so, or the ledger does by its name. NONE: its record is damaged, or it can be read. Yields. */
enum ledger_answer chunk_store_lost(struct chunk_store *s, const struct chunk_key *id);
/* What is committed; -LE_PENDING with quiet when there is newer. */
int chunk_store_committed(struct chunk_store *s, const struct chunk_key *id, bool quiet,
			  struct chunk_record **ret_rec) CHECK_RESULT;
/* Pieces of a whole chunk without data: how many. */
uint32_t chunk_record_pieces(const struct chunk_record *r, struct piece *pieces, uint32_t max);

/* The chunks of rows that were read, so that they can be compared with their names. */
struct chunk_names {
	uint64_t n, hash;
};
static inline void chunk_names_add(struct chunk_names *c, const struct chunk_key *k)
{
	c->n++;
	c->hash ^= chunk_key_hash(k);
}
/* Have rows of chunks between first and last vanished since the start? They are there again then,
 * or rows that say that they are lost, and whoever has read rows does so again (*ret_found). rows:
 * what was there; NULL: every name is looked at. Yields. */
int chunk_find_vanished(struct chunk_store *s, const struct chunk_key *first,
			const struct chunk_key *last, const struct chunk_names *rows,
			bool *ret_found) CHECK_RESULT;

struct chunk_stat {
	uint64_t size, used, n_chunks;
	uint64_t covered; /* what is stored of the prepared ranges, before compression */
	int64_t mtime_ns;
	struct chunk_key damaged; /* filled in with -LE_CORRUPT: its record cannot be read */
	/* With -LE_CORRUPT: any chunk of the file may be lost. Who was the source when one came
	 * back may know better: a read of it, or a scrub, brings it here. */
	bool doubt;
};
/* prepared: NULL: none. */
int chunk_stat(struct chunk_store *s, const struct chunk_key *file, uint32_t chunk_size,
	       const struct ranges *prepared, struct chunk_stat *ret_stat) CHECK_RESULT;
/* Chunks of the chain from *from on, at most max (not 0). One whose row has vanished is among them:
 * it has version 0, like one whose record is damaged. Yields. */
int chunk_list(struct chunk_store *s, const struct chunk_key *from, uint32_t max,
	       int (*each)(void *arg, const struct chunk_summary *c), void *arg,
	       bool *ret_more) CHECK_RESULT;

#endif
