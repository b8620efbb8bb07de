/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/lease/assumed_open.h"

#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/lease/holder.h"
#include "mds/mds.h"

#define ASSUMED_RETRY_MS   500u /* until clients that did not answer are called again */
#define ASSUMED_CONCURRENT 64u

/* Collects at most ASSUMED_CONCURRENT assumed opens of sessions that are not silent, with a
 * reference to each session. *ret_any: a session, silent or not, has an assumed open. */
static uint32_t find_assumed_open(struct mds *m, struct holder *as, bool *ret_any)
{
	uint32_t n = 0;

	*ret_any = false;
	list_for_each (k, &m->sessions.all) {
		struct session *se = list_entry(k, struct session, link);

		if (list_empty(&se->assumed))
			continue;
		*ret_any = true;
		if (se->peer == NULL || se->silent_us > se->last_contact_us)
			continue;
		list_for_each (l, &se->assumed) {
			const struct open *o = list_entry(l, struct open, by_assumed_open);

			if (n == ASSUMED_CONCURRENT)
				return n;
			session_ref(se);
			as[n++] = (struct holder){
				.m = m, .session = se, .ino = o->file->ino, .modes = LEASE_CACHING};
		}
	}
	return n;
}

static void query_assumed_open(void *arg)
{
	struct holder *a = arg;
	struct open *o;

	a->status = holder_recall(a);
	o = open_find(&a->m->opens, a->session, a->ino);
	if (a->status >= 0 && o != NULL && o->assumed) {
		open_assumed_end(&a->m->opens, o);
		a->status = a->m->hooks.inode_idle(a->m, a->ino);
	}
	if (a->status < 0) /* serve other sessions first, until this one is in contact again */
		a->session->silent_us = loop_now_us();
	session_unref(a->session);
}

void assumed_opens_query(struct mds *m)
{
	struct holder as[ASSUMED_CONCURRENT];

	while (!m->stopping) {
		bool any, failed = false;
		uint32_t n = find_assumed_open(m, as, &any);
		int rc = 0;

		if (n > 0)
			fiber_parallel("query-opens", query_assumed_open, as, sizeof(as[0]), n, n);
		for (uint32_t i = 0; i < n; i++)
			failed |= as[i].status < 0;
		if (any && (n == 0 || failed))
			rc = mds_sleep_ms(m, ASSUMED_RETRY_MS);
		else if (!any)
			rc = waitq_wait(&m->assumed_q, NO_DEADLINE);
		if (rc < 0)
			break;
	}
}
