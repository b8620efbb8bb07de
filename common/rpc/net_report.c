/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/net_report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TAIL_SIZE 256u /* reserved for the end of the text */
#define ROW_SIZE 1024u

/* Makes a name from outside safe inside a JSON string. */
static const char *clean(const char *text, char *buf, size_t size)
{
	size_t n = 0;

	for (; *text != '\0' && n + 1 < size; text++) {
		bool plain = *text >= ' ' && *text < 0x7f && *text != '"' && *text != '\\';
		buf[n++] = plain ? *text : '_';
	}
	buf[n] = '\0';
	return buf;
}

void net_report_begin(struct net_report *r, char *buf, size_t size, struct transport *t,
		      uint32_t from)
{
	char described[512] = "";

	*r = (struct net_report){ .buf = buf, .size = size, .from = from };
	transport_resources(t, &r->held);
	if (t->ops->describe != NULL)
		t->ops->describe(t, described, sizeof(described));
	else
		snprintf(described, sizeof(described), "{\"mode\":\"%s\"}", t->ops->name);
	r->len = (size_t)snprintf(buf, size, "{\"transport\":%s,\"from\":%u,\"connections\":[",
				  described, from);
}

static const char *role_name(enum rpc_role role)
{
	static const char *const names[] = {"", "client", "mds", "ossd", "agent", "tool"};

	return (unsigned)role < sizeof(names) / sizeof(names[0]) ? names[role] : "";
}

/* Fields that only the connecting side has. */
static void client_fields(char *buf, size_t size, const struct rpc_net *n)
{
	snprintf(buf, size,
		 ",\"rail\":%u,\"repeated\":%" PRIu64 ",\"reconnects\":%" PRIu64
		 ",\"moves\":%" PRIu64,
		 n->rail, n->repeated, n->reconnects, n->moves);
}

/* to: NULL at a server */
static int row(char *buf, size_t size, const char *to, const struct rpc_net *n)
{
	char whom[64], name[64], addr[96], device[40], client[128] = "";
	const struct link_stats *k = &n->link;

	if (to != NULL)
		client_fields(client, sizeof(client), n);

	return snprintf(
		buf, size,
		"{\"to\":\"%s\",\"name\":\"%s\",\"role\":\"%s\",\"addr\":\"%s\",\"state\":\"%s\","
		"\"transport\":\"%s\",\"device\":\"%s\",\"port\":%u,\"why\":\"%s\","
		"\"age_s\":%.1f,\"in_flight\":%u,\"calls\":%" PRIu64 ",\"replies\":%" PRIu64
		",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64 ",\"in_per_s\":%" PRIu64
		",\"out_per_s\":%" PRIu64 ",\"copied_bytes\":%" PRIu64
		",\"credit_stalls\":%" PRIu64 ",\"queue_stalls\":%" PRIu64 "%s}",
		clean(to != NULL ? to : n->name, whom, sizeof(whom)),
		clean(n->name, name, sizeof(name)),
		role_name(n->role),
		clean(n->addr, addr, sizeof(addr)), n->state, n->transport,
		clean(k->device, device, sizeof(device)), k->port,
		n->why < 0 ? status_text(n->why) : "", (double)n->age_us / 1e6, n->in_flight,
		n->calls, n->replies, k->bulk_in, k->bulk_out, n->in_rate, n->out_rate,
		k->bytes_copied, k->credit_stalls, k->queue_stalls, client);
}

void net_report_add(struct net_report *r, const char *to, const struct rpc_net *n)
{
	char text[ROW_SIZE];
	int len;

	if (r->n++ < r->from || r->full)
		return;
	len = row(text, sizeof(text), to, n);
	if (len < 0 || (size_t)len >= sizeof(text) ||
	    r->len + (size_t)len + 2 + TAIL_SIZE > r->size) {
		r->full = true;
		return;
	}
	r->len += (size_t)snprintf(r->buf + r->len, r->size - r->len, "%s%s",
				   r->n_listed++ > 0 ? "," : "", text);
}

size_t net_report_end(struct net_report *r)
{
	r->len += (size_t)snprintf(
		r->buf + r->len, r->size - r->len,
		"],\"listed\":%u,\"total\":%u,\"data_copied_bytes\":%" PRIu64
		",\"rdma\":{\"queue_pairs\":%" PRIu64 ",\"completion_queues\":%" PRIu64
		",\"memory_regions\":%" PRIu64 ",\"registered_bytes\":%" PRIu64 "}}",
		r->n_listed, r->n, copy_counter_bytes(), r->held.queue_pairs,
		r->held.completion_queues, r->held.regions, r->held.registered_bytes);
	return r->len;
}
