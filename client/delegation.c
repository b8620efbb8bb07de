#include "client/delegation.h"

#include "client/retry.h"
#include "client/session.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/proto/cred.h"

/* A capability is used only while it is good for so long at least. */
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
		i->cap.expiry_s > env_wall_ns(c->env) / 1000000000 + CAP_LEFT_S);
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
	struct idata *d;

	TRY(inode_data(c, i, &d));
	*ret_file = file_make(c, i, d, cred, flags);
	if (*ret_file == NULL)
		return -LE_NOMEM;
	(*ret_file)->delegated = true;
	c->leases.n_untold += d->n_delegated++ == 0;
	io_take_cap(d, &i->cap);
	c->stats.delegated_opens++;
	return 0;
}

/* By one open that the MDS counts. */
static void now_told(struct idata *d)
{
	d->delegated_told = true;
	d->n_read++;
	d->c->leases.n_untold--;
}

void delegation_counted(struct idata *d)
{
	if (d->n_delegated == 0 || d->delegated_told)
		return;
	now_told(d);
}

bool delegation_close(struct ll_file *f)
{
	struct client *c = f->c;
	struct idata *d = f->d;
	struct inode *i = f->inode;

	d->n_delegated--;
	if (d->n_delegated == 0 && d->delegated_told) {
		/* The one that stood for all. */
		d->delegated_told = false;
		f->delegated = false;
		return false;
	}
	c->leases.n_untold -= d->n_delegated == 0;
	if (f->new_atime)
		return false;
	file_free(f);
	inode_put(c, i);
	return true;
}

static int tell(struct client *c, struct idata *d)
{
	struct mds_open_req req = {
		.cred = io_renew_cred(d), .ino = d->inode->ino, .flags = O_RDONLY | OPEN_ORPHAN};
	struct mds_open_rep rep;
	struct rpc_call call;
	uint64_t deadline = fiber_deadline();
	uint32_t gen;
	int rc;

	/* However long whoever asks is willing to wait: given up, it might count all the same. */
	fiber_set_deadline(NO_DEADLINE);
	/* In another session the same is to be told again. A session that begins, or goes on at a
	 * server that has restarted, counts it with everything else that is open, before anybody
	 * can remove it; then this one is not repeated. */
	do {
		gen = c->session_gen;
		rc = mds_call_first(c, OP_mds_open, &req, &rep, &call, &d->delegated_told);
		rpc_call_fini(&call);
	} while (rc < 0 && !d->delegated_told && gen != c->session_gen && !c->stopping);
	fiber_set_deadline(deadline);
	if (d->delegated_told)
		return 0;
	if (rc >= 0) {
		session_opened(d, O_RDONLY, call.session);
		now_told(d);
	}
	return rc;
}

int delegation_tell(struct client *c, struct inode *i)
{
	struct idata *d = i->data;
	struct ll_file *f;
	int rc = 0;

	if (d == NULL || d->n_delegated == 0 || d->delegated_told || FAULT(CLIENT_KEEP_OPENS))
		return 0;
	inode_ref(i);
	fmutex_lock(&c->leases.telling);
	if (d->n_delegated > 0 && !d->delegated_told) {
		/* An open of our own: the last of the others may be closed meanwhile. */
		struct cred cred = io_renew_cred(d);

		rc = delegation_open(c, &cred, i, O_RDONLY, &f);
		if (rc >= 0) {
			inode_ref(i);
			rc = tell(c, d);
			ll_release(f);
		}
	}
	fmutex_unlock(&c->leases.telling);
	if (rc < 0)
		log_warn("client %s: ino %llu is open, which the metadata server could not be "
			 "told: %s",
			 c->name, (unsigned long long)i->ino.v, status_name(rc));
	inode_put(c, i);
	return rc;
}
