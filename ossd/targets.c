/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each target has a fiber "main": start → serve until a stop or a failure → stop. The fiber of the
 * first loop also receives signals and watches the other targets: it writes the ready file when
 * all are ready, and returns when all have ended.
 */
#include "ossd/targets.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/metrics_http.h"
#include "common/base/notify.h"
#include "common/rpc/transport/transport_mux.h"
#include "common/rt/alive.h"
#include "common/rt/cpus.h"
#include "common/rt/env.h"
#include "common/rt/net.h"
#include "ossd/server.h"

#define POLL_MS 100u
#define METRICS_PORTS 16u /* ports tried from the default address on: that many object servers on
                           * a machine */
/* A store made in the folder of a disk that is not mounted would be a second store for that
 * disk. */
#define NO_STORE                                                                                   \
	"no store here: is its disk mounted? (leat-ossd format makes the store of a new disk)"

enum phase { PHASE_STARTING, PHASE_SERVING, PHASE_READY, PHASE_ENDED };

/* Owned by its loop. The first loop reads phase, and rc once that is PHASE_ENDED. */
struct target_run {
	struct targets *set;
	uint32_t index;
	struct ossd_params params;
	struct loop *loop;
	struct transport *transport;
	struct ossd *ossd; /* written under set->lock, which the metrics page takes */
	char addrs[CONFIG_STR_MAX]; /* valid from PHASE_SERVING on */
	_Atomic int phase;
	_Atomic uint64_t turned_us; /* when its loop last ran */
	int rc;
};

#define TARGETS_MAGIC 0x54475453u
struct targets {
	uint32_t magic;
	const struct targets_options *o;
	struct target_run *runs;
	uint32_t n;
	const char *ready_file;
	struct metrics_server *page;
	pthread_mutex_t lock;
	atomic_bool stopping;
	struct alive alive; /* used by the first loop */
};

/* ---- parameters ---- */

/* Returns the i-th word of a list, "" if there are fewer. */
static const char *word(const char *list, uint32_t i, int *ret_len)
{
	for (;;) {
		list += strspn(list, " ");
		*ret_len = (int)strcspn(list, " ");
		if (*ret_len == 0 || i-- == 0)
			return list;
		list += *ret_len;
	}
}

/* Adds i to the port of each "host:port" of the list. */
static int shift_ports(const char *list, uint32_t i, char *out, size_t size)
{
	size_t used = 0;
	int len;

	out[0] = 0;
	for (uint32_t k = 0;; k++) {
		const char *w = word(list, k, &len), *colon;
		unsigned long port;

		if (len == 0)
			return 0;
		colon = memrchr(w, ':', (size_t)len);
		port = colon != NULL ? strtoul(colon + 1, NULL, 10) : 0;
		if (colon == NULL || port + i > 65535) {
			log_error("%.*s: no port for target %u of this process", len, w, i + 1);
			return -LE_CONFIG;
		}
		used += (size_t)snprintf(out + used, size - used, "%s%.*s:%lu", used ? " " : "",
					 (int)(colon - w), w, port != 0 ? port + i : 0);
		if (used >= size)
			return -LE_CONFIG;
	}
}

int targets_params(const struct ossd_params *p, uint32_t i, struct ossd_params *ret_params)
{
	int len;
	const char *w = word(p->data_dir, i, &len);

	if (len == 0 || i >= TARGETS_MAX)
		return -LE_NOENT;
	*ret_params = *p;
	snprintf(ret_params->data_dir, sizeof(ret_params->data_dir), "%.*s", len, w);
	w = word(p->data_device, i, &len);
	snprintf(ret_params->data_device, sizeof(ret_params->data_device), "%.*s", len, w);
	TRY(shift_ports(p->listen, i, ret_params->listen, sizeof(ret_params->listen)));
	return shift_ports(p->advertise, i, ret_params->advertise, sizeof(ret_params->advertise));
}

/* ---- the metrics page: on its own thread ---- */

static int render(void *arg, char **ret_text, size_t *ret_len)
{
	struct targets *t = arg;
	struct metric_set sets[TARGETS_MAX];
	char labels[TARGETS_MAX][32];
	uint32_t n = 0;
	int rc;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->n; i++) {
		if (t->runs[i].ossd == NULL)
			continue;
		labels[n][0] = 0;
		if (t->n > 1)
			snprintf(labels[n], sizeof(labels[n]), "disk=\"%u\"", i);
		sets[n] = (struct metric_set){ossd_metrics(t->runs[i].ossd), labels[n]};
		n++;
	}
	rc = metrics_print_sets(ossd_metric_table, n_ossd_metrics, sets, n, ret_text, ret_len);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

/* With the default configuration each object server of a machine uses the next free port. */
static int start_default_page(struct targets *t, char *addr, size_t size)
{
	int rc = -LE_INVAL;

	for (uint32_t i = 0; rc < 0 && i < METRICS_PORTS; i++) {
		TRY(shift_ports(OSSD_METRICS_DEFAULT, i, addr, size));
		rc = metrics_server_start(addr, render, t, &t->page);
	}
	if (rc == 0 && strcmp(addr, OSSD_METRICS_DEFAULT) != 0)
		log_info("the /metrics page is at %s: another process has %s", addr,
			 OSSD_METRICS_DEFAULT);
	return rc;
}

