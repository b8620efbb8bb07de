/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/kernel/kernel_pages.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "fuse/kernel/invalidate.h"
#include "fuse/kernel/kernel_size.h"
#include "fuse/kernel/kernel_size_helper.h"
#include "fuse/kernel/passthrough.h"
#include "fuse/kernel/request_loop.h"
#include "fuse/restart/restart_state.h"

/* ---- the mount ---- */

int kernel_pages_create(struct leatfs *fs, const char *stage_dir, const char *passthrough)
{
	hmap_init(&fs->pages.sizes, 64);
	list_init(&fs->pages.previous);
	turnq_init(&fs->pages.probe_turns);
	TRY(passthrough_create(fs, stage_dir, passthrough, &fs->pages.passthrough));
	return invalidator_start(fs);
}

int kernel_pages_start(struct leatfs *fs)
{
	return passthrough_start(fs->pages.passthrough);
}

void kernel_pages_destroy(struct leatfs *fs)
{
	invalidator_stop(fs);
	kernel_size_fini(fs);
	passthrough_destroy(fs->pages.passthrough);
}

void kernel_pages_helper(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], PROBE_SIZE) == 0)
		exit(kernel_size_helper(argv));
}

/* ---- for the client ---- */

void kernel_pages_recalled(void *arg, struct ino ino, bool data)
{
	struct leatfs *fs = CAST_OBJ(arg, struct leatfs, LEATFS_MAGIC);

	if (!mount_is_attached(fs))
		return;
	/* Dropping attributes takes no lock of the kernel that a request could hold. */
	if (!data) {
		kernel_size_forget_attr(fs, ino);
		return;
	}
	passthrough_changed(fs, ino.v);
	kernel_pages_drop(fs, ino);
}

static void log_owner_unknown(struct leatfs *fs, struct ino ino, int rc)
{
	if (fs->pages.probes_refused) {
		fs->pages.refusal_logged = true;
		log_warn("%s: when another mount changes the owner of a file that is open here, "
			 "the kernel checks permissions by the previous owner until it asks "
			 "again. Give the daemon CAP_DAC_READ_SEARCH (for open_by_handle_at) to "
			 "avoid this",
			 fs->mountpoint);
	} else if (!fs->pages.owner_unknown) {
		fs->pages.owner_unknown = true;
		log_info("inode %llu: the kernel checks permissions by its previous owner until it "
			 "asks again: %s; this is logged for one inode only",
			 (unsigned long long)ino.v, status_text(rc));
	}
}

int kernel_owner_changed(void *arg, struct ino ino)
{
	struct leatfs *fs = CAST_OBJ(arg, struct leatfs, LEATFS_MAGIC);
	int rc;

	if (fs->phase == MOUNT_HANDS_OVER)
		return -LE_NOT_READY; /* this daemon reads no further requests */
	if (fs->phase != MOUNT_SERVES || fs->pages.refusal_logged)
		return 0;
	rc = kernel_owner_refresh(fs, ino);
	if (rc < 0 && fs->phase == MOUNT_HANDS_OVER)
		/* this daemon has not read the kernel's request for the attributes */
		return -LE_NOT_READY;
	if (rc >= 0 || rc == -LE_NOT_READY)
		return rc;
	log_owner_unknown(fs, ino, rc);
	return 0;
}

/* ---- files ---- */

void kernel_pages_drop(struct leatfs *fs, struct ino ino)
{
	invalidate_inode_now(fs, ino, 0, 0);
}

void kernel_pages_emptied(struct leatfs *fs, struct ino ino)
{
	kernel_size_grown(fs, ino, 0);
	if (!interrupt_already_replied(&fs->interrupts))
		return;
	kernel_size_forget_attr(fs, ino);
	invalidate_inode(fs, ino, 0, 0, NULL);
}

void kernel_pages_closed(const struct mount_file *mf)
{
	passthrough_end(mf->pass);
	kernel_size_put(mf->known);
}

int kernel_pages_resume(struct leatfs *fs, struct mount_file *mf, const struct restart_file *f)
{
	TRY(kernel_size_previous(fs, (struct ino){f->ino}));
	return passthrough_resume(fs, f->ino, f->flags, &f->pass, &mf->pass);
}

void kernel_pages_drop_previous(struct leatfs *fs)
{
	kernel_size_drop_previous(fs);
	/* Notifications are sent in order: when this one has been sent, all of them have. */
	invalidate_inode_now(fs, fs->root, -1, 0);
}

/* ---- reading and writing ---- */

struct page_io {
	struct mail mail; /* the pages have been dropped */
	struct leatfs *fs;
	struct ino ino;
	off_t off;
	size_t size;
	/* It fills or writes pages of the kernel: of a file that was opened under a lease, or of a
	 * mapping. A request that bypasses pages has a lock owner. Without a lease other clients
	 * may change the file while the kernel has such pages. */
	bool by_pages;
	bool writepage; /* a write-back, which holds the pages that it writes */
	bool failed;
	bool is_short;            /* the reply was short */
	struct kernel_size *busy; /* NULL: the inode has no record */
	struct kernel_size_reader reader;
	struct ll_chunk_leases *leases; /* of a read */
};

