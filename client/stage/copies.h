/* The copies below a directory: listing, finding one by what the user calls it, verifying,
 * evicting. In fibers; everything yields. */
#ifndef LEAT_STAGE_COPIES_H
#define LEAT_STAGE_COPIES_H

#include "client/include/leat/leat_stage.h"
#include "client/stage/io.h"
#include "client/stage/stage.h"

/* In the order of their ids. */
int copies_list(struct stage_io *io, const char *to,
		int (*each)(void *arg, const struct leat_stage_copy *c), void *arg) CHECK_RESULT;
/* what: see leat_stage.h. -LE_NOENT, -LE_EXIST (several), -LE_INVAL. */
int copies_find(struct stage_io *io, const char *to, const char *what,
		struct leat_stage_copy *ret_copy) CHECK_RESULT;
int copies_evict(struct stage_io *io, const char *to, const char *what) CHECK_RESULT;
/* A READY copy, kept from being evicted. ret_fd holds the lease until it is closed. -LE_AGAIN: not
 * ready. */
int copies_lease(struct stage_io *io, const char *to, const char *what,
		 struct leat_stage_copy *ret_copy, int *ret_fd) CHECK_RESULT;
/* Sets job->rc and r->code. */
void copies_verify(struct stage_job *job, const char *what);

#endif
