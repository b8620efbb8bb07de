/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of `leat stage` and `leat dataset`: every verb, and every value of an option. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "tests/unit/tools/run.h"

static const struct run_row stage_rows[] = {
	{"stage", 2, "",
	 "leat stage: give a verb: in, out, plan, wait, status, ls, path, verify, pin, "
	 "unpin, lease, release, evict, gc, cancel, where or events\n"
	 "  See: leat stage --help\n"},
	{"stage frob", 2, "",
	 "leat stage: unknown verb 'frob'\n"
	 "  See: leat stage --help\n"},
	{"stage in", 2, "",
	 "leat stage: in: an argument is missing\n"
	 "  See: leat stage in --help\n"},
	{"stage in a b", 2, "",
	 "leat stage: in: too many arguments\n"
	 "  See: leat stage in --help\n"},
	{"stage in --to copies dir", 2, "",
	 "leat stage: --to copies: an absolute path is needed\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir", 2, "",
	 "leat stage: in: --to DIRECTORY (or $LEAT_STAGE_DIR) is missing\n"
	 "  See: leat stage in --help\n"},
	{"stage in none/none --to ~/copies", 9, "",
	 "leat stage: none/none: No such file or directory\n"
	 "  A directory that is not mounted here is written leat:/PATH.\n"},
	{"stage in dir --to ~/none/deep", 9, "",
	 "leat stage: --to ~/none/deep: ~/none: No such file or directory\n"
	 "  Is its disk mounted? Only the last folder of the stage directory is created.\n"},
	{"stage in dir --to ~/copies --capacity x", 2, "",
	 "leat stage: --capacity: 'x' is not a size (4096, 64K, 1M, 2G)\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --timeout x", 2, "",
	 "leat stage: --timeout: 'x' is not a number up to 4000000\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --window x", 2, "",
	 "leat stage: --window: 'x' is not a size (4096, 64K, 1M, 2G)\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --max-rate x", 2, "",
	 "leat stage: --max-rate: 'x' is not a size (4096, 64K, 1M, 2G)\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --ttl x", 2, "",
	 "leat stage: --ttl: 'x' is not a number up to 4000000000\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --verify all", 2, "",
	 "leat stage: --verify is memory or readback, not 'all'\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --wait long", 2, "",
	 "leat stage: --wait is ready, first-window or none, not 'long'\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --progress loud", 2, "",
	 "leat stage: --progress is auto, plain, json or none, not 'loud'\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --scheduler lsf", 2, "",
	 "leat stage: --scheduler is slurm-prolog, sge or pbs, not 'lsf'\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --placement here", 2, "",
	 "leat stage: --placement is auto, replicate, spread, spread:N or partition, not "
	 "'here'\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --placement spread:0", 2, "",
	 "leat stage: --placement is auto, replicate, spread, spread:N or partition, not "
	 "'spread:0'\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --placement spread:2", 2, "",
	 "leat stage: --placement needs --nodes\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --skip links,frob", 2, "",
	 "leat stage: --skip: links, special or links,special, not 'links,frob'\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --free 1G", 2, "",
	 "leat stage: in has no option --free\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --frob", 2, "",
	 "leat stage: unknown option '--frob': did you mean --free?\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/copies --scheduler slurm-prolog --order frob", 0, "",
	 "leat stage: refused: frob: the order is written "
	 "seed=N,batch=N,world=N,rank=N-N,epoch=N,mode=MODE; world divides batch\n"
	 "  NAME@VERSION of a data set, or a directory: /PATH, leat:/PATH; `leat stage "
	 "--help` says more.\n"},
	{"stage in dir --to ~/copies --together 2", 2, "",
	 "leat stage: --together stages only from the namespace\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --nodes n1", 2, "",
	 "leat stage: agents stage only from the namespace: give leat:/DIRECTORY or a "
	 "data set\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --nodes n[ --to ~/copies", 2, "",
	 "leat stage: agents stage only from the namespace: give leat:/DIRECTORY or a "
	 "data set\n"
	 "  See: leat stage in --help\n"},
	{"stage in leat:/x --nodes @none", 2, "",
	 "leat stage: --nodes: none: no such file or directory\n"
	 "leat stage: --nodes: no such file or directory\n"
	 "  See: leat stage in --help\n"},
	{"stage in leat:/x --together @ --to ~/copies", 2, "",
	 "leat stage: --together: this process belongs to no job of Slurm, PBS or Grid "
	 "Engine\n"
	 "  See: leat stage in --help\n"},
	{"stage in leat:/x --together 2 --nodes n1 --to ~/copies", 2, "",
	 "leat stage: --together needs --to and excludes --nodes, --agent and --wait\n"
	 "  See: leat stage in --help\n"},
	{"stage in leat:/x --unpack --nodes n1 --placement spread", 2, "",
	 "leat stage: --placement cannot be combined with --unpack\n"
	 "  See: leat stage in --help\n"},
	{"stage in dir --to ~/1 --to ~/2 --to ~/3 --to ~/4 --to ~/5 --to ~/6 "
	 "--to ~/7 --to ~/8 --to ~/9",
	 2, "",
	 "leat stage: --to: at most 8 directories\n"
	 "  See: leat stage in --help\n"},
	{"stage out", 2, "",
	 "leat stage: out: an argument is missing\n"
	 "  See: leat stage out --help\n"},
	{"stage out dir", 2, "",
	 "leat stage: out: an argument is missing\n"
	 "  See: leat stage out --help\n"},
	{"stage out none ~/x", 9, "", "leat stage: none: No such file or directory\n"},
	{"stage out dir frob", 2, "",
	 "leat stage: out: frob: give DIRECTORY/NAME or leat:/DIRECTORY/NAME\n"
	 "  See: leat stage out --help\n"},
	{"stage out dir /", 2, "",
	 "leat stage: out: /: give DIRECTORY/NAME or leat:/DIRECTORY/NAME\n"
	 "  See: leat stage out --help\n"},
	{"stage out dir --to x y", 2, "",
	 "leat stage: out has no option --to\n"
	 "  See: leat stage out --help\n"},
	{"stage plan dir", 2, "",
	 "leat stage: plan: --to DIRECTORY (or $LEAT_STAGE_DIR) is missing\n"
	 "  See: leat stage plan --help\n"},
	{"stage plan none/none --to ~/copies", 9, "",
	 "leat stage: none/none: No such file or directory\n"
	 "  A directory that is not mounted here is written leat:/PATH.\n"},
	{"stage wait --to ~/copies", 2, "",
	 "leat stage: wait: an argument is missing\n"
	 "  See: leat stage wait --help\n"},
	{"stage wait x@v1 --to ~/copies --timeout 1", 4, "",
	 "leat stage: x@v1: timed out\n"
	 "  `leat stage status` shows the state of the copy.\n"},
	{"stage wait x@v1 --to ~/copies --timeout x", 2, "",
	 "leat stage: --timeout: 'x' is not a number up to 4000000\n"
	 "  See: leat stage wait --help\n"},
	{"stage status", 2, "",
	 "leat stage: status: --to DIRECTORY (or $LEAT_STAGE_DIR) is missing\n"
	 "  See: leat stage status --help\n"},
	{"stage status x@v1 --to ~/copies", 9, "",
	 "leat stage: x@v1: no such data set, and no copy of it\n"
	 "  `leat dataset ls` shows the data sets; if files have changed, create a new "
	 "version.\n"},
	{"stage status --to ~/copies", 0,
	 "STATE       DONE       SIZE    FILES  ID            OF\n", ""},
	{"stage status --to ~/copies --lease j", 2, "",
	 "leat stage: status has no option --lease\n"
	 "  See: leat stage status --help\n"},
	{"stage ls", 2, "",
	 "leat stage: ls: --to DIRECTORY (or $LEAT_STAGE_DIR) is missing\n"
	 "  See: leat stage ls --help\n"},
	{"stage ls x --to ~/copies", 2, "",
	 "leat stage: ls: too many arguments\n"
	 "  See: leat stage ls --help\n"},
	{"stage ls --to ~/copies", 0, "STATE       DONE       SIZE    FILES  ID            OF\n",
	 ""},
	{"--json stage ls --to ~/copies", 0, "{\"copies\":[]}\n", ""},
	{"stage path --to ~/copies", 2, "",
	 "leat stage: path: an argument is missing\n"
	 "  See: leat stage path --help\n"},
	{"stage path x@v1 --to ~/copies", 9, "",
	 "leat stage: x@v1: no such data set, and no copy of it\n"
	 "  `leat dataset ls` shows the data sets; if files have changed, create a new "
	 "version.\n"},
	{"stage path zzz --to ~/copies", 9, "",
	 "leat stage: zzz: no such data set, and no copy of it\n"
	 "  `leat dataset ls` shows the data sets; if files have changed, create a new "
	 "version.\n"},
	{"stage verify x@v1 --to ~/copies", 3, "",
	 "leat stage: not ready yet: x@v1: no such copy: no such file or directory\n"},
	{"stage pin x@v1 --to ~/copies", 9, "",
	 "leat stage: x@v1: no such data set, and no copy of it\n"
	 "  `leat dataset ls` shows the data sets; if files have changed, create a new "
	 "version.\n"},
	{"stage unpin x@v1 --to ~/copies", 9, "",
	 "leat stage: x@v1: no such data set, and no copy of it\n"
	 "  `leat dataset ls` shows the data sets; if files have changed, create a new "
	 "version.\n"},
	{"stage evict x@v1 --to ~/copies", 9, "",
	 "leat stage: x@v1: no such data set, and no copy of it\n"
	 "  `leat dataset ls` shows the data sets; if files have changed, create a new "
	 "version.\n"},
	{"stage cancel x@v1 --to ~/copies", 9, "", "leat stage: no process is making x@v1\n"},
	{"stage lease x@v1 --to ~/copies", 2, "",
	 "leat stage: --lease JOB is missing\n"
	 "  See: leat stage lease --help\n"},
	{"stage lease x@v1 --to ~/copies --lease j", 9, "",
	 "leat stage: x@v1: no such data set, and no copy of it\n"
	 "  `leat dataset ls` shows the data sets; if files have changed, create a new "
	 "version.\n"},
	{"stage release --to ~/copies", 2, "",
	 "leat stage: --lease JOB is missing\n"
	 "  See: leat stage release --help\n"},
	{"stage release --to ~/copies --lease j", 9, "",
	 "leat stage: job j has no lease on these copies\n"},
	{"stage release x@v1 --to ~/copies --lease j", 9, "",
	 "leat stage: job j has no lease on these copies\n"},
	{"stage gc --to ~/copies --free x", 2, "",
	 "leat stage: --free: 'x' is not a size (4096, 64K, 1M, 2G)\n"
	 "  See: leat stage gc --help\n"},
	{"stage where a b", 2, "",
	 "leat stage: where: too many arguments\n"
	 "  See: leat stage where --help\n"},
	{"stage events --to ~/copies", 0, "", ""},
};

