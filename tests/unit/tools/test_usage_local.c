/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of the commands that work on this machine, global options, and errors as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "tests/unit/tools/run.h"

static const struct run_row mount_rows[] = {
	{"mount", 2, "",
	 "leat mount: MOUNTPOINT is missing\n"
	 "  See: leat mount --help\n"},
	{"mount a b c", 2, "",
	 "leat mount: too many arguments\n"
	 "  See: leat mount --help\n"},
	{"mount -o", 2, "",
	 "leat mount: wrong options\n"
	 "  See: leat mount --help\n"},
	{"mount --frob dir", 2, "",
	 "leat mount: unknown option '--frob'\n"
	 "  See: leat mount --help\n"},
	{"mount none", 9, "",
	 "leat mount: none: No such file or directory\n"
	 "  Create it first: mkdir -p PATH\n"},
	{"mount file", 9, "", "leat mount: ~/file: not a directory\n"},
	{"mount --upgrade", 2, "",
	 "leat mount: MOUNTPOINT is missing\n"
	 "  See: leat mount --help\n"},
	{"mount --upgrade dir", 9, "",
	 "leat mount: dir is not on a Leat mount\n"
	 "  `findmnt -t fuse.leat` lists the mounts of this machine.\n"},
	{"mount --upgrade none", 9, "",
	 "leat mount: none is not on a Leat mount\n"
	 "  `findmnt -t fuse.leat` lists the mounts of this machine.\n"},
	{"mount -o ro --upgrade dir", 2, "",
	 "leat mount: --upgrade takes a mount point and nothing else\n"
	 "  See: leat mount --help\n"},
};

static void mount_checks_its_arguments(void **state)
{
	(void)state;
	run_table(mount_rows, ARRAY_SIZE(mount_rows));
}

static const struct run_row umount_rows[] = {
	{"umount", 2, "",
	 "leat umount: MOUNTPOINT is missing\n"
	 "  See: leat umount --help\n"},
	{"umount a b", 2, "",
	 "leat umount: too many arguments\n"
	 "  See: leat umount --help\n"},
	{"umount --frob dir", 2, "",
	 "leat umount: unknown option '--frob'\n"
	 "  See: leat umount --help\n"},
	{"umount dir", 9, "",
	 "leat umount: no Leat mount at dir\n"
	 "  `findmnt -t fuse.leat` lists the mounts of this machine.\n"},
	{"umount -l dir", 9, "",
	 "leat umount: no Leat mount at dir\n"
	 "  `findmnt -t fuse.leat` lists the mounts of this machine.\n"},
	{"umount none", 9, "",
	 "leat umount: no Leat mount at none\n"
	 "  `findmnt -t fuse.leat` lists the mounts of this machine.\n"},
};

static void umount_checks_its_arguments(void **state)
{
	(void)state;
	run_table(umount_rows, ARRAY_SIZE(umount_rows));
}

static const struct run_row cp_rows[] = {
	{"cp", 2, "",
	 "leat cp: FROM and TO are missing\n"
	 "  See: leat cp --help\n"},
	{"cp file", 2, "",
	 "leat cp: FROM and TO are missing\n"
	 "  See: leat cp --help\n"},
	{"cp file none/x", 9, "", "leat cp: none/x: No such file or directory\n"},
	{"cp dir copies", 1, "", "leat cp: cannot copy 'dir': is a directory; give -r\n"},
	{"cp -r dir dir/sub", 1, "", "leat cp: cannot copy 'dir/sub/dir': invalid argument\n"},
	{"cp file file", 1, "", "leat cp: cannot copy 'file': invalid argument\n"},
	{"cp none copies", 1, "", "leat cp: cannot copy 'none': no such file or directory\n"},
	{"cp -T file dir copies", 2, "",
	 "leat cp: -T needs exactly one FROM and one TO\n"
	 "  See: leat cp --help\n"},
	{"cp file dir file", 2, "",
	 "leat cp: 'file' is not a directory\n"
	 "  See: leat cp --help\n"},
	{"cp -T file dir", 1, "", "leat cp: cannot copy 'file': is a directory\n"},
	{"cp --frob file x", 2, "",
	 "leat cp: unknown option '--frob'\n"
	 "  See: leat cp --help\n"},
	{"cp -x file x", 2, "",
	 "leat cp: wrong options\n"
	 "  See: leat cp --help\n"},
	{"cp -j x file x", 2, "",
	 "leat cp: --jobs: 'x' is not a number up to 1024\n"
	 "  See: leat cp --help\n"},
	{"cp '' x", 9, "", "leat cp: '': No such file or directory\n"},
};

