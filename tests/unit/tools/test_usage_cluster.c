/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of the commands that query servers: an option is accepted, and then the command
 * fails because of leat.conf; or it is refused with its status and message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "tests/unit/tools/run.h"

static const struct run_row status_rows[] = {
	{"status -x", 2, "",
	 "leat status: wrong options\n"
	 "  See: leat status --help\n"},
	{"status --frob", 2, "",
	 "leat status: unknown option '--frob'\n"
	 "  See: leat status --help\n"},
	{"status --timeout", 2, "",
	 "leat status: option '--timeout' needs a value, or is not allowed here\n"
	 "  See: leat status --help\n"},
	{"status --timeout x", 2, "",
	 "leat status: --timeout: 'x' is not a number up to 3600\n"
	 "  See: leat status --help\n"},
	{"status --timeout 0", 2, "",
	 "leat status: ~/none.conf: No such file or directory\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf status --check --net --memory --timeout 2", 2, "",
	 "leat status: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf status --agent localhost:7460", 2, "",
	 "leat status: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"status a b", 2, "",
	 "leat status: too many arguments\n"
	 "  See: leat status --help\n"},
	{"status dir", 2, "",
	 "leat status: ~/none.conf: No such file or directory\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--json status --frob", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"unknown option '--frob'\",\"hint\":\"See: "
	 "leat status --help\"}}\n",
	 "leat status: unknown option '--frob'\n"
	 "  See: leat status --help\n"},
	{"-- status x y", 2, "",
	 "leat: unknown option '--'\n"
	 "  See: leat --help\n"},
};

static void status_checks_its_arguments(void **state)
{
	(void)state;
	run_table(status_rows, ARRAY_SIZE(status_rows));
}

