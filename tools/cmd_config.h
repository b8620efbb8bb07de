/* SPDX-License-Identifier: Apache-2.0 */
/* leat config: checks of leat.conf that other commands make before they start. */
#ifndef LEAT_TOOLS_CMD_CONFIG_H
#define LEAT_TOOLS_CMD_CONFIG_H

#include "tools/tool.h"

/* Loads leat.conf and the key as `leat agent` does. Returns EXIT_OK, or EXIT_USAGE after a
 * message. */
int agent_config_check(const struct tool *t);
/* Like agent_config_check(), for each file of a list (`leat agent --check-config`): prints a line
 * for each. Returns EXIT_OK, or EXIT_USAGE if any of them is refused. */
int config_check_agent(char *const *files, int n_files);

#endif
