/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/transport/transport_mux.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rpc/addr.h"
#include "common/rpc/transport/transport_tcp.h"
#include "common/rpc/verbs/transport_verbs.h"
#include "common/rpc/verbs/verbs_probe.h"
#include "common/rpc/verbs/verbs_rails.h"
#include "common/rt/cpus.h"

#define WHY_SIZE 192u
/* Ranks: verbs by a device near this loop, by a far one, through a router; then tcp. */
#define RANK_NEAR   0
#define RANK_FAR    1
#define RANK_ROUTED 2
#define RANK_TCP    8

#define MUX_MAGIC 0x4d555831u
struct mux {
	struct transport base;
	uint32_t magic;
	enum transport_mode mode;
	struct transport *tcp, *verbs; /* verbs: NULL if there is none, or mode is tcp */
	char why[WHY_SIZE];            /* without verbs: the reason; else the devices */
};

#define MUX_LISTENER_MAGIC 0x4d555832u
struct mux_listener {
	uint32_t magic;
	struct transport *t;
	struct listener *ls;
};

static const struct transport_ops mux_ops;

static struct mux *mux_of(struct transport *t)
{
	return CAST_OBJ(t, struct mux, MUX_MAGIC);
}

/* ---- addresses ---- */

static struct transport *carrier(const struct mux *m, enum addr_scheme scheme)
{
	if (scheme == ADDR_VERBS)
		return m->verbs;
	return m->mode == TRANSPORT_VERBS ? NULL : m->tcp;
}

/* Writes the addresses that a wildcard of the verbs listener stands for; if there are none, one
 * with a star. */
static int format_rails(const char *rest, char *buf, size_t size)
{
	struct rail rails[RAILS_MAX];
	char host[NET_ADDR_TEXT_SIZE], addr[ADDR_TEXT_SIZE];
	uint32_t n = verbs_rails(rails);
	const char *port = strrchr(rest, ':');

	for (uint32_t i = 0; i < n; i++) {
		net_addr_format(&rails[i].addr, host);
		char *colon = strrchr(host, ':');
		if (colon == NULL)
			continue;
		*colon = '\0';
		if (snprintf(addr, sizeof(addr), "verbs:%s%s", host, port) >= (int)sizeof(addr) ||
		    !addr_list_add(buf, size, addr))
			break;
	}
	if (buf[0] == '\0')
		snprintf(buf, size, "verbs:*%s", port);
	return 0;
}

/* Writes an actual address of a listener in the form that clients can use. */
static int tell(const struct mux *m, const char *addr, char *buf, size_t size)
{
	const char *rest;
	enum addr_scheme scheme = addr_split(addr, &rest);

	if (!addr_is_wildcard(rest))
		snprintf(buf, size, "%s", addr);
	else if (scheme == ADDR_VERBS && m->verbs != NULL)
		return format_rails(rest, buf, size);
	else
		snprintf(buf, size, "%s:*%s", addr_scheme_name(scheme), strrchr(rest, ':'));
	return 0;
}

static int mux_expand(struct transport *t, const char *addr, enum addr_use use, char *buf,
		      size_t size)
{
	const struct mux *m = mux_of(t);
	const char *rest;
	enum addr_scheme scheme = addr_split(addr, &rest);
	char one[ADDR_TEXT_SIZE];

	buf[0] = '\0';
	if (use == ADDR_TELL)
		return tell(m, addr, buf, size);
	if (scheme != ADDR_ANY) {
		if (carrier(m, scheme) != NULL && !addr_list_add(buf, size, addr))
			return -LE_CONFIG;
		return 0;
	}
	bool verbs = m->verbs != NULL && (m->mode == TRANSPORT_VERBS || use == ADDR_LISTEN);
	if (verbs) {
		TRY(addr_make(ADDR_VERBS, rest, ADDR_VERBS_PORT, one));
		if (!addr_list_add(buf, size, one))
			return -LE_CONFIG;
	}
	if (carrier(m, ADDR_TCP) != NULL) {
		TRY(addr_make(ADDR_TCP, rest, 0, one));
		if (!addr_list_add(buf, size, one))
			return -LE_CONFIG;
	}
	return 0;
}

