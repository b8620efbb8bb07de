/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/gpu/device.h"

#include <string.h>

#include "client/loader/gpu/cuda.h"
#include "client/loader/gpu/gds.h"
#include "client/loader/source/dataset_facts.h"
#include "client/loader/source/last_error.h"
#include "common/rt/env.h"
#include "common/rt/loop.h"

int device_open(struct leat_loader *ld, const struct leat_loader_options *o)
{
	struct detail d = {.off = UINT64_MAX};

	if (o->pinned < LEAT_PINNED_AUTO || o->pinned > LEAT_PINNED_REQUIRE)
		return error_say(-LE_INVAL, "pinned is one of enum leat_pinned, not %d", o->pinned);
	if (o->direct < LEAT_DIRECT_NEVER || o->direct > LEAT_DIRECT_REQUIRE ||
	    (o->direct != LEAT_DIRECT_NEVER && !o->device))
		return error_say(-LE_INVAL,
				 "direct is one of enum leat_direct, and needs a device");
	int rc = cuda_open(o->device, o->pinned, &ld->device, &d);
	if (rc == 0)
		rc = gds_open(o->direct, &ld->gds, &d);
	if (rc == 0 && ld->gds)
		cuda_use_gds(ld->device, ld->gds);
	return rc < 0 ? error_set(rc, &d) : 0;
}

int device_add_slot(struct leat_batch *b)
{
	return b->ld->device ? cuda_slot_create(b->ld->device, &b->cuda) : 0;
}

struct settling {
	struct leat_batch *b;
	int rc;
};

/* Runs on a worker thread. */
static void settle(void *arg)
{
	struct settling *s = arg;
	s->rc = cuda_slot_settle(s->b->cuda, &s->b->d);
}

static void attach(void *arg)
{
	struct settling *s = arg;
	s->rc = cuda_slot_attach(s->b->cuda, s->b->base, s->b->mapped, &s->b->d);
}

int device_prepare(struct leat_batch *b)
{
	struct settling s = {b, 0};
	struct env *env = loop_env(loop_self());

	if (!b->cuda || !b->base)
		return 0;
	if (!cuda_slot_attached(b->cuda))
		TRY(env_offload(env, attach, &s));
	else if (cuda_slot_is_busy(b->cuda))
		TRY(env_offload(env, settle, &s));
	else
		settle(&s);
	return s.rc;
}

int device_send(struct leat_batch *b)
{
	if (!b->cuda)
		return 0;
	TRY(cuda_slot_send(b->cuda, b->need, &b->d));
	if (!cuda_slot_delivers(b->cuda))
		return 0;
	pthread_mutex_lock(&b->ld->lock);
	b->ld->m.bytes_device += b->need;
	pthread_mutex_unlock(&b->ld->lock);
	return 0;
}

/* ---- the public views ---- */

int leat_batch_device(const struct leat_batch *b, void *stream, struct leat_device_view *ret_view)
{
	struct leat_device_view v = {.size = ret_view->size};
	struct detail d = {.off = UINT64_MAX};

	TRY(dataset_check_pid(b->ds));
	if (!cuda_slot_delivers(b->cuda))
		return error_say(-LE_NODEV, "the loader was opened without a device");
	int rc = cuda_slot_use(b->cuda, stream, &v, &d);
	if (rc < 0)
		return error_set(rc, &d);
	memcpy(ret_view, &v, v.size < sizeof(v) ? v.size : sizeof(v));
	return 0;
}

int leat_batch_copy(const struct leat_batch *b, uint64_t dst, uint64_t space, void *stream)
{
	struct detail d = {.off = UINT64_MAX};

	TRY(dataset_check_pid(b->ds));
	if (b->direct)
		return error_say(-LE_NODATA, "the batch was read into device memory only");
	if (!b->cuda)
		return error_say(-LE_NODEV, "the loader was opened without a device and its memory "
					    "is not pinned");
	if (space < b->need)
		return error_say(-LE_RANGE, "the batch has %llu bytes and there is room for %llu",
				 (unsigned long long)b->need, (unsigned long long)space);
	int rc = cuda_slot_copy(b->cuda, dst, b->need, stream, &d);
	return rc < 0 ? error_set(rc, &d) : 0;
}
