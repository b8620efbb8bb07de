/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel caches of files: pages, sizes, attributes; and staged files, which it reads
 * itself (passthrough). This is all that files outside of kernel/ call for it.
 *
 * Functions named passthrough_ are in passthrough.c, kernel_size_ in kernel_size.c, the others in
 * kernel_pages.c. passthrough_begin comes before the client's open, passthrough_open fills in the
 * reply, kernel_pages_closed is the end.
 *
 * Owner: the mount's loop. Functions do not yield, unless the comment says otherwise.
 */
#ifndef LEAT_FUSE_KERNEL_KERNEL_PAGES_H
#define LEAT_FUSE_KERNEL_KERNEL_PAGES_H

#include "fuse/mount.h"

struct mount_request;
struct restart_file;
struct restart_state_pass;

/* ---- the mount ---- */

/* Call before INIT, start when the client was created, and before any open. stage_dir, passthrough:
 * the parameters. create returns 0, -LE_NOMEM, or another status that has been logged. start
 * returns 0 or a status. */
int kernel_pages_create(struct leatfs *fs, const char *stage_dir,
			const char *passthrough) CHECK_RESULT;
int kernel_pages_start(struct leatfs *fs) CHECK_RESULT;
/* Sends the notifications that are queued, and frees what create has made, if it was called. */
void kernel_pages_destroy(struct leatfs *fs);
/* If the program was started as a helper of kernel_size.c, is that helper, and exits. */
void kernel_pages_helper(int argc, char **argv);
/* Requests passthrough in the answer to INIT. */
void passthrough_negotiate(struct leatfs *fs, struct fuse_conn_info *conn);
/* Writes members for the JSON of leat.status, without braces. */
void passthrough_status(const struct leatfs *fs, char *buf, size_t size);

/* ---- for the client: arg is the struct leatfs ---- */

/* client_options.invalidate: drops attributes, and pages too if data is set. Yields. */
void kernel_pages_recalled(void *arg, struct ino ino, bool data);
/* client_options.owner_changed: the kernel checks the owner of an inode that is open without
 * sending a request. Yields. */
int kernel_owner_changed(void *arg, struct ino ino);

/* ---- attributes ---- */

/* begin: call when a request for attributes arrives from the thread; returns the time. notify: call
 * before the reply that gives the kernel *size. It waits (at most CHUNK_LEASE_MS) until no short
 * page would show zeros below *size; if the kernel might discard the reply, the helper makes the
 * kernel request the attributes first. For the helper's request it lowers *size instead of waiting.
 * begun_us: what begin returned; 0: the kernel never discards this reply. Returns true if it has
 * waited. notify yields. */
uint64_t kernel_size_begin(struct leatfs *fs, struct ino ino, pid_t who);
bool kernel_size_notify(struct leatfs *fs, struct ino ino, pid_t who, uint64_t begun_us,
		     uint64_t *size);
/* True if kernel_size_notify would have to wait for short pages. */
bool kernel_size_not_notified(const struct leatfs *fs, struct ino ino, uint64_t size);
/* Makes the kernel drop the attributes of an inode. The kernel takes no page lock for it, so the
 * call is safe before a reply. */
void kernel_size_forget_attr(struct leatfs *fs, struct ino ino);
/* The reply that is about to be sent raises i_size to `size` at least; 0: or sets it to 0. */
void kernel_size_grown(struct leatfs *fs, struct ino ino, uint64_t size);
/* The request has emptied the file, of which programs may have pages by another name. The kernel
 * drops them when it gets the reply; if the caller was killed, the kernel had its reply before.
 * Yields only while the queue of notifications is full. */
void kernel_pages_emptied(struct leatfs *fs, struct ino ino);

/* ---- opening and closing ---- */

/* Call before an open is sent to the metadata server. -LE_BUSY for a writer while the kernel reads
 * a staged copy of the file that is not sealed. *ret_file stays NULL for readers, and without
 * stage_dir. */
int passthrough_begin(struct leatfs *fs, uint64_t ino, uint32_t flags,
		      struct pass_file **ret_file) CHECK_RESULT;
/* Call when the file is open: decides how the kernel treats it, and fills that in fi. *file: from
 * passthrough_begin; if that is NULL, it is made here. Returns 0, -LE_BUSY as above, or -LE_NOMEM.
 * Yields. */
int passthrough_open(fuse_req_t req, const struct attr *attr, struct fuse_file_info *fi,
		     struct pass_file **file) CHECK_RESULT;
/* Call when the file could not be opened. NULL is fine. */
void passthrough_end(struct pass_file *f);
/* Call when an open file is closed. */
void kernel_pages_closed(const struct mount_file *mf);

/* Fills in what the next daemon needs of an open file; f may be NULL. */
void passthrough_note(const struct pass_file *f, struct restart_state_pass *ret_kept);
/* Notes an open file of the previous daemon. Until pages that the previous daemon filled are
 * dropped, replies give the file no bytes. Returns 0 or -LE_NOMEM; mf holds what
 * kernel_pages_closed ends. */
int kernel_pages_resume(struct leatfs *fs, struct mount_file *mf,
			const struct restart_file *f) CHECK_RESULT;
/* Drops all pages of previous daemons. Returns when the notifications have been sent. Yields. */
void kernel_pages_drop_previous(struct leatfs *fs);

/* ---- reading and writing ---- */

/* Call before a request of this mount changes the length. -LE_BUSY while the kernel reads a copy
 * that is not sealed; otherwise open files read from the servers from now on, and 0. */
int passthrough_may_change(struct leatfs *fs, uint64_t ino) CHECK_RESULT;
/* Answers a READ out of the staged copy. Returns false if no copy can be read: the request has then
 * not been answered. f may be NULL. Yields. */
bool passthrough_read(fuse_req_t req, struct pass_file *f, size_t size, off_t off);

/*
 * A READ or WRITE, from its arrival until the pages that it leaves in the kernel have been dropped:
 * page_io_begin → page_read, or the write at the client and page_written → the reply →
 * page_io_replied. Without a lease the kernel may show pages only while the request holds chunk
 * leases for them: a write by another client does not complete before these have been released.
 */
struct page_io;
/* reads: a READ. Returns NULL if there is no memory. */
struct page_io *page_io_begin(struct leatfs *fs, struct mount_file *mf,
			      const struct fuse_file_info *fi, off_t off, size_t size, bool reads);
/* Reads. What the reply lacks becomes zeros in a page, which no program can see. Returns 0 or a
 * status. Yields. */
int page_read(struct page_io *io, struct ll_file *file, struct ll_data *ret_data) CHECK_RESULT;
/* Call with the result of the write, n bytes or a status: drops whole pages that it covers. mr: the
 * request, whose bytes are released first; NULL: they were copied. Yields. */
void page_written(struct page_io *io, const struct ll_file *file, struct mount_request *mr,
		    int64_t n);
/* Call after the reply: has the pages dropped without waiting for it. Frees io. Yields. */
void page_io_replied(struct page_io *io);

/* Drops all pages of a file, and waits until the notification has been sent: the kernel then has
 * written back what mappings have changed. Must not be called while the request holds a page; the
 * kernel's lock of the inode is fine. Yields. */
void kernel_pages_drop(struct leatfs *fs, struct ino ino);

#endif
