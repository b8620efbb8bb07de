/*
 * Exports: what clients of a network may do, one row for each network. A client is judged by the
 * most specific row that its address lies in; without one it may do everything that its
 * credentials allow. Durable as one record, in memory while the server runs.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_EXPORTS_H
#define LEAT_MDS_EXPORTS_H

#include "common/base/network.h"
#include "common/proto/mds_proto.h"
#include "common/rt/fiber.h"

#define EXPORTS_MAX 128u

struct store;

struct exports {
	struct export_row rows[EXPORTS_MAX]; /* of different networks, the longest prefix first */
	uint32_t n;
	struct fmutex lock; /* held while the table is changed */
};

/* Reads them. Yields. */
int exports_load(struct exports *e, struct store *s) CHECK_RESULT;
/* The row that counts for the address; NULL: none. */
const struct export_row *exports_match(const struct exports *e, struct net_address a);
/* What a peer of that name must not do, flags of enum export_flags; whoever has no address when
 * there are rows must not do anything but read as nobody. */
struct export_row exports_rule(const struct exports *e, const char *peer);
/* Adds a row, or takes the place of the network's former one. -LE_INVAL, -LE_NOSPC. */
int exports_put(struct exports *e, const struct export_row *row) CHECK_RESULT;
/* -LE_NOENT */
int exports_remove(struct exports *e, const struct network *net) CHECK_RESULT;
/* Makes a table durable. Under the lock. Yields. */
int exports_store(const struct exports *e, struct store *s) CHECK_RESULT;
/* The rows one behind the other; buf of EXPORTS_BYTES. */
#define EXPORTS_BYTES (EXPORTS_MAX * 48u)
struct bytes exports_encode(const struct exports *e, uint8_t *buf);

struct network export_network(const struct export_row *row);

#endif