static void cp_checks_its_arguments(void **state)
{
	(void)state;
	run_table(cp_rows, ARRAY_SIZE(cp_rows));
}

static const struct run_row rm_rows[] = {
	{"rm", 2, "",
	 "leat rm: PATH is missing\n"
	 "  See: leat rm --help\n"},
	{"rm --frob file", 2, "",
	 "leat rm: unknown option '--frob'\n"
	 "  See: leat rm --help\n"},
	{"rm -x file", 2, "",
	 "leat rm: wrong options\n"
	 "  See: leat rm --help\n"},
	{"rm none", 1, "", "leat rm: cannot remove 'none': no such file or directory\n"},
	{"rm -f none", 0, "", ""},
	{"rm dir", 1, "", "leat rm: cannot remove 'dir': is a directory; give -r\n"},
	{"rm .", 1, "", "leat rm: cannot remove '.': '.' and '..' are not removed\n"},
	{"rm ..", 1, "", "leat rm: cannot remove '..': '.' and '..' are not removed\n"},
	{"rm /", 1, "", "leat rm: cannot remove '/': is the root of a file system\n"},
	{"rm -j x file", 2, "",
	 "leat rm: --jobs: 'x' is not a number up to 1024\n"
	 "  See: leat rm --help\n"},
	{"rm file/", 9, "", "leat rm: file/: Not a directory\n"},
	{"rm ''", 9, "", "leat rm: '': No such file or directory\n"},
};

static void rm_checks_its_arguments(void **state)
{
	(void)state;
	run_table(rm_rows, ARRAY_SIZE(rm_rows));
}

static const struct run_row du_rows[] = {
	{"du --frob", 2, "",
	 "leat du: unknown option '--frob'\n"
	 "  See: leat du --help\n"},
	{"du -x", 2, "",
	 "leat du: wrong options\n"
	 "  See: leat du --help\n"},
	{"du none", 1, "", "leat du: cannot read 'none': no such file or directory\n"},
	{"du -d x dir", 2, "",
	 "leat du: --max-depth: 'x' is not a number up to 4294967295\n"
	 "  See: leat du --help\n"},
	{"du -j 0 dir", 0,
	 "8\tdir/sub\n"
	 "20\tdir\n",
	 ""},
	{"du -s dir none", 1, "20\tdir\n",
	 "leat du: cannot read 'none': no such file or directory\n"},
};

static void du_checks_its_arguments(void **state)
{
	(void)state;
	run_table(du_rows, ARRAY_SIZE(du_rows));
}