static bool same_network(const struct net_addr *a, const struct rail *r)
{
	const uint8_t *x, *y;
	uint32_t bits = r->prefix;

	if (a->sa.sa_family != r->addr.sa.sa_family)
		return false;
	x = a->sa.sa_family == AF_INET ? (const void *)&a->in.sin_addr
				       : (const void *)&a->in6.sin6_addr;
	y = a->sa.sa_family == AF_INET ? (const void *)&r->addr.in.sin_addr
				       : (const void *)&r->addr.in6.sin6_addr;
	if (memcmp(x, y, bits / 8) != 0)
		return false;
	return bits % 8 == 0 || ((x[bits / 8] ^ y[bits / 8]) >> (8 - bits % 8)) == 0;
}

static int mux_rank(struct transport *t, const char *addr)
{
	const struct mux *m = mux_of(t);
	struct rail rails[RAILS_MAX];
	struct net_addr a;
	const char *rest;
	enum addr_scheme scheme = addr_split(addr, &rest);
	int rank = RANK_ROUTED, here;
	uint32_t n;

	if (carrier(m, scheme) == NULL)
		return -LE_CONFIG;
	if (scheme != ADDR_VERBS)
		return RANK_TCP;
	/* A host name would need a lookup: assume that it is routed. */
	if (net_addr_numeric(rest, &a) < 0)
		return rank;
	n = verbs_rails(rails);
	here = n > 1 ? cpus_node() : -1;
	for (uint32_t i = 0; i < n; i++) {
		if (!same_network(&a, &rails[i]))
			continue;
		bool near = rails[i].numa_node < 0 || here < 0 || rails[i].numa_node == here;
		if (near)
			return RANK_NEAR;
		rank = RANK_FAR;
	}
	return rank;
}

/* ---- the operations ---- */

static int mux_listen(struct transport *t, struct loop *l, const char *addr,
		      struct listener **ret_listener, char *ret_addr)
{
	struct mux *m = mux_of(t);
	const char *rest;
	enum addr_scheme scheme = addr_split(addr, &rest);
	struct transport *by = carrier(m, scheme);
	struct mux_listener *ls;
	char real[NET_ADDR_TEXT_SIZE];
	int rc;

	if (by == NULL)
		return -LE_CONFIG;
	ls = calloc(1, sizeof(*ls));
	if (ls == NULL)
		return -LE_NOMEM;
	ls->magic = MUX_LISTENER_MAGIC;
	ls->t = by;
	rc = by->ops->listen(by, l, rest, &ls->ls, real);
	if (rc < 0) {
		free(ls);
		return rc;
	}
	snprintf(ret_addr, ADDR_TEXT_SIZE, "%s:%s",
		 addr_scheme_name(scheme == ADDR_VERBS ? ADDR_VERBS : ADDR_TCP), real);
	*ret_listener = (struct listener *)ls;
	return 0;
}

static int mux_accept(struct listener *listener, struct link **ret_link)
{
	struct mux_listener *ls = CAST_OBJ(listener, struct mux_listener, MUX_LISTENER_MAGIC);

	return ls->t->ops->accept(ls->ls, ret_link);
}

static void mux_listener_close(struct listener *listener)
{
	struct mux_listener *ls = CAST_OBJ(listener, struct mux_listener, MUX_LISTENER_MAGIC);

	ls->t->ops->listener_close(ls->ls);
	ls->magic = 0;
	free(ls);
}

static int mux_connect(struct transport *t, const char *addr, uint64_t deadline_us,
		       struct link **ret_link)
{
	struct mux *m = mux_of(t);
	const char *rest;
	struct transport *by = carrier(m, addr_split(addr, &rest));

	return by == NULL ? -LE_CONFIG : by->ops->connect(by, rest, deadline_us, ret_link);
}

static int mux_add_pool(struct transport *t, struct slot_pool *pool, enum pool_use use)
{
	struct mux *m = mux_of(t);

	TRY(m->tcp->ops->add_pool(m->tcp, pool, use));
	return m->verbs == NULL ? 0 : m->verbs->ops->add_pool(m->verbs, pool, use);
}

static int mux_register(struct transport *t, void *base, uint64_t len,
			struct user_memory **ret_memory)
{
	struct mux *m = mux_of(t);

	return m->verbs == NULL ? 0 : transport_register(m->verbs, base, len, ret_memory);
}

static void mux_unregister(struct transport *t, struct user_memory *user_memory)
{
	transport_unregister(mux_of(t)->verbs, user_memory);
}

static bool mux_lands(struct transport *t, const void *base, uint64_t len)
{
	struct mux *m = mux_of(t);

	return m->verbs == NULL || transport_lands(m->verbs, base, len);
}

