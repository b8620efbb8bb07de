/*
 * What the data path shares: capabilities, requests to object servers on behalf of an inode,
 * fetching verified bytes, the true size of a file that has writers; and the open file itself.
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_IO_H
#define LEAT_CLIENT_IO_H

#include "client/client.h"
#include "client/route.h"

#define LL_FILE_MAGIC 0x4c4c464cu /* LLFL */

struct ll_file {
	uint32_t magic;
	struct client *c;
	struct inode *inode;
	struct idata *d;
	uint32_t flags;   /* of open(2) */
	uint32_t counted; /* the same, as the MDS counts it: without O_APPEND once it has written
			   * elsewhere (io_write.c) */
	bool can_read, can_write, sync, append, direct;
	bool wrote;      /* through this file, since it was opened */
	bool was_read;   /* the same */
	bool expected;   /* to be read: ra_closed wants to know */
	bool new_atime;  /* its close makes one */
	bool delegated;  /* one of idata.n_delegated */
	bool kills_suid; /* its changes of data take set-id bits away; else the caller sees to it */
	uint32_t err_seen; /* idata.err_gen up to which errors were reported */
	struct ra_state ra;
	struct mds_close_req *close_req; /* while it is sent */
	struct list link;                /* of idata.closes then; of client.free_files */
};

enum io_right {
	IO_READ = 0,
	IO_WRITE = 1
};

/* Where a request keeps what depends on the capability: filled in anew for each attempt. */
struct io_auth {
	enum io_right right;
	struct cap *cap;
	uint32_t *gen;
	uint32_t session_gen; /* 0: any; else -LE_SESSION_GONE when it has changed */
};

/* NULL without memory. */
struct ll_file *file_make(struct client *c, struct inode *i, struct idata *d,
			  const struct cred *cred, uint32_t flags);
void file_free(struct ll_file *f);

/* Who asks for a capability again on behalf of an open file. */
struct cred io_renew_cred(const struct idata *d);
void io_take_cap(struct idata *d, const struct cap *cap);
/* Tells the MDS of a close, to the end: as long as the session, or the next one, in which it is
 * open again, and the client last. Yields. */
int io_close(struct idata *d, struct mds_close_req *req) CHECK_RESULT;
/* What is open is opened once more, with flags of open(2), and behind that closed once, with those
 * of end_flags, whether or not whoever asks is interrupted. Yields. */
int io_reopen(struct idata *d, uint32_t flags, uint32_t end_flags) CHECK_RESULT;
/* A capability that holds, as far as is known here; asked for where there is none. Yields. */
int io_get_cap(struct idata *d, enum io_right right, struct cap *ret_cap) CHECK_RESULT;
/* Refused: not to be used again, unless it has been replaced already. */
void io_void_cap(struct idata *d, const struct cap *cap, enum io_right right);
/* oss_call for chunk idx of the inode, with capabilities renewed where they are refused; route as
 * there. Yields. */
int io_call(struct idata *d, uint64_t idx, struct rpc_call *call, struct io_auth *auth,
	    struct route *route) CHECK_RESULT;

/* The number by which this client spreads its reads of a chunk over the members. */
uint64_t io_spread(const struct client *c, struct ino ino, uint64_t idx);
/* Fills the part of a slot with what the file has from off on, all chunks at once; verified, holes
 * and what lies behind the chunks' ends as zeros. leases: taken of these chunks, or NULL. sums:
 * noted of the blocks, or NULL. Yields. */
struct ll_chunk_leases;
int io_fetch(struct idata *d, uint64_t off, const struct slot_vec *to,
	     struct ll_chunk_leases *leases, struct block_sums *sums) CHECK_RESULT;
/* As ll_pread, and notes what is known of the blocks' checksums (NULL: not wanted). Yields. */
int64_t io_pread(struct ll_file *f, void *buf, uint64_t len, uint64_t off,
		 struct block_sums *sums) CHECK_RESULT;

/* The file's size as of now, or that it has at least `enough`: asked for, unless there is a lease
 * or it is sealed. Yields. */
int io_read_size(struct ll_file *f, uint64_t enough, uint64_t *ret_size) CHECK_RESULT;
/* Does what is received land there? Else only in slots. */
bool io_lands(const struct client *c, const void *base, uint64_t len);