static const struct run_row bench_rows[] = {
	{"bench", 2, "",
	 "leat bench: DIRECTORY is missing\n"
	 "  See: leat bench --help\n"},
	{"bench dir copies", 2, "",
	 "leat bench: too many arguments\n"
	 "  See: leat bench --help\n"},
	{"bench --frob dir", 2, "",
	 "leat bench: unknown option '--frob'\n"
	 "  See: leat bench --help\n"},
	{"bench --size 1K dir", 2, "",
	 "leat bench: --size must be 1M or more, the others at least 1\n"
	 "  See: leat bench --help\n"},
	{"bench --size x dir", 2, "",
	 "leat bench: --size: 'x' is not a size (4096, 64K, 1M, 2G)\n"
	 "  See: leat bench --help\n"},
	{"bench --files 0 dir", 2, "",
	 "leat bench: --size must be 1M or more, the others at least 1\n"
	 "  See: leat bench --help\n"},
	{"bench --jobs x dir", 2, "",
	 "leat bench: --jobs: 'x' is not a number up to 256\n"
	 "  See: leat bench --help\n"},
	{"bench --seconds 0 dir", 2, "",
	 "leat bench: --size must be 1M or more, the others at least 1\n"
	 "  See: leat bench --help\n"},
	{"bench none", 9, "", "leat bench: none: No such file or directory\n"},
	{"bench loader", 2, "",
	 "leat bench: --workload is missing: unet3d, resnet50 or cosmoflow\n"
	 "  See: leat bench loader --help\n"},
	{"bench loader x", 2, "",
	 "leat bench: unexpected argument 'x'\n"
	 "  See: leat bench loader --help\n"},
	{"bench loader --workload bert --data dir", 2, "",
	 "leat bench: --workload is unet3d, resnet50 or cosmoflow, not bert\n"
	 "  See: leat bench loader --help\n"},
	{"bench loader --workload unet3d", 2, "",
	 "leat bench: --data is missing: a directory or a data set\n"
	 "  See: leat bench loader --help\n"},
	{"bench loader --workload unet3d --data dir --keep", 2, "",
	 "leat bench: --keep is allowed only with --generate\n"
	 "  See: leat bench loader --help\n"},
	{"bench loader --workload unet3d --data dir --scale 0", 2, "",
	 "leat bench: --scale: '0' is not a number from 0.000001 to 10\n"
	 "  See: leat bench loader --help\n"},
	{"bench loader --workload unet3d --data dir --scale x", 2, "",
	 "leat bench: --scale: 'x' is not a number from 0.000001 to 10\n"
	 "  See: leat bench loader --help\n"},
	{"bench loader --workload unet3d --data dir --type tpu", 2, "",
	 "leat bench: --type is a100 or h100, not tpu\n"
	 "  See: leat bench loader --help\n"},
	{"bench loader --workload unet3d --data dir --accelerators 0", 2, "",
	 "leat bench: --accelerators must be at least 1\n"
	 "  See: leat bench loader --help\n"},
	{"bench loader --workload unet3d --data dir --steps 1", 2, "",
	 "leat bench: dir: an epoch has 0 steps, and 2 are needed\n"
	 "  Fewer --accelerators, or --generate with more --steps.\n"},
	{"bench loader --workload unet3d --data dir --plot none/w.svg", 9, "",
	 "leat bench: --plot: none/w.svg: No such file or directory\n"},
	{"bench loader --workload unet3d --data none", 2, "",
	 "leat bench: no connection to the metadata server of ~/none.conf: ~/none.conf: "
	 "No such file or directory. `leat config sample` prints every parameter; "
	 "LEAT_CONF, the conf argument, or leat --conf names another leat.conf.\n"
	 "  Is each address of [cluster] mds HOST:PORT, and does it go with [cluster] "
	 "transport and the devices of this machine? Does key_file hold a key?\n"},
	{"bench loader --frob", 2, "",
	 "leat bench: unknown option '--frob'\n"
	 "  See: leat bench loader --help\n"},
};

static void bench_checks_its_arguments(void **state)
{
	(void)state;
	run_table(bench_rows, ARRAY_SIZE(bench_rows));
}

