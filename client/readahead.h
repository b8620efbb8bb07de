/*
 * Prefetch of sequential reads: units of 1 MiB in slots, fetched ahead of the reader, dropped when
 * read, on writes and truncation, when the change counter moves, and after about a second. The
 * window grows while it pays. Small files are fetched whole when they are opened, as long as most
 * that are opened are read then. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_READAHEAD_H
#define LEAT_CLIENT_READAHEAD_H

#include "client/block_sums.h"
#include "client/ll.h"

struct client;
struct idata;

#define RA_UNIT    LL_IO_MAX
#define RA_LIFE_US 1000000u
/* What is small, and what it is worth that one was read, or was not. */
#define RA_SMALL      (256u << 10)
#define RA_TRUST_MAX  16u
#define RA_TRUST_LOSS 4u

enum unit_state {
	UNIT_FETCHING,
	UNIT_READY,
	UNIT_FAILED
};

struct unit {
	struct list link; /* of idata.units */
	struct list all;  /* of readahead.units, oldest first; of readahead.free */
	struct idata *d;
	uint64_t idx; /* file offset / RA_UNIT */
	struct slot *slot;
	uint32_t len;
	uint32_t used; /* bytes that were read */
	struct block_sums sums;
	uint64_t sum[RA_UNIT / LEAT_BLOCK_SIZE_MIN]; /* what sums has */
	enum unit_state state;
	bool dropped; /* in no list: the last user frees it */
	uint32_t users;
	uint64_t at_us;
	struct waitq q;
};

struct readahead {
	struct list units, free;
	uint32_t n_units, n_free;
	uint32_t trust; /* that small files which are opened are read; prefetched from half of it */
};

/* Per open file: is it read in sequence? */
struct ra_state {
	uint64_t next;     /* where the next sequential read would start */
	uint64_t ahead;    /* prefetch was started up to here */
	uint32_t n_in_seq; /* reads in sequence */
};

void ra_init(struct readahead *ra);
void ra_fini(struct readahead *ra);
/* A read of [off, off + len) comes: starts prefetching when it pays; size: of the file. Does not
 * yield. */
void ra_note(struct idata *d, struct ra_state *s, uint64_t off, uint32_t len, uint64_t size);
/* A file of that size was opened, and what has been cached of it is none or old. True: ra_closed
 * wants to hear whether it was read. Does not yield. */
bool ra_opened(struct idata *d, uint64_t size);
void ra_closed(struct client *c, bool was_read);
/* Serves the start of [off, off + len) from prefetched data: appends to data, and notes sums (or
 * NULL); returns how many bytes; 0: not there; -LE_INTR. Yields. */
int ra_take(struct idata *d, uint64_t off, uint32_t len, struct ll_data *data,
	    struct block_sums *sums) CHECK_RESULT;
/* How many bytes from off on (at most len) are not prefetched. */
uint32_t ra_gap(struct idata *d, uint64_t off, uint32_t len);
void ra_drop_all(struct idata *d);
void ra_drop_range(struct idata *d, uint64_t off, uint64_t len);
/* Drops what is too old. */
void ra_expire(struct client *c);

#endif
