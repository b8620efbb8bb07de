/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of `leat status`: clocks, memory and connections, printed from fixed reports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "tests/unit/tools/run.h"
#include "tools/clocks_view.h"
#include "tools/memory_view.h"
#include "tools/net_view.h"

/* Parses JSON that has ' for ". */
static json_t *parsed(const char *text)
{
	char copy[4096];
	json_error_t error;
	json_t *o;

	assert_true(strlen(text) < sizeof(copy));
	memcpy(copy, text, strlen(text) + 1);
	for (char *p = copy; *p; p++)
		if (*p == '\'')
			*p = '"';
	o = json_loads(copy, 0, &error);
	if (!o)
		print_error("%s: %s\n", text, error.text);
	assert_non_null(o);
	return o;
}

/* ---- clocks ---- */

static void clocks(void *arg)
{
	json_t *status = parsed(arg);

	clocks_print(status);
	json_decref(status);
}

static void clocks_that_agree_print_nothing(void **state)
{
	(void)state;
	assert_prints(clocks, "{}", "");
	assert_prints(clocks,
		      "{'targets':[{'id':1,'clock_ahead_ms':400,'clock_apart':false}],"
		      "'client_clocks':{'compared':3,'ahead':0,'behind':0,'apart':[]}}",
		      "");
}

static void a_clock_that_is_apart_has_a_line(void **state)
{
	(void)state;
	assert_prints(clocks,
		      "{'targets':[{'id':1,'clock_ahead_ms':5000,'clock_apart':true},"
		      "{'id':2,'clock_ahead_ms':10,'clock_apart':false}]}",
		      "clocks      target 1: 5.0 s ahead of the metadata server's clock\n"
		      "            Set the clocks named above, and keep the clocks of all "
		      "machines right (NTP).\n");
	assert_prints(clocks,
		      "{'targets':[{'id':3,'clock_ahead_ms':-90000000,'clock_apart':true},"
		      "{'id':2,'clock_ahead_ms':10,'clock_apart':false}]}",
		      "clocks      target 3: 1 day 1 h behind the metadata server's clock\n"
		      "            Set the clocks named above, and keep the clocks of all "
		      "machines right (NTP).\n");
}

static void clients_are_named_without_their_control_bytes(void **state)
{
	(void)state;
	assert_prints(clocks,
		      "{'client_clocks':{'compared':9,'ahead':1,'behind':1,'apart':["
		      "{'name':'n1:\\u001b[31m77','clock_ahead_ms':61000},"
		      "{'name':'','clock_ahead_ms':-3000}]}}",
		      "clocks      client n1:?[31m77: 1 min 1 s ahead of the metadata server's "
		      "clock\n"
		      "            client without a name: 3.0 s behind the metadata server's "
		      "clock\n"
		      "            Set the clocks named above, and keep the clocks of all "
		      "machines right (NTP).\n");
	assert_prints(clocks,
		      "{'client_clocks':{'compared':90,'ahead':31,'behind':0,'apart':["
		      "{'name':'a','clock_ahead_ms':2000}]}}",
		      "clocks      client a: 2.0 s ahead of the metadata server's clock\n"
		      "            and 30 other clients\n"
		      "            Set the clocks named above, and keep the clocks of all "
		      "machines right (NTP).\n");
}

static void with_all_on_one_side_the_server_is_wrong(void **state)
{
	(void)state;
	assert_prints(clocks,
		      "{'targets':[{'id':1,'clock_ahead_ms':5000,'clock_apart':true},"
		      "{'id':2,'clock_ahead_ms':5000,'clock_apart':true}]}",
		      "clocks      target 1: 5.0 s ahead of the metadata server's clock\n"
		      "            target 2: 5.0 s ahead of the metadata server's clock\n"
		      "            The metadata server's own clock is probably the wrong one: "
		      "set it (NTP).\n");
	/* A single target may itself be wrong. */
	assert_prints(clocks, "{'targets':[{'id':1,'clock_ahead_ms':5000,'clock_apart':true}]}",
		      "clocks      target 1: 5.0 s ahead of the metadata server's clock\n"
		      "            Set the clocks named above, and keep the clocks of all "
		      "machines right (NTP).\n");
}

static void many_clocks_are_counted(void **state)
{
	(void)state;
	assert_prints(clocks,
		      "{'targets':["
		      "{'id':1,'clock_ahead_ms':5000,'clock_apart':true},"
		      "{'id':2,'clock_ahead_ms':-5000,'clock_apart':true},"
		      "{'id':3,'clock_ahead_ms':5000,'clock_apart':true},"
		      "{'id':4,'clock_ahead_ms':5000,'clock_apart':true},"
		      "{'id':5,'clock_ahead_ms':5000,'clock_apart':true},"
		      "{'id':6,'clock_ahead_ms':5000,'clock_apart':true},"
		      "{'id':7,'clock_ahead_ms':5000,'clock_apart':true},"
		      "{'id':8,'clock_ahead_ms':5000,'clock_apart':true},"
		      "{'id':9,'clock_ahead_ms':5000,'clock_apart':true},"
		      "{'id':10,'clock_ahead_ms':5000,'clock_apart':true}]}",
		      "clocks      target 1: 5.0 s ahead of the metadata server's clock\n"
		      "            target 2: 5.0 s behind the metadata server's clock\n"
		      "            target 3: 5.0 s ahead of the metadata server's clock\n"
		      "            target 4: 5.0 s ahead of the metadata server's clock\n"
		      "            target 5: 5.0 s ahead of the metadata server's clock\n"
		      "            target 6: 5.0 s ahead of the metadata server's clock\n"
		      "            target 7: 5.0 s ahead of the metadata server's clock\n"
		      "            target 8: 5.0 s ahead of the metadata server's clock\n"
		      "            and 2 others\n"
		      "            Set the clocks named above, and keep the clocks of all "
		      "machines right (NTP).\n");
}

