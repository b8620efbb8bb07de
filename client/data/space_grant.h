/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Space grants: an object server reserves space for a client, so that the client may acknowledge
 * writes which the server has not received. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DATA_SPACE_GRANT_H
#define LEAT_CLIENT_DATA_SPACE_GRANT_H

#include <stdbool.h>
#include <stdint.h>

struct client;
struct inode_io;
struct target;

#define GRANT_TIMEOUT_MS 5000u

/* Reserves len bytes of the target's grant. Returns false if it does not cover them. Does not
 * yield. */
bool grant_reserve(struct target *t, uint64_t len);
/* Returns reserved bytes to the grant. Does not yield. */
void grant_release(struct target *t, uint64_t len);
/* Returns how many bytes of space a write of len bytes at off may need: whole blocks. */
uint64_t grant_need(uint32_t block_size, uint64_t off, uint64_t len);
/* Returns how large a grant the client requests from each target, in bytes; 0: no write-back. */
uint64_t grant_want(const struct client *c);
/* Requests grants, in the background, from those of the file's targets where little of the grant is
 * left. Does not yield. */
void grant_ask(struct inode_io *d);
/* Returns all grants when the client ends, so that other clients can use the space immediately
 * instead of after the expiry of the grant. Waits GRANT_RETURN_MS at most for servers that are
 * connected. Yields. */
void grant_return_all(struct client *c);

#endif
