/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/restart/background.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/base/log.h"

void mount_log_alone(const struct mount_options *o)
{
	enum log_level level;

	if (o->log_file[0])
		return;
	log_to_system(NULL);
	if (log_level_parse(o->mount.log_level, &level) == 0)
		log_set_level(level);
}

void mount_leave_terminal(const struct mount_options *o)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
		if (!o->log_file[0])
			dup2(null, 2);
		close(null);
	}
	mount_log_alone(o);
}
