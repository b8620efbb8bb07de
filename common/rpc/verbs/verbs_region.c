/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/verbs/verbs_region.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/log.h"

#define LOG_AGAIN_US 60000000u

bool verbs_may_log(struct verbs *v, enum verbs_trouble what)
{
	uint64_t now = loop_now_us(), last = atomic_load(&v->logged_us[what]);

	if (last != 0 && now < last + LOG_AGAIN_US)
		return false;
	/* Of several loops with the same trouble the first one logs it. */
	return atomic_compare_exchange_strong(&v->logged_us[what], &last, now);
}

static void say_no_memory(struct verbs_device *dev, uint64_t len, int err)
{
	struct rlimit lim = { 0 };

	if (!verbs_may_log(dev->v, TROUBLE_MEMORY))
		return;
	(void)getrlimit(RLIMIT_MEMLOCK, &lim);
	if (lim.rlim_cur != RLIM_INFINITY && (err == ENOMEM || err == EPERM || err == EAGAIN))
		log_error("verbs: %s cannot register %llu KiB more: only %llu KiB of memory may be "
			  "locked; set LimitMEMLOCK=infinity in the unit (or ulimit -l unlimited)",
			  dev->name, (unsigned long long)(len >> 10),
			  (unsigned long long)(lim.rlim_cur >> 10));
	else
		log_error("verbs: %s cannot register %llu KiB of memory: %s", dev->name,
			  (unsigned long long)(len >> 10), strerror(err));
}

static int take_region(struct verbs_device *dev, uint64_t len)
{
	if (dev->n_mrs >= dev->mrs_max) {
		if (verbs_may_log(dev->v, TROUBLE_REGIONS))
			log_error("verbs: %s has no more than %u memory regions, one for each slot "
				  "of a pool: make the pools smaller (slot_memory, slots)",
				  dev->name, dev->mrs_max);
		return -LE_NOMEM;
	}
	dev->n_mrs++;
	dev->mr_bytes += len;
	return 0;
}

static struct ibv_mr *no_region(struct verbs_device *dev, uint64_t len, int err)
{
	dev->n_mrs--;
	dev->mr_bytes -= len;
	say_no_memory(dev, len, err);
	return NULL;
}

struct ibv_mr *verbs_register(struct verbs_device *dev, void *base, uint64_t len, int access,
			      int *ret_status)
{
	int rc = take_region(dev, len);
	struct ibv_mr *mr = rc == 0 ? ibv_reg_mr(dev->pd, base, len, access) : NULL;

	if (rc == 0 && mr == NULL)
		mr = no_region(dev, len, errno);
	if (mr == NULL)
		*ret_status = -LE_NOMEM;
	return mr;
}

struct ibv_mr *verbs_register_apart(struct verbs_device *dev, void *base, uint64_t len, int access,
				    int *ret_status)
{
	struct ibv_mr *mr = NULL;
	int rc = take_region(dev, len), err = 0;

	if (rc == 0) {
		pthread_mutex_unlock(&dev->v->lock);
		mr = ibv_reg_mr(dev->pd, base, len, access);
		err = errno;
		pthread_mutex_lock(&dev->v->lock);
	}
	if (rc == 0 && mr == NULL)
		mr = no_region(dev, len, err);
	if (mr == NULL)
		*ret_status = -LE_NOMEM;
	return mr;
}

void verbs_deregister(struct verbs_device *dev, struct ibv_mr *mr)
{
	dev->n_mrs--;
	dev->mr_bytes -= mr->length;
	(void)ibv_dereg_mr(mr);
}
