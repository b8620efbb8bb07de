/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fuse/rig.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/hmap.h"
#include "common/base/log.h"
#include "common/rt/env.h"
#include "common/rt/env_real.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/kernel/kernel_size.h"
#include "fuse/kernel/kernel_size_helper.h"
#include "fuse/kernel/request_loop.h"
#include "fuse/ops/handlers.h"
#include "fuse/restart/handle_table.h"

/* What Linux 6.9 offers in INIT, as far as a mount uses it: flags up to FUSE_INIT_EXT, and of the
 * second word FUSE_HAS_EXPIRE_ONLY, FUSE_DIRECT_IO_ALLOW_MMAP and FUSE_HAS_RESEND. */
#define LINUX_6_9 (0x7fffffffull | 1ull << 35 | 1ull << 36 | 1ull << 39)
#define END_MS    5000u

struct rig rig;
static struct restart *restart;
static struct env *env;
static struct loop *loop;

/* ---- the helper process ---- */

#define HELPER_ENV     "LEAT_TEST_HELPER_FD"
#define HELPER_LOOK_US 500u

struct rig_helper *rig_helper;

static void helper_map(int fd)
{
	rig_helper = mmap(NULL, sizeof(*rig_helper), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(rig_helper != MAP_FAILED);
}

/* The daemon had stopped waiting when this process began. */
static bool is_given_up(void)
{
	struct pollfd p = {.fd = STDOUT_FILENO};

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP));
}

static bool answer_one(void)
{
	struct probe_file file;
	struct probe_answer a;
	uint32_t n;

	if (read(STDOUT_FILENO, &file, sizeof(file)) != sizeof(file) || is_given_up())
		return false;
	rig_helper->pid = getpid();
	rig_helper->node = file.node;
	rig_helper->end = file.end;
	n = ++rig_helper->n_asked;
	while (rig_helper->n_answers < n && getppid() != 1)
		usleep(HELPER_LOOK_US);
	if (rig_helper->dies)
		return false;
	a = (struct probe_answer){rig_helper->size, rig_helper->uid, rig_helper->gid,
				  rig_helper->err};
	return write(STDOUT_FILENO, &a, sizeof(a)) == sizeof(a) && write(STDOUT_FILENO, "", 1) == 1;
}

/* Before main: the helper process must not run the tests. */
static __attribute__((constructor)) void be_helper(int argc, char **argv)
{
	if (argc != 3 || strcmp(argv[1], PROBE_SIZE) != 0)
		return;
	if (getenv(HELPER_ENV) == NULL)
		_exit(1);
	helper_map(atoi(getenv(HELPER_ENV)));
	while (answer_one())
		;
	_exit(0);
}

static void helper_share(void)
{
	char text[16];
	int fd;

	if (rig_helper == NULL) {
		fd = memfd_create("helper", 0);
		assert_true(fd >= 0 && ftruncate(fd, sizeof(*rig_helper)) == 0);
		snprintf(text, sizeof(text), "%d", fd);
		setenv(HELPER_ENV, text, 1);
		helper_map(fd);
	}
	*rig_helper = (struct rig_helper){.n_asked = 0};
}

/* ---- daemons ---- */

static struct leatfs *daemon_init(struct client *c)
{
	struct leatfs *fs = &rig.daemons[rig.n_daemons].fs;

	assert_true(rig.n_daemons < RIG_DAEMONS);
	rig.daemons[rig.n_daemons] = (struct rig_daemon){.ended = false};
	*fs = (struct leatfs){
		.magic = LEATFS_MAGIC,
		.ops = &mount_ops,
		.on_resent = open_files_resent,
		.root = rig.o.root ? (struct ino){rig.o.root} : LEAT_ROOT_INO,
		.env = env,
		.loop = loop,
		.client = c,
		.restart = restart,
		.max_write = 128 << 10,
		.max_background = 16,
		.slow_ms = rig.o.slow_ms,
		.local_locks = rig.o.local_locks,
		.ino32 = rig.o.ino32,
		.strict_atime = rig.o.strict_atime,
		.mountpoint = "/nonexistent",
	};
	hmap_init(&fs->dirs, 64);
	interrupt_init(&fs->interrupts);
	list_init(&fs->running);
	assert_int_equal(open_files_init(fs), 0);
	assert_int_equal(slot_pool_create(fs->max_write + 4096, RIG_REQUESTS, &fs->requests), 0);
	assert_int_equal(kernel_pages_create(fs, rig.o.stage_dir ? rig.o.stage_dir : "",
					     rig.o.passthrough),
			 0);
	assert_int_equal(kernel_pages_start(fs), 0);
	return fs;
}

static void serve(void *arg)
{
	struct rig_daemon *d = arg;

	d->handed_over = session_serve(&d->fs);
	d->ended = true;
}

static void start_serving(void)
{
	rig.fs = &rig.daemons[rig.n_daemons].fs;
	assert_int_equal(fiber_spawn("serve", serve, &rig.daemons[rig.n_daemons++]), 0);
}

