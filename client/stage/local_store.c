#include "client/stage/local_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "client/stage/beneath.h"
#include "client/stage/inode_index.h"
#include "client/stage/vol.h"
#include "client/stage/store_tree.h"
#include "common/base/assert.h"
#include "common/base/content_hash.h"

#define BITMAP_MAGIC 0x31504d425441454cULL /* "LEATBMP1" */

struct bitmap_head {
	uint64_t magic, n_chunks;
};

static int join(char ret_path[STORE_PATH_SIZE], const char *dir, const char *name)
{
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/%s", dir, name);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

int store_init(struct local_store *s, struct env *env, const char *to, const char *id)
{
	memset(s, 0, sizeof(*s));
	s->env = env;
	s->lock_fd = -1;
	/* Room for the longest name behind it. */
	if (strlen(to) + 64 + MANIFEST_ID_SIZE > STORE_PATH_SIZE)
		return -LE_NAMETOOLONG;
	TRY(join(s->base, to, ".leat"));
	TRY(join(s->dir, s->base, id));
	snprintf(s->id, sizeof(s->id), "%s", id);
	return 0;
}

void store_fini(struct local_store *s)
{
	store_reserve_end(s);
	for (uint32_t i = 0; i < s->n_more; i++)
		free(s->more[i]);
	s->n_more = 0;
	free(s->places);
	s->places = NULL;
	free(s->share);
	s->share = NULL;
	free(s->folders);
	s->folders = NULL;
	free(s->stamps);
	s->stamps = NULL;
	env_file_close(s->stamps_file);
	s->stamps_file = NULL;
	env_file_close(s->bitmap_file);
	s->bitmap_file = NULL;
	free(s->bitmap);
	s->bitmap = NULL;
	store_unlock(s);
}

/* Before anything of it is there: what is found without its first directory can be told from a copy
 * of its own. */
static int note_home(struct local_store *s, const char *dir)
{
	char path[STORE_PATH_SIZE], *text;
	size_t len;
	TRY(join(path, dir, "home"));
	if (env_read_file(s->env, path, STORE_PATH_SIZE, &text, &len) == 0) {
		bool same = strcmp(text, s->dir) == 0;
		free(text);
		if (same)
			return 0;
	}
	return env_write_file(s->env, path, s->dir, strlen(s->dir), 0644);
}

int store_home(struct local_store *s, char ret_home[STORE_PATH_SIZE])
{
	char *text;
	size_t len;
	TRY(join(ret_home, s->dir, "home"));
	TRY(env_read_file(s->env, ret_home, STORE_PATH_SIZE, &text, &len));
	bool good = len > 0 && len < STORE_PATH_SIZE && strlen(text) == len && text[0] == '/';
	if (good)
		memcpy(ret_home, text, len + 1);
	free(text);
	return good ? 0 : -LE_NOENT;
}

int store_make_dirs(struct local_store *s)
{
	static const char *const below[] = {"part", "data"}; /* the maker's alone */
	char path[STORE_PATH_SIZE];
	for (uint32_t k = 0; k <= s->n_more; k++) {
		const char *dir = store_dir_of(s, k);
		/* Checkpoints sync what is below, and the first directory. */
		TRY(k == 0 ? store_make_folder(s, dir) : env_mkdirs(s->env, dir, 0755));
		if (k > 0)
			TRY(note_home(s, dir));
		for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
			TRY(join(path, dir, below[i]));
			int rc = env_mkdir(s->env, path, 0700);
			if (rc < 0 && rc != -LE_EXIST)
				return rc;
		}
	}
	return 0;
}

int store_make_folder(struct local_store *s, const char *path)
{
	int rc = env_mkdir(s->env, path, 0755);
	if (rc == -LE_EXIST)
		return 0;
	if (rc != -LE_NOENT)
		return rc;
	char *part = strdup(path);
	rc = part ? 0 : -LE_NOMEM;
	for (size_t i = 1; rc == 0 && part[i]; i++) {
		if (part[i] != '/')
			continue;
		part[i] = 0;
		rc = env_mkdir(s->env, part, 0755);
		if (rc == -LE_EXIST)
			rc = 0;
		part[i] = '/';
	}
	free(part);
	if (rc == 0)
		rc = env_mkdir(s->env, path, 0755);
	return rc == -LE_EXIST ? 0 : rc; /* another fiber was quicker */
}

