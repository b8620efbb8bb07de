/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clocks of targets and clients, from the status of the metadata server: the array
 * "targets" with id, clock_ahead_ms, clock_bound_ms, clock_apart; and the object "client_clocks":
 * how many are "compared", how many of them "ahead" or "behind" by more than a second, and some of
 * these in "apart", with name, clock_ahead_ms, clock_bound_ms.
 */
#ifndef LEAT_TOOLS_CLOCKS_VIEW_H
#define LEAT_TOOLS_CLOCKS_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* True if the clock of a target differs by more than a second from the metadata server's. Clocks of
 * clients do not count: otherwise any user with a mount could fail the check. */
bool clocks_apart(const json_t *mds_status);
/* Copies the members about the clock of target id to its object `target`. */
void clocks_add(const json_t *mds_status, uint32_t id, json_t *target);
/* Prints a line for each clock that differs, and the next step; nothing if none does. */
void clocks_print(const json_t *mds_status);

#endif