/* Call before the targets run: each reports the page's address (ops/status.c); "": no page. */
static void start_page(struct targets *t)
{
	char addr[CONFIG_STR_MAX];
	int rc = 0;

	snprintf(addr, sizeof(addr), "%s", t->o->params->metrics);
	if (strcmp(addr, OSSD_METRICS_DEFAULT) == 0)
		rc = start_default_page(t, addr, sizeof(addr));
	else if (addr[0] != '\0')
		rc = metrics_server_start(addr, render, t, &t->page);
	if (rc < 0) {
		log_warn("no /metrics page at %s: %s", addr, status_text(rc));
		addr[0] = '\0';
	}
	for (uint32_t i = 0; i < t->n; i++)
		memcpy(t->runs[i].params.metrics, addr, sizeof(addr));
}

/* ---- one target ---- */

static void set_ossd(struct target_run *r, struct ossd *ossd)
{
	pthread_mutex_lock(&r->set->lock);
	r->ossd = ossd;
	pthread_mutex_unlock(&r->set->lock);
}

static int start(struct target_run *r)
{
	const struct targets_options *to = r->set->o;
	struct ossd_options o = {.transport = r->transport,
				 .params = r->params,
				 .mds_addrs = to->mds_addrs,
				 .key = to->key,
				 .reports_unreachable = r->index == 0}; /* one log line per process
				                                * suffices */
	struct ossd *ossd;
	int rc = ossd_start(&o, &ossd);

	if (rc < 0) {
		log_error("%s: %s", r->params.data_dir,
			  rc == -LE_NOENT ? NO_STORE
					  : status_text(rc));
		return rc;
	}
	set_ossd(r, ossd);
	snprintf(r->addrs, sizeof(r->addrs), "%s", ossd_addrs(ossd));
	log_info("%s: listening at %s", r->params.data_dir, r->addrs);
	/* Applies to this thread only: the store's threads exist already, and do other work. */
	rc = cpus_use(r->params.cores, transport_numa_node(r->transport));
	atomic_store(&r->turned_us, loop_now_us());
	if (rc == 0)
		atomic_store(&r->phase, PHASE_SERVING);
	return rc;
}

static void end(struct target_run *r, int rc)
{
	struct ossd *ossd = r->ossd;

	if (ossd != NULL) {
		set_ossd(r, NULL);
		ossd_stop(ossd);
	}
	r->rc = rc;
	atomic_store(&r->phase, PHASE_ENDED);
}

/* Called periodically while it serves. Returns 0, or the failure for which it must stop. */
static int look_after(struct target_run *r)
{
	atomic_store(&r->turned_us, loop_now_us());
	if (atomic_load(&r->phase) == PHASE_SERVING && ossd_ready(r->ossd))
		atomic_store(&r->phase, PHASE_READY);
	return ossd_failed(r->ossd);
}

static void other_main(void *arg)
{
	struct target_run *r = arg;
	int rc = start(r);

	while (rc == 0 && !atomic_load(&r->set->stopping)) {
		rc = look_after(r);
		if (rc == 0)
			rc = fiber_sleep_us(POLL_MS * 1000);
	}
	/* A failure since the last check must be in the exit status too. */
	end(r, rc == 0 ? ossd_failed(r->ossd) : rc);
	loop_stop(r->loop);
}

/* ---- the first target, which watches the others ---- */

static uint32_t count_at(const struct targets *t, enum phase phase)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->n; i++)
		n += atomic_load(&t->runs[i].phase) == (int)phase;
	return n;
}

static bool all_at(const struct targets *t, enum phase phase)
{
	return count_at(t, phase) == t->n;
}

/* For the service manager's watchdog. Loops that start or end are not checked, as they may be busy
 * for long. */
static bool all_turn(void *arg)
{
	const struct targets *t = CAST_OBJ(arg, const struct targets, TARGETS_MAGIC);
	uint64_t now = loop_now_us(), patience = notify_watchdog_us() / 2;

	for (uint32_t i = 1; patience > 0 && i < t->n; i++) {
		const struct target_run *r = &t->runs[i];
		int phase = atomic_load(&r->phase);

		if ((phase == PHASE_SERVING || phase == PHASE_READY) &&
		    now > atomic_load(&r->turned_us) + patience)
			return false;
	}
	return true;
}

/* Sends the status to the service manager, and READY when the metadata server has accepted every
 * target that has not ended. */
static void notify_manager(struct targets *t)
{
	struct target_run *first = &t->runs[0];
	uint32_t n_ready = count_at(t, PHASE_READY);
	bool all = n_ready > 0 && n_ready + count_at(t, PHASE_ENDED) == t->n;
	int away = first->ossd != NULL ? ossd_away(first->ossd) : 0;

	if (!notify_wanted())
		return;
	if (all && away < 0)
		notify_status("%u of %u targets serve; the metadata server at %s cannot be "
			      "reached: %s",
			      n_ready, t->n, t->o->mds_addrs, status_text(away));
	else if (all)
		notify_status("%u of %u targets serve", n_ready, t->n);
	else if (away < 0)
		notify_status("waits for the metadata server at %s: %s", t->o->mds_addrs,
			      status_text(away));
	else
		notify_status("%u of %u targets serve, the others are starting", n_ready, t->n);
	if (all)
		notify_ready();
}