static void only_targets_make_a_cluster_ill(void **state)
{
	json_t *o = parsed("{'targets':[{'id':1,'clock_apart':false}],"
			   "'client_clocks':{'compared':1,'ahead':1,'apart':[{'name':'a'}]}}");

	(void)state;
	assert_false(clocks_apart(o));
	json_object_set_new(json_array_get(json_object_get(o, "targets"), 0), "clock_apart",
			    json_true());
	assert_true(clocks_apart(o));
	json_decref(o);
	assert_false(clocks_apart(NULL));
}

static void a_target_gets_its_clock(void **state)
{
	json_t *o = parsed("{'targets':[{'id':1,'clock_ahead_ms':7,'clock_bound_ms':2,"
			   "'clock_apart':false,'other':1},{'id':2}]}");
	json_t *one = json_object(), *two = json_object(), *expected;

	(void)state;
	clocks_add(o, 1, one);
	clocks_add(o, 2, two);
	expected = parsed("{'clock_ahead_ms':7,'clock_bound_ms':2,'clock_apart':false}");
	assert_true(json_equal(one, expected));
	assert_int_equal(json_object_size(two), 0);
	json_decref(expected);
	json_decref(one);
	json_decref(two);
	json_decref(o);
}

/* ---- memory ---- */

static void memory(void *arg)
{
	struct target_view targets[2] = {
		{.id = 4,
		 .status = parsed("{'memory':{'parts':[{'name':'chunk index','used':"
				  "10485760,'max':104857600}],'heap_other':1048576,"
				  "'heap_free':524288,'buffers':0,'stacks':2097152,"
				  "'program':3145728,'resident':17301504}}")},
		{.id = 5, .status = NULL},
	};
	struct cluster c = {
		.mds_status = parsed("{'memory':{'parts':[{'name':'inodes','used':1048576,'max':0},"
				     "{'name':'store','used':2621440,'max':134217728}],"
				     "'resident':9437184}}"),
		.targets = targets,
		.n_targets = ARRAY_SIZE(targets),
	};
	json_t *mount = arg ? parsed(arg) : NULL;

	memory_print(&c, mount);
	json_decref(mount);
	json_decref(c.mds_status);
	json_decref(targets[0].status);
}

static void memory_is_a_table_for_each_process(void **state)
{
	(void)state;
	assert_prints(memory, NULL,
		      "\n"
		      "MDS                                        MIB     LIMIT\n"
		      "  inodes                                   1.0\n"
		      "  store                                    2.5     128.0\n"
		      "  other parts of the heap                  0.0\n"
		      "  heap that is free, and kept              0.0\n"
		      "  buffers for data                         0.0\n"
		      "  stacks, rings and pools                  0.0\n"
		      "  program and libraries                    0.0\n"
		      "  resident                                 9.0\n"
		      "\n"
		      "TARGET 4                                   MIB     LIMIT\n"
		      "  chunk index                             10.0     100.0\n"
		      "  other parts of the heap                  1.0\n"
		      "  heap that is free, and kept              0.5\n"
		      "  buffers for data                         0.0\n"
		      "  stacks, rings and pools                  2.0\n"
		      "  program and libraries                    3.0\n"
		      "  resident                                16.5\n");
	assert_prints(memory,
		      "{'memory':{'parts':[{'name':'slots','used':33554432,'max':134217728}],"
		      "'resident':41943040}}",
		      "\n"
		      "MDS                                        MIB     LIMIT\n"
		      "  inodes                                   1.0\n"
		      "  store                                    2.5     128.0\n"
		      "  other parts of the heap                  0.0\n"
		      "  heap that is free, and kept              0.0\n"
		      "  buffers for data                         0.0\n"
		      "  stacks, rings and pools                  0.0\n"
		      "  program and libraries                    0.0\n"
		      "  resident                                 9.0\n"
		      "\n"
		      "TARGET 4                                   MIB     LIMIT\n"
		      "  chunk index                             10.0     100.0\n"
		      "  other parts of the heap                  1.0\n"
		      "  heap that is free, and kept              0.5\n"
		      "  buffers for data                         0.0\n"
		      "  stacks, rings and pools                  2.0\n"
		      "  program and libraries                    3.0\n"
		      "  resident                                16.5\n"
		      "\n"
		      "MOUNT                                      MIB     LIMIT\n"
		      "  slots                                   32.0     128.0\n"
		      "  other parts of the heap                  0.0\n"
		      "  heap that is free, and kept              0.0\n"
		      "  buffers for data                         0.0\n"
		      "  stacks, rings and pools                  0.0\n"
		      "  program and libraries                    0.0\n"
		      "  resident                                40.0\n");
	assert_prints(memory, "{'older':1}",
		      "\n"
		      "MDS                                        MIB     LIMIT\n"
		      "  inodes                                   1.0\n"
		      "  store                                    2.5     128.0\n"
		      "  other parts of the heap                  0.0\n"
		      "  heap that is free, and kept              0.0\n"
		      "  buffers for data                         0.0\n"
		      "  stacks, rings and pools                  0.0\n"
		      "  program and libraries                    0.0\n"
		      "  resident                                 9.0\n"
		      "\n"
		      "TARGET 4                                   MIB     LIMIT\n"
		      "  chunk index                             10.0     100.0\n"
		      "  other parts of the heap                  1.0\n"
		      "  heap that is free, and kept              0.5\n"
		      "  buffers for data                         0.0\n"
		      "  stacks, rings and pools                  2.0\n"
		      "  program and libraries                    3.0\n"
		      "  resident                                16.5\n");
}

