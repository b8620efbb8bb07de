/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/delegated_open.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>

#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/open_file.h"
#include "client/data/write_error.h"
#include "client/ops/close.h"
#include "client/servers/mds_call.h"
#include "client/servers/open_count.h"
#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/base/status.h"
#include "common/proto/cred.h"
#include "common/proto/mds_proto.h"
#include "common/rpc/mds_clock.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"

/* A capability is used only while it is valid for at least this long. */
#define CAP_LEFT_S 60

static bool may_read(const struct cred *cred, const struct attr *a)
{
	if (cred->uid == 0 || (cred->flags & CRED_CHECKED) != 0)
		return true;
	return (a->flags & ATTR_PLAIN) != 0 && cred_mode_allows(cred, a, PERM_R);
}

static bool may_fetch(const struct client *c, const struct inode *i)
{
	return i->attr.size == 0 ||
	       (i->cap_gen == c->session_gen && i->cap.gen == i->attr.layout.gen &&
		i->cap.expiry_s > mds_clock_now_ns(&c->clock, c->env) / 1000000000 + CAP_LEFT_S);
}

bool delegation_allows(struct client *c, const struct cred *cred, const struct inode *i,
		       uint32_t flags)
{
	const struct attr *a = &i->attr;

	return (flags & (O_ACCMODE | O_TRUNC)) == O_RDONLY && S_ISREG(a->mode) && a->nlink > 0 &&
	       c->leases.n_blind == 0 &&
	       (a->flags & ATTR_UNSETTLED) == 0 && inode_attr_fresh(c, i) &&
	       (i->data == NULL || i->data->n_write + i->data->n_closing == 0) &&
	       may_read(cred, a) && may_fetch(c, i);
}

int delegation_open(struct client *c, const struct cred *cred, struct inode *i, uint32_t flags,
		    struct ll_file **ret_file)
{
	struct inode_io *d;

	TRY(inode_data(c, i, &d));
	*ret_file = file_make(c, i, d, cred, flags);
	if (*ret_file == NULL)
		return -LE_NOMEM;
	(*ret_file)->delegated = true;
	c->leases.n_unreported_opens += d->n_delegated++ == 0;
	cap_set(d, &i->cap);
	c->stats.delegated_opens++;
	return 0;
}

/* Called when the MDS counts one open for all delegated ones. */
static void now_reported(struct inode_io *d)
{
	ASSERT(d->n_delegated > 0 && !d->delegated_reported);
	ASSERT(d->c->leases.n_unreported_opens > 0);
	d->delegated_reported = true;
	d->n_read++;
	d->c->leases.n_unreported_opens--;
}

void delegation_counted(struct inode_io *d)
{
	if (d->n_delegated == 0 || d->delegated_reported)
		return;
	now_reported(d);
}

bool delegation_close(struct ll_file *f)
{
	struct client *c = f->c;
	struct inode_io *d = f->d;
	struct inode *i = f->inode;

	ASSERT(f->delegated && d->n_delegated > 0);
	ASSERT(d->delegated_reported || c->leases.n_unreported_opens > 0);
	d->n_delegated--;
	if (d->n_delegated == 0 && d->delegated_reported) {
		/* The open that represented all delegated ones is closed like a usual one. */
		d->delegated_reported = false;
		f->delegated = false;
		return false;
	}
	c->leases.n_unreported_opens -= d->n_delegated == 0;
	if (f->new_atime)
		return false;
	file_free(f);
	inode_put(c, i);
	return true;
}

/* Opens the file at the MDS for all delegated opens. Returns 0 or an error. Yields. */
static int tell(struct client *c, struct inode_io *d)
{
	struct mds_open_req req = {
		.cred = cap_renew_cred(d), .ino = d->inode->ino, .flags = O_RDONLY | OPEN_ORPHAN};
	struct mds_open_rep rep;
	struct rpc_call call;
	uint64_t deadline = fiber_deadline();
	uint32_t gen;
	int rc;

	/* No deadline, however long the recalling client waits: if this request were abandoned, the
	 * MDS might count it nevertheless. */
	fiber_set_deadline(NO_DEADLINE);
	/* In a new session the report is repeated. A session that is opened, or resumed at a
	 * restarted server, reports it together with all other open files, before any client can
	 * remove them; then it is not repeated here. */
	do {
		gen = c->session_gen;
		rc = mds_call_priority(c, OP_mds_open, &req, &rep, &call, &d->delegated_reported);
		rpc_call_fini(&call);
	} while (rc < 0 && !d->delegated_reported && gen != c->session_gen && !c->stopping);
	fiber_set_deadline(deadline);
	if (d->delegated_reported)
		return 0;
	if (rc >= 0) {
		session_opened(d, O_RDONLY, call.session);
		now_reported(d);
	}
	return rc;
}

int delegation_report(struct client *c, struct inode *i)
{
	struct inode_io *d = i->data;
	struct ll_file *f;
	int rc = 0;

	if (d == NULL || d->n_delegated == 0 || d->delegated_reported ||
	    PLANTED_BUG(CLIENT_KEEP_OPENS))
		return 0;
	inode_ref(i);
	fmutex_lock(&c->leases.reporting);
	if (d->n_delegated > 0 && !d->delegated_reported) {
		/* A separate open, because the others may be closed meanwhile. */
		struct cred cred = cap_renew_cred(d);

		rc = delegation_open(c, &cred, i, O_RDONLY, &f);
		if (rc >= 0) {
			inode_ref(i);
			rc = tell(c, d);
			(void)write_error_reported(f);
			d->n_files--;
			if (!delegation_close(f))
				file_close_start(f);
		}
	}
	fmutex_unlock(&c->leases.reporting);
	if (rc < 0)
		log_warn("client %s: cannot report to the metadata server that ino %llu is open: "
			 "%s",
			 c->name, (unsigned long long)i->ino.v, status_name(rc));
	inode_put(c, i);
	return rc;
}