static void wait_ended(const struct rig_daemon *d)
{
	uint64_t until = loop_deadline_ms(END_MS);

	while (!d->ended && loop_now_us() < until)
		assert_int_equal(fiber_sleep_us(1000), 0);
	assert_true(d->ended);
}

/* Makes the device look like that of an unmounted file system: poll returns POLLERR. */
static void unmount_device(int fd)
{
	int p[2];

	assert_int_equal(pipe(p), 0);
	close(p[0]);
	assert_int_equal(dup2(p[1], fd), fd);
	close(p[1]);
}

/* Frees what the exit of a real daemon's process would free. */
static void daemon_fini(struct rig_daemon *d)
{
	struct leatfs *fs = &d->fs;

	unmount_device(fuse_session_fd(fs->session));
	for (uint32_t at = 0; at < restart->files_top; at++) {
		uint8_t used = restart->files[at].used; /* perhaps used by the next daemon */

		if (fs->handles.files[at] != NULL)
			open_files_end(fs, fs->handles.files[at]);
		restart->files[at].used = used;
	}
	kernel_size_drop_previous(fs);
	kernel_pages_destroy(fs);
	fiber_yield(); /* the mail that it posts */
	assert_int_equal(fiber_sleep_us(1000), 0);
	session_end(fs);
	free(fs->handles.files);
	free(fs->handles.free_places);
	free(fs->handles.unreplied);
	hmap_fini(&fs->dirs);
	hmap_fini(&fs->pages.sizes);
	if (fs->n_running == 0)
		slot_pool_destroy(fs->requests);
}

void rig_hand_over(void)
{
	struct rig_daemon *d = &rig.daemons[rig.n_daemons - 1];

	session_hand_over(&d->fs);
	wait_ended(d);
	assert_true(d->handed_over);
}

int rig_resume(void)
{
	struct leatfs *fs = daemon_init((struct client *)&fake);
	int status;

	fs->root = restart->root;
	status = session_take_over(fs, kernel_device(&rig.k));
	if (status == 0)
		status = open_files_resume(fs, fs->client);
	if (status == 0) {
		open_files_resumed(fs);
		status = session_ask_again(fs);
	}
	if (status < 0) {
		daemon_fini(&rig.daemons[rig.n_daemons]);
		return status;
	}
	start_serving();
	return fiber_spawn("drop-pages", open_files_drop_pages, fs);
}

int rig_take_over(void)
{
	rig_hand_over();
	return rig_resume();
}

/* Closes everything that programs have open, and destroys the device. */
static void kernel_unmount_all(void)
{
	static struct kernel_reply r;

	for (uint32_t at = 0; at < restart->files_top; at++)
		if (restart->files[at].used)
			kernel_release(&rig.k, restart->files[at].ino,
				       (uint64_t)restart->files[at].use << 32 | at);
	for (uint64_t fh = 0; fh < restart->next_dir; fh++) {
		struct fuse_release_in in = {.fh = fh};

		(void)kernel_call(&rig.k, FUSE_RELEASEDIR, 1, &r, ARG(in));
	}
	kernel_take(&rig.k, 0, 0);
	kernel_close(&rig.k);
}

static void main_fiber(void *arg)
{
	static struct kernel_reply init;

	(void)arg;
	kernel_open(&rig.k);
	rig.k.init_flags = rig.o.kernel_flags ? rig.o.kernel_flags : LINUX_6_9;
	restart = restart_state_create(NULL);
	assert_non_null(restart);
	rig.n_daemons = 0;
	daemon_init(fake_start());
	restart->root = rig.daemons[0].fs.root;
	assert_int_equal(session_attach(&rig.daemons[0].fs, kernel_device(&rig.k)), 0);
	rig.daemons[0].fs.phase = MOUNT_SERVES;
	start_serving();
	kernel_init(&rig.k, &init);
	rig.test();
	fake_stop();
	kernel_unmount_all();
	wait_ended(&rig.daemons[rig.n_daemons - 1]);
	for (uint32_t i = 0; i < rig.n_daemons; i++)
		daemon_fini(&rig.daemons[i]);
	fake_fini();
	munmap(restart, sizeof(*restart));
	rig.done = true;
	loop_stop(loop);
}

void rig_run(void (*test)(void))
{
	struct env_real_options eo = {.n_workers = 1};
	struct loop_options lo = {.name = "mount", .drain_ms = 200};

	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* as in main.c */
	helper_share();
	rig.test = test;
	rig.done = false;
	assert_int_equal(env_real_create(&eo, &env), 0);
	assert_int_equal(loop_create(env, &lo, &loop), 0);
	assert_int_equal(fiber_spawn_on(loop, "main", main_fiber, NULL), 0);
	loop_run(loop);
	loop_destroy(loop);
	env_real_destroy(env);
	assert_true(rig.done);
}
