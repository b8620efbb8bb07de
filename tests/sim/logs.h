/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that all clients append to and empty at once, as programs and logrotate do with a log. In
 * the end every record that was appended behind the last cut is there, once, none that was there
 * before a cut, and no hole of zeros where one was to go.
 */
#ifndef LEAT_TESTS_SIM_LOGS_H
#define LEAT_TESTS_SIM_LOGS_H

#include "tests/sim/cluster.h"

struct logs;

struct logs *logs_create(struct cluster *c);
/* One cut, or some records. */
void logs_use(struct logs *l, struct client *client, uint32_t index);
/* That client's process has ended, and nothing of it is under way any more. */
void logs_client_gone(struct logs *l, uint32_t index);
/* By the last client: looks at everything, removes it, frees l. */
void logs_verify(struct logs *l, struct client *client);

#endif
