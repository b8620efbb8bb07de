#include "fuse/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "fuse/kept.h"

#define ENV_NAME "LEAT_MOUNT_DAEMON"
/* Daemons that end so soon after they have begun to serve may die of what they are asked; so many
 * in a row, and the mount is given up: its programs get errors rather than wait for ever. */
#define SHORT_MS       200
#define SHORT_MAX      10
#define PAUSE_MS       50
#define ARGV_EXTRA     3
#define LOOK_MS        500
#define TRYING_MS      10
#define LINGER_LOOKS   20
#define LINGER_LOOK_US 1000
/* linux/pidfd.h of Linux 6.9: of one thread */
#define PIDFD_OF_THREAD O_EXCL

struct supervisor {
	const struct mount_options *o;
	char **argv;
	struct kept *kept;
	int device_fd, kept_fd, ready_fd;
	int good_fd;              /* the program that has worked so far */
	char installed[PATH_MAX]; /* where a newer one may be by now */
	pid_t daemon;
	int daemon_fd;    /* tells that its main thread has ended; -1: the kernel does not */
	bool upgrading;   /* the running one was asked to hand over */
	bool trying;      /* the running one is what was installed */
	uint32_t n_ready; /* kept->n_ready before it was started */
	int n_short;
};

/* The daemon's side of fork: only returns if it cannot be. */
static void become_daemon(const struct supervisor *s, int program_fd, pid_t parent)
{
	char text[PATH_MAX + 64];
	sigset_t none;

	/* Alone it would serve a mount that nobody can replace. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(text, sizeof(text), "%d %d %d %s", s->device_fd, s->kept_fd, s->ready_fd,
		 s->o->mountpoint);
	if (setenv(ENV_NAME, text, 1) < 0)
		return;
	fcntl(s->device_fd, F_SETFD, 0);
	fcntl(s->kept_fd, F_SETFD, 0);
	if (s->ready_fd >= 0)
		fcntl(s->ready_fd, F_SETFD, 0);
	fexecve(program_fd, s->argv, environ);
}

static int start_daemon(struct supervisor *s, int program_fd)
{
	pid_t self = getpid(), pid;

	s->n_ready = s->kept->n_ready;
	s->kept->end = KEPT_KILLED;
	pid = fork();
	if (pid == 0) {
		become_daemon(s, program_fd, self);
		log_error("cannot start the daemon: %s", strerror(errno));
		_exit(DAEMON_REFUSED);
	}
	if (pid < 0)
		return -errno;
	s->daemon = pid;
	s->daemon_fd = (int)syscall(SYS_pidfd_open, pid, PIDFD_OF_THREAD);
	return 0;
}

/* What is installed now, if it can be read; else what has worked. */
static int start_installed(struct supervisor *s)
{
	int fd = open(s->installed, O_PATH | O_CLOEXEC);
	int rc;

	if (fd < 0) {
		log_error("%s: %s", s->installed, strerror(errno));
		s->kept->n_refused++;
		return start_daemon(s, s->good_fd);
	}
	s->trying = true;
	rc = start_daemon(s, fd);
	close(fd);
	return rc;
}

/* The program that runs as the daemon has proved to work. */
static void keep_program(struct supervisor *s)
{
	char path[64];
	int fd;

	s->trying = false;
	s->kept->n_upgrades++;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)s->daemon);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return;
	close(s->good_fd);
	s->good_fd = fd;
	log_info("the daemon was replaced");
}

static bool is_ready(const struct supervisor *s)
{
	return s->kept->n_ready != s->n_ready;
}

static bool is_unmounted(const struct supervisor *s)
{
	struct pollfd p = {.fd = s->device_fd};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR) != 0;
}

/* The daemon has ended, wait status st. True: the mount has too, *ret_status is how. */
static bool ended(struct supervisor *s, int st, int *ret_status)
{
	const bool handed_over = s->kept->end == KEPT_HANDED_OVER;
	const bool refused = s->trying && !is_ready(s);
	bool lasted;

	s->daemon = 0;
	*ret_status = WIFEXITED(st) ? WEXITSTATUS(st) : 32;
	if (s->kept->end == KEPT_UNMOUNTED)
		return true;
	if (!s->kept->init_done || is_unmounted(s) || (!handed_over && !s->kept->resend))
		return true;
	if (s->upgrading) {
		s->upgrading = false;
		s->kept->n_crashes += !handed_over;
		s->n_short = 0;
		return start_installed(s) < 0;
	}
	if (refused) {
		s->trying = false;
		s->kept->n_refused++;
		log_error("%s cannot go on with the mount: the former program does", s->installed);
		return start_daemon(s, s->good_fd) < 0;
	}
	s->kept->n_crashes++;
	lasted = is_ready(s) && monotonic_ms() - s->kept->ready_ms >= SHORT_MS;
	s->n_short = lasted ? 0 : s->n_short + 1;
	log_warn("the daemon of %s %s %d: another one goes on", s->o->mountpoint,
		 WIFSIGNALED(st) ? "was ended by signal" : "ended with status",
		 WIFSIGNALED(st) ? WTERMSIG(st) : WEXITSTATUS(st));
	if (s->n_short >= SHORT_MAX) {
		log_error("%d daemons in a row did not last: %s is given up", s->n_short,
			  s->o->mountpoint);
		return true;
	}
	if (s->n_short > 1)
		usleep((useconds_t)(s->n_short * PAUSE_MS * 1000));
	return start_daemon(s, s->good_fd) < 0;
}