/* ---- connections ---- */

static void transport(void *arg)
{
	json_t *o = parsed(arg);

	net_print_transport(o);
	json_decref(o);
}

static void net(void *arg)
{
	json_t *o = arg ? parsed(arg) : NULL;

	net_print("mount /mnt/leat", o);
	json_decref(o);
}

static void the_transport_says_why_it_is_not_verbs(void **state)
{
	(void)state;
	assert_prints(transport,
		      "{'mode':'auto','tcp':true,'verbs':false,'why_not_verbs':'no device'}",
		      "transport   auto: tcp; not verbs: no device\n");
	assert_prints(transport, "{'mode':'auto','tcp':true,'verbs':true,'devices':'mlx5_0'}",
		      "transport   auto: verbs (mlx5_0), tcp\n");
	assert_prints(transport, "{'mode':'verbs','tcp':false,'verbs':true,'devices':'a, b'}",
		      "transport   verbs: verbs (a, b)\n");
}

static void connections_are_a_table(void **state)
{
	(void)state;
	assert_prints(net, NULL,
		      "\n"
		      "mount /mnt/leat: does not report its connections\n");
	assert_prints(net, "{'total':0}",
		      "\n"
		      "mount /mnt/leat: does not report its connections\n");
	assert_prints(net, "{'total':0,'listed':0,'connections':[]}",
		      "\n"
		      "mount /mnt/leat: 0 connections\n");
	assert_prints(net,
		      "{'total':2,'listed':2,'connections':["
		      "{'to':'mds','transport':'tcp','state':'up','in_per_s':10,'out_per_s':2048,"
		      "'in_flight':1,'credit_stalls':0,'queue_stalls':2,'repeated':3,'rail':0,"
		      "'copied_bytes':1048576,'age_s':61.4,'addr':'10.0.0.1:7440'},"
		      "{'to':'target 3','transport':'verbs','device':'mlx5_0','port':1,'state':"
		      "'connecting','why':'no answer','addr':'10.0.0.2:7550'}]}",
		      "\n"
		      "mount /mnt/leat: 2 connections\n"
		      "TO               BY     DEVICE     RAIL       IN/S      OUT/S  FLIGHT  "
		      "STALLS REPEAT     COPIED   SINCE  ADDRESS\n"
		      "mds              tcp    -             0       10 B    2.0 KiB       1   "
		      "    2      3    1.0 MiB      61  10.0.0.1:7440\n"
		      "target 3         verbs  mlx5_0/1      -        0 B        0 B       0   "
		      "    0      -        0 B       0  10.0.0.2:7550  connecting: no answer\n");
	/* From a server, which reports less, and has more connections than it lists. */
	assert_prints(net,
		      "{'total':500,'listed':1,'connections':["
		      "{'to':'client','state':'up','addr':'10.0.0.9:1'}]}",
		      "\n"
		      "mount /mnt/leat: 500 connections\n"
		      "TO               BY     DEVICE     RAIL       IN/S      OUT/S  FLIGHT  "
		      "STALLS REPEAT     COPIED   SINCE  ADDRESS\n"
		      "client           -      -             -        0 B        0 B       0   "
		      "    0      -        0 B       0  10.0.0.9:1\n"
		      "and 499 more\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clocks_that_agree_print_nothing),
		cmocka_unit_test(a_clock_that_is_apart_has_a_line),
		cmocka_unit_test(clients_are_named_without_their_control_bytes),
		cmocka_unit_test(with_all_on_one_side_the_server_is_wrong),
		cmocka_unit_test(many_clocks_are_counted),
		cmocka_unit_test(only_targets_make_a_cluster_ill),
		cmocka_unit_test(a_target_gets_its_clock),
		cmocka_unit_test(memory_is_a_table_for_each_process),
		cmocka_unit_test(the_transport_says_why_it_is_not_verbs),
		cmocka_unit_test(connections_are_a_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
