/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that all clients append to and empty concurrently, as programs and logrotate do with a
 * log. In the end every record that was appended after the last truncation is there once, no record
 * from before a truncation is there, and no hole of zeros where a record was to be.
 */
#ifndef LEAT_TESTS_SIM_LOGS_H
#define LEAT_TESTS_SIM_LOGS_H

#include "tests/sim/cluster.h"

struct logs;

struct logs *logs_create(struct cluster *c);
/* Runs one truncation, or appends some records. */
void logs_use(struct logs *l, struct client *client, uint32_t index);
/* The client's process has ended, and none of its requests is in flight. */
void logs_client_gone(struct logs *l, uint32_t index);
/* Called by the last client: checks everything, removes the file, frees l. */
void logs_verify(struct logs *l, struct client *client);

#endif