static int sync_file(struct local_store *s, const char *name)
{
	char path[STORE_PATH_SIZE];
	struct env_file *f;
	TRY(join(path, s->dir, name));
	TRY(env_file_open(s->env, path, O_RDONLY, 0, &f));
	int rc = env_file_datasync(f);
	env_file_close(f);
	return rc;
}

int store_sync_manifest(struct local_store *s)
{
	TRY(sync_file(s, "sums"));
	return sync_file(s, "manifest");
}

/* ---- locks ---- */

static void lock_path(const struct local_store *s, char ret_path[STORE_PATH_SIZE])
{
	/* Fits: store_init left room. */
	snprintf(ret_path, STORE_PATH_SIZE, "%.3900s.lock", s->dir);
}

static int flock_file(const struct local_store *s, const char *path, int how)
{
	int fd = beneath_open(s->env, path, O_RDWR | O_CREAT, 0644);
	/* A lease needs no right to write. */
	if ((fd == -LE_ACCES || fd == -LE_ROFS) && how == LOCK_SH)
		fd = beneath_open(s->env, path, O_RDONLY, 0);
	if (fd < 0)
		return fd;
	if (flock(fd, how | LOCK_NB) < 0) {
		int rc = errno == EWOULDBLOCK ? -LE_BUSY : status_from_errno(errno);
		close(fd);
		return rc;
	}
	return fd;
}

/* Whoever removed the copy removed this file too, while holding it: then it locks nothing any more.
 */
static bool still_there(const struct local_store *s, int fd, const char *path)
{
	struct stat a, b;
	return fstat(fd, &a) == 0 && beneath_stat(s->env, path, &b) == 0 && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
}

int store_try_lock(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	ASSERT(s->lock_fd < 0);
	lock_path(s, path);
	TRY(env_mkdirs(s->env, s->base, 0755));
	for (;;) {
		int fd = flock_file(s, path, LOCK_EX);
		if (fd < 0)
			return fd;
		if (still_there(s, fd, path)) {
			s->lock_fd = fd;
			return 0;
		}
		close(fd);
	}
}

bool store_is_locked(const struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	lock_path(s, path);
	int fd = beneath_open(s->env, path, O_RDONLY, 0);
	if (fd < 0)
		return false;
	bool locked = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	close(fd);
	return locked;
}

void store_unlock(struct local_store *s)
{
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	s->lock_fd = -1;
}

int store_lease(const struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	TRY(join(path, s->dir, "lease"));
	int fd = flock_file(s, path, LOCK_SH);
	if (fd >= 0 && !still_there(s, fd, path)) {
		close(fd);
		return -LE_NOENT;
	}
	return fd;
}

bool store_is_leased(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	if (store_is_leased_named(s, false))
		return true;
	if (join(path, s->dir, "lease") < 0)
		return false;
	int fd = beneath_open(s->env, path, O_RDONLY, 0);
	/* What cannot be looked at is not to be taken away. */
	if (fd < 0)
		return fd != -LE_NOENT;
	bool leased = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	close(fd);
	return leased;
}

/* ---- READY ---- */

static bool is_marked(struct local_store *s, const char *mark)
{
	char path[STORE_PATH_SIZE], *text;
	size_t len;
	if (join(path, s->dir, mark) < 0 || env_read_file(s->env, path, 4096, &text, &len) < 0)
		return false;
	bool ready = strncmp(text, s->id, strlen(s->id)) == 0;
	free(text);
	return ready;
}

bool store_is_ready(struct local_store *s)
{
	return is_marked(s, "READY");
}

bool store_is_shared(struct local_store *s)
{
	return is_marked(s, "SHARE");
}