static void stage_checks_its_arguments(void **state)
{
	(void)state;
	run_table(stage_rows, ARRAY_SIZE(stage_rows));
}

static const struct run_row dataset_rows[] = {
	{"dataset", 2, "",
	 "leat dataset: give a verb: create, ls, show, seal or rm\n"
	 "  See: leat dataset --help\n"},
	{"dataset frob", 2, "",
	 "leat dataset: unknown verb 'frob'\n"
	 "  See: leat dataset --help\n"},
	{"dataset create", 2, "",
	 "leat dataset: create needs 2 arguments, not 0\n"
	 "  See: leat dataset create --help\n"},
	{"dataset create a@v1", 2, "",
	 "leat dataset: create needs 2 arguments, not 1\n"
	 "  See: leat dataset create --help\n"},
	{"dataset create a@v1 dir", 2, "",
	 "leat dataset: dir is not on a Leat mount; give --catalog DIRECTORY\n"
	 "  See: leat dataset create --help\n"},
	{"dataset create a@v1 none/none --catalog ~/copies", 9, "",
	 "leat dataset: none/none: No such file or directory\n"
	 "  A directory that is not mounted here is written leat:/PATH.\n"},
	{"dataset create --format frob a@v1 dir --catalog ~/copies", 2, "",
	 "leat dataset: refused: ~/dir: no format 'frob': tar, tfrecord, mds, ffrecord, "
	 "npz, npy, fixed:BYTES, fixed:BYTES+HEADER or files\n"
	 "  NAME@VERSION of a data set, or a directory: /PATH, leat:/PATH; `leat stage "
	 "--help` says more.\n"},
	{"dataset create --skip frob a@v1 dir --catalog ~/copies", 2, "",
	 "leat dataset: --skip: links, special or links,special, not 'frob'\n"
	 "  See: leat dataset create --help\n"},
	{"dataset create a@v1 leat:/x --catalog ~/copies", 2, "",
	 "leat dataset: data set and catalogue must both be local or both in the namespace\n"
	 "  See: leat dataset create --help\n"},
	{"dataset create --frob a@v1 dir", 2, "",
	 "leat dataset: unknown option '--frob'\n"
	 "  See: leat dataset create --help\n"},
	{"dataset ls x", 2, "",
	 "leat dataset: ls needs 0 arguments, not 1\n"
	 "  See: leat dataset ls --help\n"},
	{"dataset ls --catalog ~/copies", 0,
	 "DATA SET                       SIZE    FILES    SAMPLES FORM   ID            "
	 "MADE              BY                    SOURCE\n",
	 ""},
	{"--json dataset ls --catalog ~/copies", 0, "{\"datasets\":[]}\n", ""},
	{"dataset ls --format tar", 2, "",
	 "leat dataset: ls: wrong options\n"
	 "  See: leat dataset ls --help\n"},
	{"dataset show", 2, "",
	 "leat dataset: show needs 1 arguments, not 0\n"
	 "  See: leat dataset show --help\n"},
	{"dataset show a@v1 --catalog ~/copies", 9, "",
	 "leat dataset: a@v1: no such data set, and no copy of it\n"
	 "  `leat dataset ls` shows the data sets; if files have changed, create a new "
	 "version.\n"},
	{"dataset show a@@v1 --catalog ~/copies", 2, "",
	 "leat dataset: a@@v1 is not a name of a data set\n"
	 "  NAME@VERSION of letters, digits, . _ and -; or 6 digits of an id that `leat "
	 "stage ls` shows.\n"},
	{"dataset seal a@v1 --catalog ~/copies", 2, "",
	 "leat dataset: only files of a Leat namespace can be sealed\n"
	 "  See: leat dataset seal --help\n"},
	{"dataset seal", 2, "",
	 "leat dataset: seal needs 1 arguments, not 0\n"
	 "  See: leat dataset seal --help\n"},
	{"dataset rm", 2, "",
	 "leat dataset: rm needs 1 arguments, not 0\n"
	 "  See: leat dataset rm --help\n"},
	{"dataset rm a@v1 --catalog ~/copies", 9, "",
	 "leat dataset: a@v1: no such data set, and no copy of it\n"
	 "  `leat dataset ls` shows the data sets; if files have changed, create a new "
	 "version.\n"},
};

