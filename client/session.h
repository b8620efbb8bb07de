/*
 * The client's session at the MDS: opened by the connected hook of the connection, taken up again
 * after each reconnect, kept alive by pings, replaced when the MDS has forgotten it. What was
 * written behind under a session that is gone is lost, and its files report it once.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_SESSION_H
#define LEAT_CLIENT_SESSION_H

#include "common/base/status.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"

struct client;
struct idata;

/* Connects and waits for a session, at most until the deadline. Yields. */
int session_start(struct client *c, const char *mds_addrs, uint64_t deadline_us) CHECK_RESULT;
/* Closes the session (best effort, a second at most) and the connection. Yields. */
void session_stop(struct client *c);
/* The MDS says that session `gone` is no more: a new one, unless somebody has got it already.
 * Yields. */
int session_renew(struct client *c, uint64_t gone) CHECK_RESULT;
/* The MDS has opened d once more, under session: before it is counted in d. What is opened while a
 * new session opens all others again is not opened by that too. Does not yield. */
void session_opened(struct idata *d, uint32_t flags, uint64_t session);
/* Is it still to be opened again in a session that is new? Until then nothing of it can be closed,
 * appended to, locked or unlocked there: it would be counted twice, undone, or refused. Does not
 * yield. */
bool session_reopens(struct client *c, struct ino ino);
/* The MDS has closed one open of d, with flags of open(2): before d counts it no more. */
void session_closed(struct idata *d, uint32_t flags);
/* Of what is known to be in use here: does the MDS not know all opens of it, in a session that is
 * new? */
bool session_misses(const struct idata *d);
/* Until it is open again, as long as one operation may take. What has been refused is tried once
 * more. Yields. */
int session_await(struct idata *d) CHECK_RESULT;
/* While the session is being set up: one mutation at the MDS whose reply carries no bytes.
 * Yields. */
int session_setup_call(struct client *c, uint16_t flags, uint16_t op, const void *req,
		       void *rep) CHECK_RESULT;
/* Asks the MDS whether the session lives: 0, -LE_SESSION_GONE (then a new one was made), or why it
 * is not known. */
int session_check(struct client *c) CHECK_RESULT;

#endif