int store_set_ready(struct local_store *s, const struct manifest *m)
{
	char path[STORE_PATH_SIZE], text[256];
	int n = snprintf(text, sizeof(text), "%s %u files %llu bytes\n", s->id, m->n_files,
			 (unsigned long long)m->bytes);
	TRY(join(path, s->dir, s->share ? "SHARE" : "READY"));
	/* Who may not write here cannot make the file that a lease locks. */
	int lease = store_lease(s);
	if (lease >= 0)
		close(lease);
	return env_write_file(s->env, path, text, (size_t)n, 0644);
}

int store_clear_ready(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	TRY(inode_index_withdraw(s));
	static const char *const marks[] = {"READY", "SHARE"};
	bool any = false;
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
		TRY(join(path, s->dir, marks[i]));
		int rc = env_unlink(s->env, path);
		if (rc < 0 && rc != -LE_NOENT)
			return rc;
		any |= rc == 0;
	}
	return any ? env_syncdir(s->env, s->dir) : 0;
}

/* ---- bitmap ---- */

void store_set_chunk(struct local_store *s, uint64_t chunk, bool on)
{
	uint8_t bit = (uint8_t)(1u << chunk % 8);
	if (on)
		s->bitmap[chunk / 8] |= bit;
	else
		s->bitmap[chunk / 8] &= (uint8_t)~bit;
}

bool store_clear_file(struct local_store *s, const struct manifest_file *f)
{
	bool any = false;
	for (uint64_t c = 0; c < manifest_file_chunks(f); c++) {
		any |= store_has_chunk(s, f->first_chunk + c);
		store_set_chunk(s, f->first_chunk + c, false);
	}
	return any;
}

static int write_bitmap(struct local_store *s)
{
	struct bitmap_head head = {BITMAP_MAGIC, s->n_chunks};
	TRY(env_file_pwrite(s->bitmap_file, &head, sizeof(head), 0));
	return env_file_pwrite(s->bitmap_file, s->bitmap, s->n_chunks / 8 + 1, sizeof(head));
}

int store_load_bitmap(struct local_store *s, const struct manifest *m)
{
	char path[STORE_PATH_SIZE];
	struct bitmap_head head = {0};
	struct stat st;
	size_t len = m->n_chunks / 8 + 1;
	ASSERT(!s->bitmap);
	s->n_chunks = m->n_chunks;
	s->bitmap = calloc(1, len);
	if (!s->bitmap)
		return -LE_NOMEM;
	TRY(join(path, s->dir, "bitmap"));
	TRY(env_file_open(s->env, path, O_RDWR | O_CREAT, 0644, &s->bitmap_file));
	TRY(env_file_stat(s->bitmap_file, &st));
	if ((uint64_t)st.st_size == sizeof(head) + len) {
		TRY(env_file_pread(s->bitmap_file, &head, sizeof(head), 0));
		if (head.magic == BITMAP_MAGIC && head.n_chunks == s->n_chunks)
			return env_file_pread(s->bitmap_file, s->bitmap, len, sizeof(head));
	}
	/* Nothing is in it that a power cut could take: the first checkpoint syncs it. */
	s->fresh = st.st_size == 0;
	TRY(env_file_truncate(s->bitmap_file, 0));
	return write_bitmap(s);
}

int store_save_bitmap(struct local_store *s)
{
	TRY(write_bitmap(s));
	return env_file_datasync(s->bitmap_file);
}

/* ---- files ---- */

void store_part_path(const struct local_store *s, uint32_t file, char ret_path[STORE_PATH_SIZE])
{
	snprintf(ret_path, STORE_PATH_SIZE, "%.4000s/part/%u",
		 store_dir_of(s, store_place(s, file)), file);
}

int store_data_path(const struct local_store *s, uint32_t file, const char *path,
		    char ret_path[STORE_PATH_SIZE])
{
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/data/%s",
			 store_dir_of(s, store_place(s, file)), path);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

