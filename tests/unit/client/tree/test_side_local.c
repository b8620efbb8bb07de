/* SPDX-License-Identifier: Apache-2.0 */
/* The local side links the file that was made, and no other one in its place. */
#include "client/tree/side_local.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/rt/loop.h"
#include "tests/lib/folder.h"
#include "tests/unit/common/rt/rt_test.h"

static void make_links(void *arg)
{
	char folder[FOLDER_MAX], path[FOLDER_MAX + 8], name[LEAT_NAME_MAX + 1];
	struct tdir top = {0}, dir = {0};
	struct tlink to = {.top = &dir, .path = "a"};
	struct side *side;
	struct tattr a;

	(void)arg;
	make_folder(NULL, "side", folder);
	snprintf(path, sizeof(path), "%s/a", folder);
	close(open(path, O_CREAT | O_WRONLY, 0644));
	assert_int_equal(side_local_create(loop_env(loop_self()), 022, &side), 0);
	assert_int_equal(side->ops->at(side, folder, &top, name), 0);
	assert_int_equal(side->ops->look(&top, name, &a), 0);
	assert_int_equal(side->ops->open(&top, name, &a, &dir), 0);
	assert_int_equal(side->ops->look(&dir, "a", &a), 0);
	to.ino = a.ino;
	to.dev = a.dev + 1; /* a file of the same number on another device */
	assert_int_equal(side->ops->link(&dir, "b", &to), -LE_STALE);
	to.dev = a.dev;
	to.ino = a.ino + 1;
	assert_int_equal(side->ops->link(&dir, "b", &to), -LE_STALE);
	to.ino = a.ino;
	assert_int_equal(side->ops->link(&dir, "b", &to), 0);
	assert_int_equal(side->ops->look(&dir, "b", &a), 0);
	assert_int_equal(a.ino, to.ino);
	assert_int_equal(a.nlink, 2);
	tdir_close(&dir);
	tdir_close(&top);
	side_destroy(side);
	remove_folder(folder);
}

static void a_link_is_made_to_one_file_only(void **state)
{
	(void)state;
	rt_run(make_links, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_link_is_made_to_one_file_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
