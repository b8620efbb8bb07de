/* SPDX-License-Identifier: Apache-2.0 */
/* A plain copier, for stage.py: reads each file by 1 MiB, writes it to a folder, syncs it, and
 * syncs the folder. stage_copier FROM TO */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE (1u << 20)

static int copy(int from_dir, int to_dir, const char *name, void *buf)
{
	int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC);
	int to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	struct stat st;
	ssize_t n = -1;

	if (from >= 0 && to >= 0 && fstat(from, &st) == 0 &&
	    posix_fallocate(to, 0, st.st_size > 0 ? st.st_size : 1) == 0)
		while ((n = read(from, buf, PIECE)) > 0)
			if (write(to, buf, (size_t)n) != n)
				break;
	int rc = n == 0 && fdatasync(to) == 0 ? 0 : -1;
	if (from >= 0)
		close(from);
	if (to >= 0)
		close(to);
	return rc;
}

int main(int argc, char **argv)
{
	DIR *dir = argc == 3 ? opendir(argv[1]) : NULL;
	int to = argc == 3 ? open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	void *buf = malloc(PIECE);
	const struct dirent *e;

	if (!dir || to < 0 || !buf) {
		fprintf(stderr, "stage_copier FROM TO: %s\n", strerror(errno));
		return 2;
	}
	while ((e = readdir(dir)) != NULL) {
		if (e->d_name[0] != '.' && copy(dirfd(dir), to, e->d_name, buf) < 0) {
			perror(e->d_name);
			return 1;
		}
	}
	if (fsync(to) < 0)
		return 1;
	closedir(dir);
	close(to);
	free(buf);
	return 0;
}