/* Asks the chains for size, time and space of an inode with writers, unless this client is the only
 * one; attr: as the MDS just gave it. Yields. */
int io_settle(struct client *c, struct inode *i, const struct attr *attr) CHECK_RESULT;
/* The bytes in store for the inode, of all chains: size, used, what is covered of the prepared
 * ranges (common/proto/ranges.h), mtime. Yields. */
struct io_stored {
	uint64_t size, used, covered;
	int64_t mtime_ns;
};
int io_stat(struct idata *d, struct bytes prepared, struct io_stored *ret_stored) CHECK_RESULT;

/* What the servers have accepted of the inode is durable. readers: and what others had leased of
 * its chunks they do not show any more. *ret_lost, unless that is NULL: a server has crashed that
 * had accepted something of this session, which may not have been repeated. Yields. */
int io_sync(struct idata *d, bool readers, bool *ret_lost) CHECK_RESULT;

/* Own writes whose time no server has told yet: what is shown of it would change once more. */
static inline bool io_times_open(const struct inode *i)
{
	return i->data != NULL && i->data->mtime_guess_ns != 0;
}
/* Until they have one. -LE_INTR. Yields. */
int io_wait_times(struct inode *i) CHECK_RESULT;

/* Asks the MDS for what it knows of the attributes. Yields. */
int io_ask_attr(struct client *c, const struct cred *cred, struct inode *i) CHECK_RESULT;
/* Has the inode, which is open, been made shorter since its attributes had that count of `cuts`?
 * Asked for, unless there is a lease, also a shared one. Yields. */
enum io_cut {
	CUT_NOT,
	CUT_PERHAPS, /* it was cut, or a hole was made */
	CUT_NOW,     /* it is being made shorter: what the chains have means nothing */
};
int io_cut_since(struct client *c, struct inode *i, uint32_t cuts,
		 enum io_cut *ret_cut) CHECK_RESULT;
/* While it is CUT_NOW, for longer each time; p: zeros at first. -LE_IO: too long for one operation.
 * Yields. */
struct io_patience {
	uint64_t wait_us, until_us;
};
int io_wait_uncut(const struct client *c, struct io_patience *p) CHECK_RESULT;
/* CUT_NOT, as far as is known without asking. */
bool io_known_uncut(struct client *c, struct inode *i, uint32_t cuts);
/* Mode, owner, flags and project hold; asked for, unless there is a lease, also a shared one.
 * Yields. */
int io_know_rights(struct client *c, const struct cred *cred, struct inode *i) CHECK_RESULT;
/* The attributes, settled; asked for, unless there is a lease. ATTR_LEASED: there is. Yields. */
int io_attr(struct client *c, const struct cred *cred, struct inode *i,
	    struct attr *ret_attr) CHECK_RESULT;
/* The same of what is known, just after the chains were asked if need be. */
void io_settled_attr(const struct client *c, const struct inode *i, struct attr *ret_attr);
/* Waits for closings of the inode that were sent behind. Yields. */
int io_wait_closing(struct inode *i) CHECK_RESULT;

/* Frees what ll_pread_many keeps. */
void read_many_fini(struct client *c);
/* file.c: one that another process had open, for ll_resume_file. Takes a reference of the caller's
 * over on success. */
int file_resume(struct client *c, struct inode *i, const struct cred *cred, uint32_t flags,
		struct ll_file **ret_file) CHECK_RESULT;

/* io_write.c: has it, under a write lease, written what no server has seen, or is it at it? */
bool io_hides(const struct idata *d);
/* Until nothing is of what was written so far. -LE_INTR. Yields. */
int io_show(struct idata *d) CHECK_RESULT;
/* cb_cut: returns when no append writes at a place that it was given before. One whose answer is
 * still on its way does not either. Waits for no request to the MDS. Yields. */
int io_cut(struct client *c, const struct cb_cut_req *req) CHECK_RESULT;

/* The error of writes behind that this file has not reported yet. */
int io_take_error(struct ll_file *f) CHECK_RESULT;
/* The same without the error: is there one? It has been reported, or never will be. */
bool io_error_heard(struct ll_file *f);

#endif