static void leases_end(struct page_io *io)
{
	if (io->leases)
		ll_release_leases(io->leases);
	io->leases = NULL;
}

static void io_end(struct page_io *io)
{
	leases_end(io);
	if (io->is_short)
		kernel_size_gone(io->busy);
	kernel_size_idle(io->busy);
	free(io);
}

static void dropped(struct mail *m)
{
	io_end(container_of(m, struct page_io, mail));
}

struct page_io *page_io_begin(struct leatfs *fs, struct mount_file *mf,
			      const struct fuse_file_info *fi, off_t off, size_t size, bool reads)
{
	struct page_io *io = malloc(sizeof(*io));

	if (io == NULL)
		return NULL;
	*io = (struct page_io){.mail.fn = dropped,
			       .fs = fs,
			       .ino = ll_file_ino(mf->file),
			       .off = off,
			       .size = size,
			       .by_pages = fi->lock_owner == 0,
			       .writepage = fi->writepage};
	list_init(&io->reader.link);
	if (io->by_pages || io->writepage)
		ll_leaves_pages(mf->file);
	if (reads && io->by_pages && mf->known == NULL && !ll_leased(fs->client, io->ino))
		mf->known = kernel_size_get(fs, io->ino);
	if (!reads || io->by_pages)
		io->busy = kernel_size_busy(fs, io->ino);
	if (reads && io->busy)
		kernel_size_read(io->busy, &io->reader);
	return io;
}

/* Reads for pages. What the reply lacks becomes zeros in a page, and no program may read them
 * (kernel_size.c). This applies under a lease, too: i_size may be older than the lease, and the
 * lease may be recalled meanwhile. */
static int read_pages(struct page_io *io, struct ll_file *file, struct ll_data *data)
{
	uint64_t begun_us = 0, off = (uint64_t)io->off, end;
	struct client *c = io->fs->client;
	uint32_t size = (uint32_t)io->size;

	for (;;) {
		if (ll_leased(c, io->ino))
			TRY(ll_read(file, off, size, data));
		else
			TRY(ll_read_leased(file, off, size, data, &io->leases));
		end = off + data->len;
		if (data->len == io->size || kernel_size_within(io->busy, end))
			break;
		ll_data_release(data);
		leases_end(io);
		TRY(kernel_size_before_reply(io->busy, end, &begun_us));
	}
	io->is_short = data->len < io->size && !ll_leased(c, io->ino);
	if (io->is_short)
		kernel_size_visible(io->busy, end);
	return 0;
}

int page_read(struct page_io *io, struct ll_file *file, struct ll_data *ret_data)
{
	int rc = io->busy ? read_pages(io, file, ret_data)
			  : ll_read(file, (uint64_t)io->off, (uint32_t)io->size, ret_data);

	io->failed = rc < 0;
	return rc;
}

/* Drops the pages that a write without a lease leaves in the kernel, since other clients may change
 * the file after the reply. Only whole pages: the kernel may hold a page that was written in part
 * until it has the reply. If such a page is up to date, a read has filled it, and that read drops
 * it (page_io_replied). */
static void drop_written(struct page_io *io, struct mount_request *mr, int64_t n)
{
	const int64_t page = sysconf(_SC_PAGESIZE);
	const int64_t from = (io->off + page - 1) / page * page, to = (io->off + n) / page * page;

	if (from >= to)
		return;
	session_request_bytes_end(mr);
	invalidate_inode_behind(io->fs, io->ino, from, to - from);
}

void page_written(struct page_io *io, const struct ll_file *file, struct mount_request *mr,
		    int64_t n)
{
	io->failed = n < 0;
	if (io->failed)
		return;
	/* Drops pages that a read filled meanwhile: the kernel does not drop them at the end of an
	 * asynchronous direct write. A write-back may use the same file, and would wait for its own
	 * page. */
	if (n > 0 && !io->writepage && ll_past_pages(file)) {
		session_request_bytes_end(mr);
		invalidate_inode_behind(io->fs, io->ino, io->off, n);
	} else if (io->by_pages && !io->writepage && !ll_leased(io->fs->client, io->ino)) {
		drop_written(io, mr, n);
	}
	kernel_size_grown(io->fs, io->ino, (uint64_t)(io->off + n));
}

void page_io_replied(struct page_io *io)
{
	struct leatfs *fs = io->fs;

	if (!list_empty(&io->reader.link))
		kernel_size_answered(io->busy, &io->reader);
	if (io->failed || !io->by_pages ||
	    (ll_leased(fs->client, io->ino) && io->leases == NULL && !io->is_short)) {
		io_end(io);
		return;
	}
	if (io->busy == NULL)
		io->busy = kernel_size_busy(fs, io->ino);
	if (io->busy)
		kernel_size_wait(io->busy);
	invalidate_inode(fs, io->ino, io->off, (int64_t)io->size, &io->mail);
}