static void dataset_checks_its_arguments(void **state)
{
	(void)state;
	run_table(dataset_rows, ARRAY_SIZE(dataset_rows));
}

static const struct run_row json_rows[] = {
	{"--json stage frob", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"unknown verb 'frob'\",\"hint\":\"See: leat "
	 "stage --help\"}}\n",
	 "leat stage: unknown verb 'frob'\n"
	 "  See: leat stage --help\n"},
	{"--json stage in", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"in: an argument is "
	 "missing\",\"hint\":\"See: leat stage in --help\"}}\n",
	 "leat stage: in: an argument is missing\n"
	 "  See: leat stage in --help\n"},
	{"--json stage in dir --to ~/copies --verify all", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"--verify is memory or readback, not "
	 "'all'\",\"hint\":\"See: leat stage in --help\"}}\n",
	 "leat stage: --verify is memory or readback, not 'all'\n"
	 "  See: leat stage in --help\n"},
	{"--json dataset frob", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"unknown verb 'frob'\",\"hint\":\"See: leat "
	 "dataset --help\"}}\n",
	 "leat dataset: unknown verb 'frob'\n"
	 "  See: leat dataset --help\n"},
	{"--json dataset create", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"create needs 2 arguments, not "
	 "0\",\"hint\":\"See: leat dataset create --help\"}}\n",
	 "leat dataset: create needs 2 arguments, not 0\n"
	 "  See: leat dataset create --help\n"},
	{"--json dataset show a@@v1 --catalog ~/copies", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"a@@v1 is not a name of a data "
	 "set\",\"hint\":\"NAME@VERSION of letters, digits, . _ and -; or 6 digits of an "
	 "id that `leat stage ls` shows.\"}}\n",
	 "leat dataset: a@@v1 is not a name of a data set\n"
	 "  NAME@VERSION of letters, digits, . _ and -; or 6 digits of an id that `leat "
	 "stage ls` shows.\n"},
	{"--json stage path zzz --to ~/copies", 9,
	 "{\"error\":{\"exit\":9,\"message\":\"zzz: no such data set, and no copy of "
	 "it\",\"hint\":\"`leat dataset ls` shows the data sets; if files have changed, "
	 "create a new version.\"}}\n",
	 "leat stage: zzz: no such data set, and no copy of it\n"
	 "  `leat dataset ls` shows the data sets; if files have changed, create a new "
	 "version.\n"},
	{"--json stage out dir frob", 2,
	 "{\"error\":{\"exit\":2,\"message\":\"out: frob: give DIRECTORY/NAME or "
	 "leat:/DIRECTORY/NAME\",\"hint\":\"See: leat stage out --help\"}}\n",
	 "leat stage: out: frob: give DIRECTORY/NAME or leat:/DIRECTORY/NAME\n"
	 "  See: leat stage out --help\n"},
};

static void with_json_an_error_is_an_object(void **state)
{
	(void)state;
	run_table(json_rows, ARRAY_SIZE(json_rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stage_checks_its_arguments),
		cmocka_unit_test(dataset_checks_its_arguments),
		cmocka_unit_test(with_json_an_error_is_an_object),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