static const struct run_row df_rows[] = {
	{"df -x", 2, "",
	 "leat df: wrong options\n"
	 "  See: leat df --help\n"},
	{"df dir", 9, "MOUNT                          SIZE       USED      AVAIL  USED\n",
	 "leat df: dir is not on a Leat mount\n"},
	{"df --frob", 2, "",
	 "leat df: unknown option '--frob'\n"
	 "  See: leat df --help\n"},
	{"--conf bad.conf df", 2, "",
	 "leat df: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
};

static void df_checks_its_arguments(void **state)
{
	(void)state;
	run_table(df_rows, ARRAY_SIZE(df_rows));
}

static const struct run_row layout_rows[] = {
	{"layout", 2, "",
	 "leat layout: give a verb: get, set or stop\n"
	 "  See: leat layout --help\n"},
	{"layout frob", 2, "",
	 "leat layout: unknown verb 'frob'; give get, set or stop\n"
	 "  See: leat layout --help\n"},
	{"layout get", 2, "",
	 "leat layout: get: PATH is missing\n"
	 "  See: leat layout get --help\n"},
	{"layout get dir", 9, "",
	 "leat layout: dir is not on a Leat mount\n"
	 "  Layouts belong to files and directories of a Leat mount.\n"},
	{"layout get none", 9, "", "leat layout: none: No such file or directory\n"},
	{"layout set", 2, "",
	 "leat layout: set: give --width (1 or more), --chunk-size, --replicas, "
	 "--compression\n"
	 "  See: leat layout set --help\n"},
	{"layout set dir", 2, "",
	 "leat layout: set: give --width (1 or more), --chunk-size, --replicas, "
	 "--compression\n"
	 "  See: leat layout set --help\n"},
	{"layout set --width 0 dir", 2, "",
	 "leat layout: set: give --width (1 or more), --chunk-size, --replicas, "
	 "--compression\n"
	 "  See: leat layout set --help\n"},
	{"layout set --width x dir", 2, "",
	 "leat layout: --width: 'x' is not a number up to 65536\n"
	 "  See: leat layout set --help\n"},
	{"layout set --chunk-size 5 dir", 2, "",
	 "leat layout: --chunk-size: a power of two from 64K to 64M\n"
	 "  See: leat layout set --help\n"},
	{"layout set --chunk-size 128M dir", 2, "",
	 "leat layout: --chunk-size: a power of two from 64K to 64M\n"
	 "  See: leat layout set --help\n"},
	{"layout set --replicas 9 dir", 2, "",
	 "leat layout: --replicas: '9' is not a number up to 3\n"
	 "  See: leat layout set --help\n"},
	{"layout set --compression zip dir", 2, "",
	 "leat layout: --compression: off or lz4\n"
	 "  See: leat layout set --help\n"},
	{"layout set --existing --width 2 dir", 2, "",
	 "leat layout: --existing goes with --replicas alone\n"
	 "  See: leat layout set --help\n"},
	{"layout set --width 2", 2, "",
	 "leat layout: set: PATH is missing\n"
	 "  See: leat layout set --help\n"},
	{"layout set --width 2 dir", 9, "",
	 "leat layout: dir is not on a Leat mount\n"
	 "  Layouts belong to files and directories of a Leat mount.\n"},
	{"layout set --widht 2 dir", 2, "",
	 "leat layout: unknown option '--widht': did you mean --width?\n"
	 "  See: leat layout set --help\n"},
	{"layout stop", 2, "",
	 "leat layout: stop: PATH is missing\n"
	 "  See: leat layout stop --help\n"},
	{"layout stop dir", 9, "",
	 "leat layout: dir is not on a Leat mount\n"
	 "  Layouts belong to files and directories of a Leat mount.\n"},
};

static void layout_checks_its_arguments(void **state)
{
	(void)state;
	run_table(layout_rows, ARRAY_SIZE(layout_rows));
}

static const struct run_row quota_rows[] = {
	{"quota", 2, "",
	 "leat quota: give a verb: set, show, ls or rm\n"
	 "  See: leat quota --help\n"},
	{"quota frob", 2, "",
	 "leat quota: unknown verb 'frob'; give set, show, ls or rm\n"
	 "  See: leat quota --help\n"},
	{"quota set", 2, "",
	 "leat quota: set: give --bytes, --bytes-soft, --inodes, --inodes-soft\n"
	 "  See: leat quota set --help\n"},
	{"quota set --bytes 1G", 2, "",
	 "leat quota: set: DIRECTORY is missing\n"
	 "  See: leat quota set --help\n"},
	{"quota set --bytes x dir", 2, "",
	 "leat quota: --bytes: 'x' is not a size (4096, 64K, 1M, 2G)\n"
	 "  See: leat quota set --help\n"},
	{"quota set --inodes x dir", 2, "",
	 "leat quota: --inodes: 'x' is not a number up to 9223372036854775807\n"
	 "  See: leat quota set --help\n"},
	{"quota set --bytes-soft x dir", 2, "",
	 "leat quota: --bytes-soft: 'x' is not a size (4096, 64K, 1M, 2G)\n"
	 "  See: leat quota set --help\n"},
	{"quota set --inodes-soft x dir", 2, "",
	 "leat quota: --inodes-soft: 'x' is not a number up to 9223372036854775807\n"
	 "  See: leat quota set --help\n"},
	{"quota set --bytes 1G dir", 9, "", "leat quota: dir is not on a Leat mount\n"},
	{"quota set --adopt dir", 9, "", "leat quota: dir is not on a Leat mount\n"},
	{"quota show", 2, "",
	 "leat quota: show: PATH is missing\n"
	 "  See: leat quota show --help\n"},
	{"quota show dir", 9, "", "leat quota: dir is not on a Leat mount\n"},
	{"quota rm", 2, "",
	 "leat quota: rm: DIRECTORY is missing\n"
	 "  See: leat quota rm --help\n"},
	{"quota rm dir", 9, "", "leat quota: dir is not on a Leat mount\n"},
	{"quota ls dir", 2, "",
	 "leat quota: ls: too many arguments; `leat quota show PATH` shows one\n"
	 "  See: leat quota ls --help\n"},
};

static void quota_checks_its_arguments(void **state)
{
	(void)state;
	run_table(quota_rows, ARRAY_SIZE(quota_rows));
}

static const struct run_row export_rows[] = {
	{"export", 2, "",
	 "leat export: give a verb: ls, add or rm\n"
	 "  See: leat export --help\n"},
	{"export frob", 2, "",
	 "leat export: give a verb: ls, add or rm\n"
	 "  See: leat export --help\n"},
	{"export add", 2, "",
	 "leat export: add: NETWORK is missing\n"
	 "  See: leat export add --help\n"},
	{"export add 10.1.0.0/16 10.2.0.0/16", 2, "",
	 "leat export: add: too many arguments\n"
	 "  See: leat export add --help\n"},
	{"export add 10.1.2.3/8", 2, "",
	 "leat export: '10.1.2.3/8' is not a network (10.1.0.0/16, 10.1.2.3, fd00:1::/32; "
	 "no bits after the prefix)\n"
	 "  See: leat export add --help\n"},
	{"export add x", 2, "",
	 "leat export: 'x' is not a network (10.1.0.0/16, 10.1.2.3, fd00:1::/32; no bits "
	 "after the prefix)\n"
	 "  See: leat export add --help\n"},
	{"export add --anon-uid 0 10.1.0.0/16", 2, "",
	 "leat export: --anon-uid: 0 is root\n"
	 "  See: leat export add --help\n"},
	{"export add --anon-uid x 10.1.0.0/16", 2, "",
	 "leat export: --anon-uid: 'x' is not a number up to 4294967294\n"
	 "  See: leat export add --help\n"},
	{"export add --frob 10.1.0.0/16", 2, "",
	 "leat export: unknown option '--frob': did you mean --ro?\n"
	 "  See: leat export add --help\n"},
	{"--conf bad.conf export add --ro --root-squash --anon-uid 7 --anon-gid "
	 "8 10.1.0.0/16",
	 2, "",
	 "leat export: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf export add --all-squash fd00:1::/32", 2, "",
	 "leat export: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf export rm 10.1.0.0/16", 2, "",
	 "leat export: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf export ls", 2, "",
	 "leat export: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"export ls x", 2, "",
	 "leat export: ls: too many arguments\n"
	 "  See: leat export ls --help\n"},
	{"export rm", 2, "",
	 "leat export: rm: NETWORK is missing\n"
	 "  See: leat export rm --help\n"},
};

static void export_checks_its_arguments(void **state)
{
	(void)state;
	run_table(export_rows, ARRAY_SIZE(export_rows));
}

static const struct run_row scrub_rows[] = {
	{"scrub", 2, "",
	 "leat scrub: give a verb: start, stop or status\n"
	 "  See: leat scrub --help\n"},
	{"scrub frob", 2, "",
	 "leat scrub: give a verb: start, stop or status\n"
	 "  See: leat scrub --help\n"},
	{"scrub start --target x", 2, "",
	 "leat scrub: --target: 'x' is not a number up to 4294967295\n"
	 "  See: leat scrub start --help\n"},
	{"scrub start --frob", 2, "",
	 "leat scrub: unknown option '--frob'\n"
	 "  See: leat scrub start --help\n"},
	{"--conf bad.conf scrub start --target 3", 2, "",
	 "leat scrub: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf scrub stop", 2, "",
	 "leat scrub: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf scrub status", 2, "",
	 "leat scrub: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"scrub status x", 2, "",
	 "leat scrub: too many arguments\n"
	 "  See: leat scrub status --help\n"},
};

static void scrub_checks_its_arguments(void **state)
{
	(void)state;
	run_table(scrub_rows, ARRAY_SIZE(scrub_rows));
}

static const struct run_row fsck_rows[] = {
	{"fsck x", 16, "",
	 "leat fsck: too many arguments\n"
	 "  See: leat fsck --help\n"},
	{"fsck --repair", 16, "",
	 "leat fsck: option '--repair' needs a value, or is not allowed here\n"
	 "  See: leat fsck --help\n"},
	{"fsck --repair frob", 16, "",
	 "leat fsck: --repair: unknown class 'frob'\n"
	 "  See: leat fsck --help\n"},
	{"fsck --repair links,frob", 16, "",
	 "leat fsck: --repair: unknown class 'frob'\n"
	 "  See: leat fsck --help\n"},
	{"fsck --repair missing", 16, "",
	 "leat fsck: --repair: unknown class 'missing'\n"
	 "  See: leat fsck --help\n"},
	{"fsck --window 0", 16, "",
	 "leat fsck: --window must be at least 1\n"
	 "  See: leat fsck --help\n"},
	{"fsck --window x", 16, "",
	 "leat fsck: --window: 'x' is not a number up to 1073741824\n"
	 "  See: leat fsck --help\n"},
	{"fsck --frob", 16, "",
	 "leat fsck: unknown option '--frob'\n"
	 "  See: leat fsck --help\n"},
	{"--conf bad.conf fsck --repair all --window 1000", 16, "",
	 "leat fsck: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf fsck --repair=orphans,links", 16, "",
	 "leat fsck: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
};

static void fsck_checks_its_arguments(void **state)
{
	(void)state;
	run_table(fsck_rows, ARRAY_SIZE(fsck_rows));
}

static const struct run_row target_rows[] = {
	{"target", 2, "",
	 "leat target: give a verb: list, drain, undrain, remove, add, recover or rebalance\n"
	 "  See: leat target --help\n"},
	{"target frob", 2, "",
	 "leat target: give a verb: list, drain, undrain, remove, add, recover or rebalance\n"
	 "  See: leat target --help\n"},
	{"target list 3", 2, "",
	 "leat target: list: too many arguments\n"
	 "  See: leat target list --help\n"},
	{"target list --frob", 2, "",
	 "leat target: unknown option '--frob'\n"
	 "  See: leat target list --help\n"},
	{"target drain", 2, "",
	 "leat target: drain: ID is missing\n"
	 "  See: leat target drain --help\n"},
	{"target drain x", 2, "",
	 "leat target: target: 'x' is not a number up to 65536\n"
	 "  See: leat target drain --help\n"},
	{"target drain 3 4", 2, "",
	 "leat target: drain: too many arguments\n"
	 "  See: leat target drain --help\n"},
	{"target drain --all 3", 2, "",
	 "leat target: drain: --all is allowed only with list\n"
	 "  See: leat target --help\n"},
	{"target drain --lost 3", 2, "",
	 "leat target: drain: --lost is allowed only with remove\n"
	 "  See: leat target --help\n"},
	{"target remove", 2, "",
	 "leat target: remove: ID is missing\n"
	 "  See: leat target remove --help\n"},
	{"target remove --lost", 2, "",
	 "leat target: remove --lost: ID is missing\n"
	 "  See: leat target --help\n"},
	{"target remove --lost 3 3", 2, "",
	 "leat target: target 3 is named twice\n"
	 "  See: leat target --help\n"},
	{"target remove --accept-loss 3", 2, "",
	 "leat target: --accept-loss and --list are allowed only with --lost\n"
	 "  See: leat target --help\n"},
	{"target remove --list f 3", 2, "",
	 "leat target: --accept-loss and --list are allowed only with --lost\n"
	 "  See: leat target --help\n"},
	{"target rebalance 3", 2, "",
	 "leat target: rebalance: too many arguments\n"
	 "  See: leat target rebalance --help\n"},
	{"--conf bad.conf target list --all", 2, "",
	 "leat target: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf target drain 3", 2, "",
	 "leat target: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf target remove --lost --accept-loss --list names 3 4", 2, "",
	 "leat target: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
};

static void target_checks_its_arguments(void **state)
{
	(void)state;
	run_table(target_rows, ARRAY_SIZE(target_rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(status_checks_its_arguments),
		cmocka_unit_test(df_checks_its_arguments),
		cmocka_unit_test(layout_checks_its_arguments),
		cmocka_unit_test(quota_checks_its_arguments),
		cmocka_unit_test(export_checks_its_arguments),
		cmocka_unit_test(scrub_checks_its_arguments),
		cmocka_unit_test(fsck_checks_its_arguments),
		cmocka_unit_test(target_checks_its_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