static void announce(struct targets *t)
{
	char text[CONFIG_STR_MAX * 4] = "";
	size_t len = 0;
	int rc;

	if (t->ready_file == NULL || !all_at(t, PHASE_READY))
		return;
	for (uint32_t i = 0; i < t->n && len < sizeof(text); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s\n",
					t->runs[i].addrs);
	rc = env_write_file(t->o->env, t->ready_file, text, strlen(text), 0644);
	if (rc < 0)
		log_error("%s: %s", t->ready_file, status_text(rc));
	t->ready_file = NULL;
}

/* Returns true if a signal requests a stop, or signals cannot be received. */
static bool received_signal(const struct targets *t)
{
	struct signalfd_siginfo info;
	int rc = net_poll(t->o->signal_fd, POLLIN, loop_deadline_ms(POLL_MS));

	if (rc > 0 && read(t->o->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		log_info("signal %u: stopping", info.ssi_signo);
		return true;
	}
	return rc < 0 && rc != -LE_TIMEDOUT && rc != -LE_INTR;
}

static void first_main(void *arg)
{
	struct target_run *r = arg;
	struct targets *t = r->set;
	int rc;

	notify_status("opens its store %s", r->params.data_dir);
	alive_start(&t->alive, all_turn, t);
	rc = start(r);
	if (rc < 0)
		end(r, rc);
	while (!all_at(t, PHASE_ENDED) && !received_signal(t)) {
		if (atomic_load(&r->phase) != PHASE_ENDED) {
			rc = look_after(r);
			if (rc < 0)
				end(r, rc);
		}
		announce(t);
		notify_manager(t);
	}
	notify_status("ends what is under way");
	notify_stopping();
	atomic_store(&t->stopping, true);
	if (t->page != NULL)
		metrics_server_stop(t->page);
	if (atomic_load(&r->phase) != PHASE_ENDED)
		end(r, ossd_failed(r->ossd));
	alive_stop(&t->alive);
	loop_stop(r->loop);
}

/* ---- together ---- */

static int make_run(struct targets *t, uint32_t i)
{
	struct target_run *r = &t->runs[i];
	struct loop_options lo = {.spin_us = t->o->params->spin_us};
	char name[16] = "ossd";

	if (i > 0)
		snprintf(name, sizeof(name), "ossd-%u", i);
	lo.name = name;
	r->set = t;
	r->index = i;
	TRY(targets_params(t->o->params, i, &r->params));
	TRY(transport_mux_create(t->o->transport, &r->transport));
	return loop_create(t->o->env, &lo, &r->loop);
}

/* Runs the first loop last, on this thread, until all have ended. */
static int run_all(struct targets *t)
{
	uint32_t started = 1;
	int rc = fiber_spawn_on(t->runs[0].loop, "main", first_main, &t->runs[0]);

	for (; rc == 0 && started < t->n; started++) {
		rc = fiber_spawn_on(t->runs[started].loop, "main", other_main, &t->runs[started]);
		if (rc == 0)
			rc = loop_start_thread(t->runs[started].loop);
	}
	if (rc < 0) {
		/* Threads that use these structures run: they cannot be freed. */
		log_error("cannot start the threads: %s", status_text(rc));
		exit(EXIT_FAILURE);
	}
	loop_run(t->runs[0].loop);
	for (uint32_t i = 1; i < t->n; i++)
		loop_join(t->runs[i].loop);
	for (uint32_t i = 0; rc == 0 && i < t->n; i++)
		rc = t->runs[i].rc;
	return rc;
}

static uint32_t count(const struct ossd_params *p)
{
	uint32_t n = 0;
	int len;

	while (word(p->data_dir, n, &len), len > 0)
		n++;
	return n;
}

static void run_free(struct target_run *r)
{
	if (r->loop != NULL)
		loop_destroy(r->loop);
	if (r->transport != NULL)
		transport_destroy(r->transport);
}

int targets_run(const struct targets_options *o)
{
	struct targets t = {.magic = TARGETS_MAGIC,
			    .o = o,
			    .ready_file = o->ready_file,
			    .n = count(o->params)};
	int rc = 0;

	if (t.n == 0 || t.n > TARGETS_MAX)
		return -LE_CONFIG;
	pthread_mutex_init(&t.lock, NULL);
	t.runs = calloc(t.n, sizeof(*t.runs));
	if (t.runs == NULL)
		return -LE_NOMEM;
	for (uint32_t i = 0; rc == 0 && i < t.n; i++)
		rc = make_run(&t, i);
	if (rc == 0) {
		start_page(&t);
		rc = run_all(&t);
	}
	for (uint32_t i = 0; i < t.n; i++)
		run_free(&t.runs[i]);
	free(t.runs);
	pthread_mutex_destroy(&t.lock);
	return rc;
}