int store_read_part(struct local_store *s, const struct manifest *m, uint64_t chunk,
		    const struct store_part *part, void *buf)
{
	uint32_t lo = 0, hi = m->n_files;
	char path[STORE_PATH_SIZE];
	struct env_file *file;
	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (m->files[mid].first_chunk <= chunk)
			lo = mid;
		else
			hi = mid;
	}
	const struct manifest_file *f = &m->files[lo];
	uint64_t index = chunk - f->first_chunk;
	if (chunk >= m->n_chunks || index >= manifest_file_chunks(f))
		return -LE_INVAL;
	uint32_t size = manifest_chunk_len(f, index);
	if (part->off >= size || part->len > size - part->off)
		return -LE_INVAL;
	uint32_t len = part->len ? part->len : size - part->off;
	TRY(store_data_path(s, lo, f->path, path));
	int rc = env_file_open(s->env, path, O_RDONLY, 0, &file);
	if (rc == -LE_NOENT) {
		store_part_path(s, lo, path);
		rc = env_file_open(s->env, path, O_RDONLY, 0, &file);
	}
	/* It got its name between the two. */
	if (rc == -LE_NOENT && store_data_path(s, lo, f->path, path) == 0)
		rc = env_file_open(s->env, path, O_RDONLY, 0, &file);
	TRY(rc);
	rc = env_file_pread(file, buf, len, index * MANIFEST_CHUNK + part->off);
	env_file_close(file);
	return rc;
}

int store_read_chunk(struct local_store *s, const struct manifest *m, uint64_t chunk, void *buf)
{
	static const struct store_part all;
	return store_read_part(s, m, chunk, &all, buf);
}

bool store_looks_whole(struct local_store *s, const struct manifest *m)
{
	char path[STORE_PATH_SIZE];
	struct stat st;
	for (uint32_t i = 0; i < m->n_files; i++) {
		if (!store_has_file(s, i))
			continue;
		if (store_data_path(s, i, m->files[i].path, path) < 0 ||
		    env_stat(s->env, path, &st) < 0 || !S_ISREG(st.st_mode) ||
		    (uint64_t)st.st_size != m->files[i].size)
			return false;
	}
	return store_tree_is_whole(s, m);
}

struct removal {
	struct env *env;
	char **names;
	bool *is_dir;
	size_t n, cap;
};

static int note_entry(void *arg, const struct env_dirent *e)
{
	struct removal *r = arg;
	if (r->n == r->cap) {
		size_t cap = r->cap ? r->cap * 2 : 64;
		char **names = realloc(r->names, cap * sizeof(*names));
		if (names)
			r->names = names;
		bool *is_dir = names ? realloc(r->is_dir, cap * sizeof(*is_dir)) : NULL;
		if (!is_dir)
			return -LE_NOMEM;
		r->is_dir = is_dir;
		r->cap = cap;
	}
	r->names[r->n] = strdup(e->name);
	if (!r->names[r->n])
		return -LE_NOMEM;
	r->is_dir[r->n++] = e->is_dir;
	return 0;
}

/* Paths live on the heap, not on the fiber's stack, and the depth is bounded. */
static int remove_tree(struct env *env, const char *path, int depth)
{
	if (depth > MANIFEST_DEPTH_MAX + 4)
		return -LE_NOTEMPTY;
	struct removal r = {.env = env};
	int rc = env_list(env, path, note_entry, &r);
	for (size_t i = 0; i < r.n; i++) {
		char *child = NULL;
		if (rc == 0 && asprintf(&child, "%s/%s", path, r.names[i]) < 0)
			rc = -LE_NOMEM;
		if (rc == 0)
			rc = r.is_dir[i] ? remove_tree(env, child, depth + 1)
					 : env_unlink(env, child);
		free(child);
		free(r.names[i]);
	}
	free(r.names);
	free(r.is_dir);
	if (rc == -LE_NOENT)
		return 0;
	return rc < 0 ? rc : env_rmdir(env, path);
}