/* The first daemon has what it was given; from then on nothing is said to who mounted. */
static void let_go(struct supervisor *s)
{
	int null;

	if (s->ready_fd < 0)
		return;
	close(s->ready_fd);
	s->ready_fd = -1;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return;
	dup2(null, 0);
	dup2(null, 1);
	if (!s->o->log_file[0])
		dup2(null, 2);
	close(null);
}

/*
 * A thread of the daemon may wait in the kernel for a page that is locked until a request is
 * answered: by the next daemon. So that one must not wait until all threads have ended, nor until a
 * core has been written, which waits for them too.
 */
static bool is_past_serving(const struct supervisor *s)
{
	struct pollfd p = {.fd = s->daemon_fd, .events = POLLIN};
	char path[64], line[128];
	bool dumping = false;
	FILE *f;

	if (s->daemon_fd >= 0 && poll(&p, 1, 0) == 1)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)s->daemon);
	f = fopen(path, "re");
	while (f && !dumping && fgets(line, sizeof(line), f))
		dumping = strcmp(line, "CoreDumping:\t1\n") == 0;
	if (f)
		fclose(f);
	return dumping;
}

/* Has the daemon ended? Its wait status, or what is as good. */
static bool has_ended(struct supervisor *s, int *ret_status)
{
	pid_t pid;
	int st;

	/* Former ones too, whenever they are through. */
	while ((pid = waitpid(-1, &st, WNOHANG)) > 0) {
		if (pid != s->daemon)
			continue;
		*ret_status = st;
		goto ended;
	}
	if (!is_past_serving(s))
		return false;
	/* Nearly always all of it ends with the main thread. */
	for (int i = 0; i < LINGER_LOOKS; i++) {
		if (waitpid(s->daemon, ret_status, WNOHANG) == s->daemon)
			goto ended;
		usleep(LINGER_LOOK_US);
	}
	*ret_status = SIGKILL;
ended:
	if (s->daemon_fd >= 0)
		close(s->daemon_fd);
	s->daemon_fd = -1;
	return true;
}

static void take_signal(struct supervisor *s, int sig)
{
	if (sig == SIGTERM || sig == SIGINT) {
		kill(s->daemon, sig);
	} else if (sig == SIGHUP) {
		s->upgrading = true;
		kill(s->daemon, DAEMON_SIGNAL_HAND_OVER);
	}
}

static int watch(struct supervisor *s, int signal_fd)
{
	struct signalfd_siginfo info;
	int status = 1, st;

	for (;;) {
		struct pollfd p[2] = {{.fd = signal_fd, .events = POLLIN},
				      {.fd = s->daemon_fd, .events = POLLIN}};

		(void)!poll(p, 2, s->trying ? TRYING_MS : LOOK_MS);
		while (read(signal_fd, &info, sizeof(info)) == sizeof(info))
			take_signal(s, (int)info.ssi_signo);
		if (s->trying && is_ready(s))
			keep_program(s);
		if (has_ended(s, &st) && ended(s, st, &status))
			return status;
	}
}

/* The command line of the daemon: with the configuration's name as it is from anywhere. */
static char **daemon_argv(const struct mount_options *o, char **argv)
{
	char real[PATH_MAX], *text = NULL, **v;
	int n = 0;

	while (argv[n] != NULL)
		n++;
	v = calloc((size_t)n + ARGV_EXTRA, sizeof(*v));
	if (v == NULL)
		return NULL;
	memcpy(v, argv, (size_t)n * sizeof(*v));
	if (o->conf[0] && realpath(o->conf, real) && asprintf(&text, "conf=%s", real) > 0) {
		v[n] = "-o";
		v[n + 1] = text;
	}
	return v;
}

int supervise(const struct mount_options *o, char **argv, int ready_fd)
{
	struct supervisor s = {.o = o, .argv = daemon_argv(o, argv), .ready_fd = ready_fd};
	int signal_fd;
	sigset_t set;
	ssize_t n = readlink("/proc/self/exe", s.installed, sizeof(s.installed) - 1);

	s.kept = kept_create(&s.kept_fd);
	s.device_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	s.good_fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	if (n < 0 || s.argv == NULL || s.kept == NULL || s.device_fd < 0 || s.good_fd < 0) {
		log_error("cannot mount at %s: %s", o->mountpoint, strerror(errno));
		return 1;
	}
	s.kept->supervisor = getpid();
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_fd < 0 || chdir("/") < 0 || start_daemon(&s, s.good_fd) < 0) {
		log_error("cannot mount at %s: %s", o->mountpoint, strerror(errno));
		return 1;
	}
	let_go(&s);
	return watch(&s, signal_fd);
}

bool supervised_daemon(struct supervised *ret_s)
{
	const char *text = getenv(ENV_NAME);
	int kept_fd, at = 0;

	if (text == NULL)
		return false;
	if (sscanf(text, "%d %d %d %n", &ret_s->device_fd, &kept_fd, &ret_s->ready_fd, &at) < 3 ||
	    at == 0)
		return false;
	snprintf(ret_s->mountpoint, sizeof(ret_s->mountpoint), "%s", text + at);
	unsetenv(ENV_NAME);
	fcntl(ret_s->device_fd, F_SETFD, FD_CLOEXEC);
	fcntl(kept_fd, F_SETFD, FD_CLOEXEC);
	if (ret_s->ready_fd >= 0)
		fcntl(ret_s->ready_fd, F_SETFD, FD_CLOEXEC);
	ret_s->kept = kept_open(kept_fd);
	/* The program may have been started by the name of a descriptor. */
	prctl(PR_SET_NAME, "mount.leat");
	return true;
}