static const char *mode_name(enum transport_mode mode)
{
	static const char *const names[] = {"auto", "verbs", "tcp"};

	return names[mode];
}

static void mux_describe(struct transport *t, char *buf, size_t size)
{
	const struct mux *m = mux_of(t);
	bool tcp = m->mode != TRANSPORT_VERBS, verbs = m->verbs != NULL;

	snprintf(buf, size, "{\"mode\":\"%s\",\"tcp\":%s,\"verbs\":%s,\"%s\":\"%s\"}",
		 mode_name(m->mode), tcp ? "true" : "false", verbs ? "true" : "false",
		 verbs ? "devices" : "why_not_verbs", m->why);
}

static void mux_resources(struct transport *t, struct transport_resources *ret)
{
	if (mux_of(t)->verbs != NULL)
		transport_resources(mux_of(t)->verbs, ret);
}

static int mux_numa_node(struct transport *t)
{
	struct rail rails[RAILS_MAX];

	return mux_of(t)->verbs != NULL && verbs_rails(rails) > 0 ? rails[0].numa_node : -1;
}

static void mux_destroy(struct transport *t)
{
	struct mux *m = mux_of(t);

	transport_destroy(m->tcp);
	transport_destroy(m->verbs);
	m->magic = 0;
	free(m);
}

/* Links have the ops of their own transports: the mux has no operations on links. */
static const struct transport_ops mux_ops = {
	.name = "auto",
	.listen = mux_listen,
	.accept = mux_accept,
	.listener_close = mux_listener_close,
	.connect = mux_connect,
	.add_pool = mux_add_pool,
	.register_memory = mux_register,
	.unregister_memory = mux_unregister,
	.lands = mux_lands,
	.destroy = mux_destroy,
	.expand = mux_expand,
	.rank = mux_rank,
	.describe = mux_describe,
	.resources = mux_resources,
	.numa_node = mux_numa_node,
};

/* ---- construction ---- */

int transport_mux_of(enum transport_mode mode, struct transport *tcp, struct transport *verbs,
		     const char *why, struct transport **ret_transport)
{
	struct mux *m = calloc(1, sizeof(*m));

	if (m == NULL) {
		transport_destroy(tcp);
		transport_destroy(verbs);
		return -LE_NOMEM;
	}
	m->base.ops = &mux_ops;
	m->magic = MUX_MAGIC;
	m->mode = mode;
	m->tcp = tcp;
	m->verbs = verbs;
	snprintf(m->why, sizeof(m->why), "%s", why);
	/* It becomes part of a JSON text. */
	for (char *p = m->why; *p != '\0'; p++)
		if (*p == '"' || *p == '\\' || *p < ' ')
			*p = '\'';
	*ret_transport = &m->base;
	return 0;
}

static int mode_parse(const char *text, enum transport_mode *ret_mode)
{
	for (int m = TRANSPORT_AUTO; m <= TRANSPORT_TCP; m++)
		if (strcmp(text, mode_name((enum transport_mode)m)) == 0) {
			*ret_mode = (enum transport_mode)m;
			return 0;
		}
	log_error("transport = %s: must be auto, verbs or tcp", text);
	return -LE_CONFIG;
}

static int make_verbs(enum transport_mode mode, char *why, size_t size,
		      struct transport **ret_verbs)
{
	*ret_verbs = NULL;
	if (mode == TRANSPORT_TCP) {
		snprintf(why, size, "transport = tcp");
		return 0;
	}
	int rc = -LE_NODEV;
#ifdef HAVE_VERBS
	if (transport_verbs_available(why, size)) {
		rc = transport_verbs_create(NULL, ret_verbs);
		if (rc < 0)
			snprintf(why, size, "%s", status_text(rc));
	}
#else
	(void)transport_verbs_available(why, size);
#endif
	if (rc == 0 || mode == TRANSPORT_AUTO)
		return 0;
	log_error("transport = verbs: %s", why);
	return -LE_CONFIG;
}

int transport_mux_create(const char *mode_text, struct transport **ret_transport)
{
	struct transport *tcp, *verbs;
	enum transport_mode mode;
	char why[WHY_SIZE] = "";

	TRY(mode_parse(mode_text, &mode));
	TRY(make_verbs(mode, why, sizeof(why), &verbs));
	int rc = transport_tcp_create(&tcp);
	if (rc < 0) {
		transport_destroy(verbs);
		return rc;
	}
	return transport_mux_of(mode, tcp, verbs, why, ret_transport);
}