static const struct run_row config_rows[] = {
	{"config", 2, "",
	 "leat config: give a verb: sample, show or check [FILE]\n"
	 "  See: leat config --help\n"},
	{"config frob", 2, "",
	 "leat config: give a verb: sample, show or check [FILE]\n"
	 "  See: leat config --help\n"},
	{"config sample x", 2, "",
	 "leat config: give a verb: sample, show or check [FILE]\n"
	 "  See: leat config sample --help\n"},
	{"config show x", 2, "",
	 "leat config: give a verb: sample, show or check [FILE]\n"
	 "  See: leat config show --help\n"},
	{"config check --frob", 2, "",
	 "leat config: unknown option '--frob'\n"
	 "  See: leat config check --help\n"},
	{"config check bad.conf", 2, "",
	 "leat config: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"config check none.conf", 2, "",
	 "leat config: none.conf: No such file or directory\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"config check --no-key good.conf", 0, "good\n", ""},
	{"config check --no-key good.conf good.conf", 0,
	 "good.conf: good\n"
	 "good.conf: good\n",
	 ""},
	{"config check good.conf", 2, "",
	 "leat config: cluster key ~/key: no such file or directory\n"
	 "  The key_file of [cluster] in leat.conf names it; all hosts have the same key.\n"},
	{"config check --no-key bad.conf good.conf", 2, "good.conf: good\n",
	 "leat config: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf config show", 2, "",
	 "leat config: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"},
	{"--json config check bad.conf", 2,
	 "{\"file\":\"bad.conf\",\"there\":true,\"good\":false,\"refusals\":[{\"message\":"
	 "\"bad.conf:2: unknown parameter 'no_such' in [cluster]\",\"hint\":\"`leat "
	 "config sample` prints every parameter with its "
	 "range.\",\"programs\":[\"leat-mds\",\"leat-ossd\",\"mount.leat\",\"leat "
	 "agent\"]}],\"error\":{\"exit\":2,\"message\":\"bad.conf:2: unknown parameter "
	 "'no_such' in [cluster]\",\"hint\":\"`leat config sample` prints every parameter "
	 "with its range.\"}}\n",
	 "leat config: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--json config check --no-key good.conf", 0,
	 "{\"file\":\"good.conf\",\"there\":true,\"good\":true,\"refusals\":[]}\n", ""},
};

static void config_checks_its_arguments(void **state)
{
	(void)state;
	run_table(config_rows, ARRAY_SIZE(config_rows));
}

static const struct run_row agent_rows[] = {
	{"agent x", 2, "",
	 "leat agent: too many arguments\n"
	 "  See: leat agent --help\n"},
	{"agent --frob", 2, "",
	 "leat agent: unknown option '--frob'\n"
	 "  See: leat agent --help\n"},
	{"agent --set", 2, "",
	 "leat agent: option '--set' needs a value, or is not allowed here\n"
	 "  See: leat agent --help\n"},
	{"agent --check-config bad.conf", 2, "",
	 "leat agent: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"},
	{"agent --check-config none.conf", 2, "",
	 "leat agent: none.conf: No such file or directory\n"},
	{"--conf bad.conf agent", 2, "",
	 "leat agent: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"--conf bad.conf agent --set dirs=~/copies --ready-file ~/ready", 2, "",
	 "leat agent: bad.conf:2: unknown parameter 'no_such' in [cluster]\n"
	 "  `leat config sample` prints every parameter with its range.\n"},
	{"agent --check-config --set jobs_max=3", 2, "",
	 "leat agent: ~/none.conf: No such file or directory\n"},
};

static void agent_checks_its_arguments(void **state)
{
	(void)state;
	run_table(agent_rows, ARRAY_SIZE(agent_rows));
}

static const struct run_row global_rows[] = {
	{"frobnicate", 2, "",
	 "leat: unknown command 'frobnicate'\n"
	 "  See: leat --help\n"},
	{"stat", 2, "",
	 "leat: unknown command 'stat': did you mean 'status'?\n"
	 "  See: leat --help\n"},
	{"--frob", 2, "",
	 "leat: unknown option '--frob'\n"
	 "  See: leat --help\n"},
	{"--conf", 2, "",
	 "leat: --conf needs a file name\n"
	 "  See: leat --help\n"},
	{"help frob", 2, "",
	 "leat: unknown command 'frob'\n"
	 "  See: leat --help\n"},
};

static void unknown_words_are_refused(void **state)
{
	(void)state;
	run_table(global_rows, ARRAY_SIZE(global_rows));
}

static const struct run_row json_rows[] = {
	{"--json status --frob", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"unknown option '--frob'\",\"hint\":\"See: "
	 "leat status --help\"}}\n",
	 "leat status: unknown option '--frob'\n"
	 "  See: leat status --help\n"},
	{"--json df --frob", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"unknown option '--frob'\",\"hint\":\"See: "
	 "leat df --help\"}}\n",
	 "leat df: unknown option '--frob'\n"
	 "  See: leat df --help\n"},
	{"--json layout get", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"get: PATH is missing\",\"hint\":\"See: "
	 "leat layout get --help\"}}\n",
	 "leat layout: get: PATH is missing\n"
	 "  See: leat layout get --help\n"},
	{"--json layout set --width x dir", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"--width: 'x' is not a number up to "
	 "65536\",\"hint\":\"See: leat layout set --help\"}}\n",
	 "leat layout: --width: 'x' is not a number up to 65536\n"
	 "  See: leat layout set --help\n"},
	{"--json quota frob", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"unknown verb 'frob'; give set, show, ls or "
	 "rm\",\"hint\":\"See: leat quota --help\"}}\n",
	 "leat quota: unknown verb 'frob'; give set, show, ls or rm\n"
	 "  See: leat quota --help\n"},
	{"--json export add x", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"'x' is not a network (10.1.0.0/16, "
	 "10.1.2.3, fd00:1::/32; no bits after the prefix)\",\"hint\":\"See: leat export "
	 "add --help\"}}\n",
	 "leat export: 'x' is not a network (10.1.0.0/16, 10.1.2.3, fd00:1::/32; no bits "
	 "after the prefix)\n"
	 "  See: leat export add --help\n"},
	{"--json scrub frob", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"give a verb: start, stop or "
	 "status\",\"hint\":\"See: leat scrub --help\"}}\n",
	 "leat scrub: give a verb: start, stop or status\n"
	 "  See: leat scrub --help\n"},
	{"--json fsck --window 0", 16,
	 "{\"error\":{\"exit\":16,\"message\":\"--window must be at least "
	 "1\",\"hint\":\"See: leat fsck --help\"}}\n",
	 "leat fsck: --window must be at least 1\n"
	 "  See: leat fsck --help\n"},
	{"--json --conf good.conf fsck", 8,
	 "{\"error\":{\"exit\":8,\"message\":\"cluster key ~/key: no such file or "
	 "directory\",\"hint\":\"The key_file of [cluster] in leat.conf names it; all "
	 "hosts have the same key.\"}}\n",
	 "leat fsck: cluster key ~/key: no such file or directory\n"
	 "  The key_file of [cluster] in leat.conf names it; all hosts have the same key.\n"},
	{"--json target drain x", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"target: 'x' is not a number up to "
	 "65536\",\"hint\":\"See: leat target drain --help\"}}\n",
	 "leat target: target: 'x' is not a number up to 65536\n"
	 "  See: leat target drain --help\n"},
	{"--json mount", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"MOUNTPOINT is missing\",\"hint\":\"See: "
	 "leat mount --help\"}}\n",
	 "leat mount: MOUNTPOINT is missing\n"
	 "  See: leat mount --help\n"},
	{"--json umount dir", 9,
	 "{\"error\":{\"exit\":9,\"message\":\"no Leat mount at dir\",\"hint\":\"`findmnt "
	 "-t fuse.leat` lists the mounts of this machine.\"}}\n",
	 "leat umount: no Leat mount at dir\n"
	 "  `findmnt -t fuse.leat` lists the mounts of this machine.\n"},
	{"--json cp file", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"FROM and TO are missing\",\"hint\":\"See: "
	 "leat cp --help\"}}\n",
	 "leat cp: FROM and TO are missing\n"
	 "  See: leat cp --help\n"},
	{"--json rm -x file", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"wrong options\",\"hint\":\"See: leat rm "
	 "--help\"}}\n",
	 "leat rm: wrong options\n"
	 "  See: leat rm --help\n"},
	{"--json du --frob", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"unknown option '--frob'\",\"hint\":\"See: "
	 "leat du --help\"}}\n",
	 "leat du: unknown option '--frob'\n"
	 "  See: leat du --help\n"},
	{"--json bench --size x dir", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"--size: 'x' is not a size (4096, 64K, 1M, "
	 "2G)\",\"hint\":\"See: leat bench --help\"}}\n",
	 "leat bench: --size: 'x' is not a size (4096, 64K, 1M, 2G)\n"
	 "  See: leat bench --help\n"},
	{"--json config frob", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"give a verb: sample, show or check "
	 "[FILE]\",\"hint\":\"See: leat config --help\"}}\n",
	 "leat config: give a verb: sample, show or check [FILE]\n"
	 "  See: leat config --help\n"},
	{"--json agent x", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"too many arguments\",\"hint\":\"See: leat "
	 "agent --help\"}}\n",
	 "leat agent: too many arguments\n"
	 "  See: leat agent --help\n"},
	{"--json frobnicate", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"unknown command "
	 "'frobnicate'\",\"hint\":\"See: leat --help\"}}\n",
	 "leat: unknown command 'frobnicate'\n"
	 "  See: leat --help\n"},
};

static void with_json_an_error_is_an_object(void **state)
{
	(void)state;
	run_table(json_rows, ARRAY_SIZE(json_rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mount_checks_its_arguments),
		cmocka_unit_test(umount_checks_its_arguments),
		cmocka_unit_test(cp_checks_its_arguments),
		cmocka_unit_test(rm_checks_its_arguments),
		cmocka_unit_test(du_checks_its_arguments),
		cmocka_unit_test(bench_checks_its_arguments),
		cmocka_unit_test(config_checks_its_arguments),
		cmocka_unit_test(agent_checks_its_arguments),
		cmocka_unit_test(unknown_words_are_refused),
		cmocka_unit_test(with_json_an_error_is_an_object),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
