#include "client/stage/stamps.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/rt/fiber.h"

#define MAGIC      0x315054535441454cULL /* "LEATSTP1" */
#define CLOCK_US   500u
#define CLOCK_LOOK 200u /* a tick is 10 ms at most */

_Static_assert(sizeof(struct file_stamp) == 24, "no padding: stamps lie in the file as they are");

struct stamps_head {
	uint64_t magic, n;
};

/* ---- beside the copy ---- */

static int open_stamps(const struct local_store *s, int flags, struct env_file **ret_file)
{
	char path[STORE_PATH_SIZE];
	int n = snprintf(path, sizeof(path), "%s/stamps", s->dir);
	if (n < 0 || n >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	return env_file_open(s->env, path, flags, 0600, ret_file);
}

int stamps_load(struct local_store *s, uint32_t n_files)
{
	struct stamps_head head;
	struct stat st;
	size_t len = (size_t)n_files * sizeof(*s->stamps);
	free(s->stamps);
	s->n_stamps = n_files;
	s->stamps = calloc((size_t)n_files + 1, sizeof(*s->stamps));
	if (!s->stamps)
		return -LE_NOMEM;
	int rc = s->stamps_file ? 0 : open_stamps(s, O_RDWR, &s->stamps_file);
	if (rc == -LE_NOENT)
		return 0;
	TRY(rc);
	TRY(env_file_stat(s->stamps_file, &st));
	if ((uint64_t)st.st_size == sizeof(head) + len) {
		TRY(env_file_pread(s->stamps_file, &head, sizeof(head), 0));
		if (head.magic == MAGIC && head.n == n_files)
			return len ? env_file_pread(s->stamps_file, s->stamps, len, sizeof(head))
				   : 0;
	}
	/* Of something else: written anew with the first stamp. */
	env_file_close(s->stamps_file);
	s->stamps_file = NULL;
	return 0;
}

static int write_all(struct local_store *s)
{
	const struct stamps_head head = {MAGIC, s->n_stamps};
	struct env_file *f;
	TRY(open_stamps(s, O_RDWR | O_CREAT, &f));
	int rc = env_file_truncate(f, 0);
	if (rc == 0)
		rc = env_file_pwrite(f, s->stamps, s->n_stamps * sizeof(*s->stamps), sizeof(head));
	if (rc == 0)
		rc = env_file_pwrite(f, &head, sizeof(head), 0);
	/* Another fiber may have been quicker. */
	if (rc < 0 || s->stamps_file)
		env_file_close(f);
	else
		s->stamps_file = f;
	return rc;
}

/* What cannot be written is only verified again. */
static void set(struct local_store *s, uint32_t file, const struct file_stamp *t)
{
	if (!s->stamps || file >= s->n_stamps)
		return;
	s->stamps[file] = *t;
	int rc = s->stamps_file ? env_file_pwrite(s->stamps_file, t, sizeof(*t),
						  sizeof(struct stamps_head) + file * sizeof(*t))
				: write_all(s);
	(void)rc;
}

/* ---- one file ---- */

static struct file_stamp stamp_of(const struct stat *st)
{
	return (struct file_stamp){st->st_ino, st->st_ctim.tv_sec, (uint64_t)st->st_ctim.tv_nsec};
}

bool stamp_fits(const struct file_stamp *t, const struct stat *st)
{
	const struct file_stamp now = stamp_of(st);
	return t->ino != 0 && memcmp(t, &now, sizeof(now)) == 0;
}

bool stamps_believe(const struct local_store *s, uint32_t file, const struct stat *st)
{
	/* Simulated, or all of it this user's own. */
	if (!s->folders || geteuid() != 0)
		return true;
	/* Nothing that somebody has mounted below the copy's folder counts as a file of it. */
	return s->stamps && file < s->n_stamps && stamp_fits(&s->stamps[file], st) &&
	       st->st_dev == s->folders[(size_t)store_place(s, file) * s->n_folders].dev;
}

bool stamp_watch(int fd)
{
	/* Whoever opens the file has this process told by a signal, which is not to be SIGIO: that
	 * ends a process which expects none. This one is ignored unless somebody wants it. */
	return fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_RDLCK) == 0;
}

/* ---- several ---- */

static bool is_past(const struct file_stamp *t)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return now.tv_sec > t->ctime_s ||
	       (now.tv_sec == t->ctime_s && (uint64_t)now.tv_nsec > t->ctime_ns);
}

void stamping_add(struct stamping *x, uint32_t file, int fd, bool watched)
{
	static const struct file_stamp none;
	struct stat st;
	/* Where times are whole seconds a change may not show for as long. */
	if (!watched || fstat(fd, &st) < 0 || st.st_ctim.tv_nsec == 0) {
		close(fd);
		set(x->s, file, &none);
		return;
	}
	x->rows[x->n].file = file;
	x->rows[x->n].fd = fd;
	x->rows[x->n++].stamp = stamp_of(&st);
	if (x->n == STAMPS_AT_ONCE)
		stamping_end(x);
}

void stamping_end(struct stamping *x)
{
	static const struct file_stamp none;
	struct stat st;
	for (uint32_t i = 0; i < x->n; i++) {
		const struct file_stamp *t = &x->rows[i].stamp;
		int fd = x->rows[i].fd;
		for (uint32_t k = 0; k < CLOCK_LOOK && !is_past(t); k++) {
			int rc = fiber_sleep_us(CLOCK_US);
			(void)rc;
		}
		bool counts = is_past(t) && fcntl(fd, F_GETLEASE) == F_RDLCK &&
			      fstat(fd, &st) == 0 && stamp_fits(t, &st);
		close(fd);
		set(x->s, x->rows[i].file, counts ? t : &none);
	}
	x->n = 0;
}
