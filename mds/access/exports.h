/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of exports: what clients of a network may do, one row for each network. The row with
 * the most specific network that contains the address of a client counts. Without such a row a
 * client may do all that its credentials allow. The table is one durable record, and in memory
 * while the server runs.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_ACCESS_EXPORTS_H
#define LEAT_MDS_ACCESS_EXPORTS_H

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

/* Reads the table from the store. Returns 0, -LE_CORRUPT_STORE or the error of the store. Yields.
 */
int exports_load(struct exports *e, struct store *s) CHECK_RESULT;
/* The row that counts for the address; NULL: none. Does not yield. */
const struct export_row *exports_match(const struct exports *e, struct net_address a);
/* The rule for a peer of that name (transport address). flags: what it must not do (enum
 * export_flags). If the table has rows, a peer without an address is read-only and squashed. Does
 * not yield. */
struct export_row exports_rule(const struct exports *e, const char *peer);
/* Adds a row, or replaces the row of the same network. Returns 0, -LE_INVAL, or -LE_NOSPC if the
 * table is full. Does not yield. */
int exports_put(struct exports *e, const struct export_row *row) CHECK_RESULT;
/* Removes the row of the network. Returns 0 or -LE_NOENT. Does not yield. */
int exports_remove(struct exports *e, const struct network *net) CHECK_RESULT;
/* Makes the table durable. The caller holds the lock. Returns 0 or the error of the store. Yields.
 */
int exports_store(const struct exports *e, struct store *s) CHECK_RESULT;
/* Encodes all rows into buf, which has EXPORTS_BYTES. Does not yield. */
#define EXPORTS_BYTES (EXPORTS_MAX * 48u)
struct bytes exports_encode(const struct exports *e, uint8_t *buf);

/* The network of a row. */
struct network export_network(const struct export_row *row);

#endif