int store_remove(struct local_store *s)
{
	char path[STORE_PATH_SIZE], lock[STORE_PATH_SIZE];
	ASSERT(s->lock_fd >= 0);
	TRY(join(path, s->dir, "lease"));
	/* Held until the lease file itself is gone: nobody takes a lease on a copy that is going.
	 */
	int fd = flock_file(s, path, LOCK_EX);
	if (fd < 0 && fd != -LE_NOENT)
		return fd;
	bool busy = store_has_mark(s, "pin", NULL) || store_is_leased_named(s, true);
	int rc = busy ? -LE_BUSY : store_clear_ready(s);
	if (rc == -LE_NOENT)
		rc = 0;
	/* A bitmap is not to outlive what it tells of. */
	if (rc == 0 && join(path, s->dir, "bitmap") == 0)
		rc = env_unlink(s->env, path);
	if (rc == -LE_NOENT)
		rc = 0;
	for (uint32_t k = s->n_more + 1; k-- > 0 && rc == 0;)
		rc = remove_tree(s->env, store_dir_of(s, k), 0);
	if (fd >= 0)
		close(fd);
	TRY(rc);
	lock_path(s, lock);
	rc = env_unlink(s->env, lock);
	return rc == -LE_NOENT ? 0 : rc;
}

/* ---- sources ---- */

/* Keys have names of data sets in them, which may be private. */
static int source_path(const char *to, const char *key, char ret_path[STORE_PATH_SIZE])
{
	struct content_hash h;
	char name[CONTENT_HASH_TEXT_SIZE];
	content_hash_init(&h);
	content_hash_add(&h, key, strlen(key));
	content_hash_final_text(&h, name);
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/.leat/sources/%s", to, name);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

int store_recall_source(struct env *env, const char *to, const char *key,
			char ret_id[MANIFEST_ID_SIZE])
{
	char path[STORE_PATH_SIZE], *text;
	size_t len;
	TRY(source_path(to, key, path));
	TRY(env_read_file(env, path, 4096, &text, &len));
	bool good = len == MANIFEST_ID_SIZE - 1 && strspn(text, "0123456789abcdef") == len;
	if (good)
		memcpy(ret_id, text, len + 1);
	free(text);
	return good ? 0 : -LE_NOENT;
}

static void remove_named(struct env *env, const char *dir, const char *name)
{
	char path[STORE_PATH_SIZE];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (n >= 0 && n < (int)sizeof(path))
		(void)!beneath_unlink(env, path);
}

/* One that a former version has made can be listed, and its names tell of data sets. Its mode comes
 * last: who is interrupted is followed by another. Blocks. */
static int hide_sources(struct env *env, const char *dir)
{
	struct dirent *e;
	struct stat st;
	int fd = beneath_open_dir(env, dir);
	/* A simulated one is not there. */
	if (fd < 0)
		return fd == -LE_NOENT ? 0 : fd;
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || !(st.st_mode & 044)) {
		close(fd);
		return 0;
	}
	DIR *d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -LE_NOMEM;
	}
	while ((e = readdir(d))) {
		if (strlen(e->d_name) != CONTENT_HASH_TEXT_SIZE - 1 ||
		    strspn(e->d_name, "0123456789abcdef") != CONTENT_HASH_TEXT_SIZE - 1)
			remove_named(env, dir, e->d_name);
	}
	int rc = fchmod(fd, 0711) < 0 ? status_from_errno(errno) : 0;
	closedir(d);
	return rc;
}

int store_note_source(struct env *env, const char *to, const char *key, const char *id)
{
	char path[STORE_PATH_SIZE], dir[STORE_PATH_SIZE], now[MANIFEST_ID_SIZE];
	if (store_recall_source(env, to, key, now) == 0 && strcmp(now, id) == 0)
		return 0;
	TRY(source_path(to, key, path));
	snprintf(dir, sizeof(dir), "%.3900s/.leat", to);
	TRY(env_mkdirs(env, dir, 0755));
	snprintf(dir, sizeof(dir), "%.3900s/.leat/sources", to);
	/* Found by who has the key, listed by nobody else. */
	TRY(env_mkdirs(env, dir, 0711));
	TRY(hide_sources(env, dir));
	return env_write_file(env, path, id, MANIFEST_ID_SIZE - 1, 0644);
}
