/*
 * A file that all clients append to and empty at once, as programs and logrotate do with a log. In
 * the end every record that was appended behind the last cut is there, once, none that was there
 * before a cut (of those that are the same, as many), and no hole of zeros, also where one was to
 * go whose client has died.
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
