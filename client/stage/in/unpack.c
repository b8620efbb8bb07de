/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Unpack compressed archives beside the copy. Read the headers of all archives into a table of
 *    (path, archive, offset, size).
 * 2. Sort it. A link gets the offset of its target, which is the last member of that name before
 *    the link. Of several members of an archive with one name the last one counts, as with tar.
 *    Names that exclude each other are refused.
 * 3. A read of a file reads whole blocks of its archive and verifies them.
 */
#include "client/stage/in/unpack.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/dataset/formats/tar.h"
#include "client/dataset/scan_links.h"
#include "client/dataset/scan_list.h"
#include "client/stage/in/archive_name.h"
#include "client/stage/in/unpack_plain.h"
#include "client/stage/store/store_path.h"
#include "common/base/assert.h"
#include "common/rt/fiber.h"

#define PATH_SIZE   4096u
#define YIELD_EVERY 1024u

/* Where the bytes of scan.files[i] are. */
struct place {
	uint32_t file; /* index in the manifest */
	uint64_t off;
};

/* A row of the table before it is sorted. */
struct entry {
	char *path, *link; /* link: another name in the volume, or NULL */
	uint32_t file;
	uint64_t off;      /* offset of its header in the archive */
	uint64_t at, size; /* its bytes; at UINT64_MAX: a link without a target (yet) */
};

struct unpack {
	struct vol vol;
	struct local_store *store;
	const struct manifest *m;
	struct unpack_options o;
	struct detail *d;
	struct plain **plain; /* of each file of the manifest; NULL: not compressed, or not yet */
	uint64_t plain_bytes, packed_bytes; /* totals of the archives unpacked so far */
	struct entry *entries;
	size_t n, cap;
	struct scan scan;
	struct place *places;
	uint32_t file; /* the file that is being read */
	struct env_file *open;
	const char *bad_path;
	uint64_t bad_off;
};

struct packed_file {
	struct vol_file file;
	struct env_file *archive;
	struct place at;
	uint64_t size;
	uint32_t index; /* in the scan */
};

static struct unpack *unpack_of(struct vol *v)
{
	return container_of(v, struct unpack, vol);
}

/* ---- verified bytes of the copy, or of unpacked archives ---- */

static uint64_t size_of(const struct unpack *u, uint32_t file)
{
	return u->plain[file] ? u->plain[file]->size : u->m->files[file].size;
}

static uint32_t block_of(const struct unpack *u, uint32_t file)
{
	return u->plain[file] ? PLAIN_BLOCK : u->m->files[file].block;
}

/* Reads and verifies whole blocks. Records a damaged block in u->bad_path and bad_off. */
static int read_blocks(struct unpack *u, struct env_file *f, uint32_t file, void *buf, uint64_t len,
		       uint64_t off)
{
	const struct manifest_file *mf = &u->m->files[file];
	const struct plain *p = u->plain[file];
	int rc = env_file_pread(f, buf, len, off);
	int64_t bad = -1;
	if (rc == 0 && p)
		bad = plain_check(p, buf, len, off) ? -1 : 0;
	else if (rc == 0)
		bad = manifest_check(u->m, mf, off, buf, len);
	if (rc == -LE_NODATA || bad >= 0) {
		u->bad_path = mf->path;
		u->bad_off = bad >= 0 && !p ? (uint64_t)bad * mf->block : off;
		return -LE_CORRUPT;
	}
	return rc;
}

/* Reads any bytes within the file. */
static int read_range(struct unpack *u, struct env_file *f, uint32_t file, void *buf, uint64_t len,
		      uint64_t off)
{
	uint64_t size = size_of(u, file), block = block_of(u, file);
	uint64_t from = off / block * block, end = off + len;
	if (end < size)
		end = (end + block - 1) / block * block;
	if (end > size)
		end = size;
	if (from == off && end == off + len)
		return read_blocks(u, f, file, buf, len, off);
	void *blocks = malloc(end - from);
	if (!blocks)
		return -LE_NOMEM;
	int rc = read_blocks(u, f, file, blocks, end - from, from);
	if (rc == 0)
		memcpy(buf, (const uint8_t *)blocks + (off - from), len);
	free(blocks);
	return rc;
}

static void plain_path(const struct unpack *u, uint32_t file, char path[STORE_PATH_SIZE])
{
	snprintf(path, STORE_PATH_SIZE, "%.4000s/plain/%u",
		 store_dir_of(u->store, store_place(u->store, file)), file);
}

static int open_file(struct unpack *u, uint32_t file, struct env_file **ret_file)
{
	char *path = malloc(STORE_PATH_SIZE);
	int rc = path ? 0 : -LE_NOMEM;
	if (rc == 0 && u->plain[file])
		plain_path(u, file, path);
	else if (rc == 0)
		rc = store_data_path(u->store, file, u->m->files[file].path, path);
	if (rc == 0)
		rc = env_file_open(u->store->env, path, O_RDONLY, 0, ret_file);
	free(path);
	return rc;
}

/* ---- the table ---- */

static int64_t read_header(void *arg, void *buf, size_t len, uint64_t off)
{
	struct unpack *u = arg;
	uint64_t size = size_of(u, u->file);
	if (u->o.cancel && *u->o.cancel)
		return -LE_CANCELED;
	if (off >= size)
		return 0;
	if (len > size - off)
		len = (size_t)(size - off);
	int rc = read_range(u, u->open, u->file, buf, len, off);
	return rc < 0 ? rc : (int64_t)len;
}

/* Appends a name, normalized: "a//b/./c" becomes a/b/c. The caller refuses a path that leads up
 * or begins at the root. */
static void join_name(char ret_path[PATH_SIZE], size_t at, const char *name)
{
	while (*name && at < PATH_SIZE - 1) {
		size_t len = strcspn(name, "/");
		bool nothing = (len == 0 && at > 0 && ret_path[at - 1] == '/') ||
			       (len == 1 && name[0] == '.');
		bool slash = name[len] == '/';
		for (size_t i = 0; !nothing && i < len && at < PATH_SIZE - 1; i++)
			ret_path[at++] = name[i];
		if (!nothing && slash && at < PATH_SIZE - 1)
			ret_path[at++] = '/';
		name += len + slash;
	}
	ret_path[at] = 0;
}

/* Returns the path in the volume of a member of the present archive, malloc'd. NULL: not a valid
 * one. */
static char *path_of_member(const struct unpack *u, const char *name, size_t len)
{
	const char *archive = u->m->files[u->file].path;
	size_t folder = strlen(archive) - archive_suffix(archive);
	char *path = malloc(PATH_SIZE);
	if (!path)
		return NULL;
	bool good = name[0] != '/' && strlen(name) == len && folder + 2 + len < PATH_SIZE;
	if (good) {
		memcpy(path, archive, folder);
		path[folder] = '/';
		join_name(path, folder + 1, name);
		good = strlen(path) > folder + 1 && manifest_path_is_safe(path);
	}
	char *ret = good ? strdup(path) : NULL;
	free(path);
	return ret;
}

static struct entry *add_entry(struct unpack *u, char *path, uint64_t off, uint64_t size)
{
	if (u->n == u->cap) {
		size_t cap = u->cap ? u->cap * 2 : 256;
		struct entry *more =
			cap <= SCAN_FILES_MAX ? realloc(u->entries, cap * sizeof(*more)) : NULL;
		if (!more) {
			free(path);
			return NULL;
		}
		u->entries = more;
		u->cap = cap;
	}
	struct entry *e = &u->entries[u->n++];
	*e = (struct entry){.path = path, .file = u->file, .off = off, .at = off, .size = size};
	return e;
}

static int refuse(struct unpack *u, int rc, uint64_t off, const char *what)
{
	return detail_set(u->d, rc, u->m->files[u->file].path, off, "%s", what);
}

static int on_member(void *arg, const struct tar_member *t)
{
	struct unpack *u = arg;
	if (u->n % YIELD_EVERY == YIELD_EVERY - 1)
		fiber_yield();
	if (t->kind == TAR_OTHER) {
		return scan_leave_out(&u->scan, LEFT_MEMBER, t->name ? t->name : "");
	}
	char *path = path_of_member(u, t->name, t->name_len);
	if (!path)
		return refuse(u, -LE_CORRUPT, t->off,
			      "it has a name that leads out of it, or none");
	char *link = NULL;
	if (t->kind == TAR_LINK) {
		link = t->link ? path_of_member(u, t->link, strlen(t->link)) : NULL;
		if (!link) {
			free(path);
			return refuse(u, t->link ? -LE_CORRUPT : -LE_NOTSUP, t->off,
				      t->link ? "it has a link that leads out of it"
					      : "a hard link with so long a name cannot be "
						"unpacked");
		}
	}
	struct entry *e = add_entry(u, path, t->off, link ? 0 : t->len);
	if (!e) {
		free(link);
		return -LE_NOMEM;
	}
	e->link = link;
	if (link)
		e->at = UINT64_MAX;
	return 0;
}

/* ---- compressed archives ---- */

static void on_packed(void *arg, uint64_t bytes)
{
	struct unpack *u = arg;
	if (u->o.report)
		u->o.report(u->o.arg, u->packed_bytes + bytes);
}

static int open_plain(struct unpack *u, struct plain *p, struct format_fault *ret_fault)
{
	char path[STORE_PATH_SIZE];
	size_t suffix;
	const char *name = u->m->files[u->file].path;
	struct format_input in = {.read = read_header, .arg = u, .size = u->m->files[u->file].size};
	struct plain_options po = {.kind = (enum decompress_kind)plain_kind(name, &suffix),
				   .max = u->o.space - u->plain_bytes,
				   .report = on_packed,
				   .arg = u};
	plain_path(u, u->file, path);
	*strrchr(path, '/') = 0;
	TRY(store_make_folder(u->store, path));
	path[strlen(path)] = '/';
	TRY(open_file(u, u->file, &u->open));
	int rc = plain_make(u->store->env, path, &in, &po, p, ret_fault);
	env_file_close(u->open);
	u->open = NULL;
	return rc;
}

/* Unpacks the present archive into a file that replaces it as the input. */
static int make_plain(struct unpack *u, struct format_fault *ret_fault)
{
	struct plain *p = calloc(1, sizeof(*p));
	if (!p)
		return -LE_NOMEM;
	int rc = open_plain(u, p, ret_fault);
	if (rc == -LE_FBIG)
		rc = detail_set(u->d, -LE_NOSPC, u->m->files[u->file].path, UINT64_MAX,
				"more comes out of it than there is room for: with what other "
				"archives hold, above %llu bytes",
				(unsigned long long)u->o.space);
	if (rc < 0) {
		free(p);
		return rc;
	}
	u->plain[u->file] = p;
	u->plain_bytes += p->size;
	u->packed_bytes += u->m->files[u->file].size;
	return 0;
}

/* Removes the unpacked files, also those of an earlier run that was killed. */
static void drop_plain(struct unpack *u)
{
	char path[STORE_PATH_SIZE];
	size_t suffix;
	int rc = 0;
	for (uint32_t i = 0; i < u->m->n_files; i++) {
		if (plain_kind(u->m->files[i].path, &suffix) < 0)
			continue;
		plain_path(u, i, path);
		rc = env_unlink(u->store->env, path);
		if (u->plain[i])
			plain_fini(u->plain[i]);
		free(u->plain[i]);
		u->plain[i] = NULL;
	}
	for (uint32_t k = 0; k <= u->store->n_more; k++) {
		snprintf(path, sizeof(path), "%.4000s/plain", store_dir_of(u->store, k));
		rc = env_rmdir(u->store->env, path);
	}
	(void)rc; /* they are removed with the copy at the latest */
}

/* ---- the table ---- */

static int add_archive(struct unpack *u)
{
	struct format_input in = {.read = read_header, .arg = u};
	struct format_fault fault = {0, ""};
	size_t suffix;
	int rc = plain_kind(u->m->files[u->file].path, &suffix) < 0 ? 0 : make_plain(u, &fault);
	if (rc == 0)
		rc = open_file(u, u->file, &u->open);
	if (rc == 0) {
		in.size = size_of(u, u->file);
		rc = tar_scan_all(&in, on_member, u, &fault);
		env_file_close(u->open);
		u->open = NULL;
	}
	if (rc < 0 && u->bad_path)
		return detail_set(u->d, rc, u->bad_path, u->bad_off, "the local copy is damaged");
	if (rc == -LE_CORRUPT || rc == -LE_NOTSUP)
		return refuse(u, rc, fault.off, fault.what);
	return rc;
}

static int add_files(struct unpack *u)
{
	uint32_t n_archives = 0;
	for (u->file = 0; u->file < u->m->n_files; u->file++) {
		const struct manifest_file *f = &u->m->files[u->file];
		if (archive_is_foreign(f->path))
			return refuse(u, -LE_NOTSUP, UINT64_MAX,
				      "archives of this kind cannot be unpacked: .tar, .tar.gz, "
				      ".tar.zst and .tar.lz4 can");
		if (archive_suffix(f->path)) {
			n_archives++;
			TRY(add_archive(u));
			continue;
		}
		char *path = strdup(f->path);
		if (!path || !add_entry(u, path, 0, f->size))
			return -LE_NOMEM;
	}
	if (n_archives)
		return 0;
	return detail_set(u->d, -LE_NOENT, u->m->source, UINT64_MAX,
			  "there is no archive (*.tar, .tar.gz, .tar.zst, .tar.lz4) in it");
}

static int by_path(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int c = strcmp(x->path, y->path);
	if (c)
		return c;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

static struct entry *find(const struct unpack *u, const char *path)
{
	struct entry key = {.path = (char *)(uintptr_t)path};
	size_t lo = 0, hi = u->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(u->entries[mid].path, key.path);
		if (c == 0)
			return &u->entries[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

/* Finds the last entry of this name in this archive before off: the target of a link there. */
static const struct entry *find_previous(const struct unpack *u, const char *path, uint32_t file,
				       uint64_t off)
{
	const struct entry key = {.path = (char *)(uintptr_t)path, .file = file, .off = off};
	size_t lo = 0, hi = u->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (by_path(&u->entries[mid], &key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	const struct entry *e = lo > 0 ? &u->entries[lo - 1] : NULL;
	return e && e->file == file && strcmp(e->path, path) == 0 ? e : NULL;
}

/* Sets the targets of links, while the table still has all entries. */
static void find_links(struct unpack *u)
{
	for (size_t i = 0; i < u->n; i++) {
		struct entry *e = &u->entries[i];
		if (i % YIELD_EVERY == 0)
			fiber_yield();
		const struct entry *to =
			e->link ? find_previous(u, e->link, e->file, e->off) : NULL;
		if (to && !to->link) {
			e->at = to->at;
			e->size = to->size;
		}
	}
}

static void drop_entry(struct entry *e)
{
	free(e->path);
	free(e->link);
	*e = (struct entry){0};
}

/* Keeps only the last entry of each name in an archive. Refuses a name in two archives. */
static int drop_previous(struct unpack *u)
{
	size_t n = 0;
	for (size_t i = 0; i < u->n; i++) {
		struct entry *e = &u->entries[i];
		if (n && strcmp(u->entries[n - 1].path, e->path) == 0) {
			u->file = e->file;
			if (u->entries[n - 1].file != e->file)
				return refuse(u, -LE_CORRUPT, e->off,
					      "another file makes what it makes");
			drop_entry(&u->entries[--n]);
		}
		if (n != i) {
			u->entries[n] = *e;
			*e = (struct entry){0};
		}
		n++;
	}
	u->n = n;
	return 0;
}

/* Refuses a path that has a file as one of its folders. */
static int check_folders(struct unpack *u, const struct entry *e, char *path)
{
	size_t len = strlen(e->path);
	memcpy(path, e->path, len + 1);
	for (char *slash = path; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
		*slash = 0;
		if (find(u, path)) {
			u->file = e->file;
			return refuse(u, -LE_CORRUPT, e->off,
				      "one of its folders is a file as well");
		}
	}
	return 0;
}

static int check_entries(struct unpack *u)
{
	char *path = malloc(PATH_SIZE);
	int rc = path ? 0 : -LE_NOMEM;
	for (size_t i = 0; i < u->n && rc == 0; i++) {
		struct entry *e = &u->entries[i];
		if (i % YIELD_EVERY == 0)
			fiber_yield();
		rc = check_folders(u, e, path);
		if (rc == 0 && e->at == UINT64_MAX) {
			u->file = e->file;
			rc = refuse(u, -LE_CORRUPT, e->off, "it has a link to what is not in it");
		}
	}
	free(path);
	return rc;
}

static int add_dir(struct unpack *u, const char *path, size_t len, int64_t mtime_ns,
		   const struct rights *r)
{
	struct scan_dir *d = &u->scan.dirs[u->scan.n_dirs];
	d->path = strndup(path, len);
	if (!d->path)
		return -LE_NOMEM;
	d->rights = *r;
	d->st.mtime_ns = mtime_ns;
	u->scan.n_dirs++;
	return 0;
}

/* Adds the folder of an archive with members. Readers of the archive may read and search it. */
static int add_folder(struct unpack *u, uint32_t file)
{
	const struct manifest_file *f = &u->m->files[file];
	struct rights r;
	char path[PATH_SIZE];
	size_t len = strlen(f->path) - archive_suffix(f->path);
	memcpy(path, f->path, len);
	path[len] = 0;
	if (manifest_find_dir(u->m, path) >= 0)
		return 0;
	TRY(rights_of_folder(&f->rights, &u->scan.acls, &r));
	return add_dir(u, path, len, f->mtime_ns, &r);
}

/* The directories of the copy, and the folders of its archives. */
static int make_dirs(struct unpack *u)
{
	const struct manifest *m = u->m;
	u->scan.dirs = calloc((size_t)m->n_dirs + m->n_files + 1, sizeof(*u->scan.dirs));
	bool *members = calloc((size_t)m->n_files + 1, sizeof(*members));
	int rc = u->scan.dirs && members ? 0 : -LE_NOMEM;
	for (uint32_t i = 0; i < u->scan.n && rc == 0; i++)
		members[u->places[i].file] = true;
	for (uint32_t i = 0; i < m->n_dirs && rc == 0; i++)
		rc = add_dir(u, m->dirs[i].path, strlen(m->dirs[i].path), m->dirs[i].mtime_ns,
			     &m->dirs[i].rights);
	for (uint32_t i = 0; i < m->n_files && rc == 0; i++)
		if (members[i] && archive_suffix(m->files[i].path))
			rc = add_folder(u, i);
	free(members);
	if (rc == 0)
		scan_sort_dirs(&u->scan);
	return rc;
}

/* Adds those links of the copy that reach something in the volume. */
static int make_links(struct unpack *u)
{
	struct scan *s = &u->scan;
	const struct manifest *m = u->m;
	s->links = calloc((size_t)m->n_links + 1, sizeof(*s->links));
	if (!s->links)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < m->n_links; i++) {
		struct scan_link *l = &s->links[s->n_links++];
		l->path = strdup(m->links[i].path);
		l->target = strdup(m->links[i].target);
		if (!l->path || !l->target)
			return -LE_NOMEM;
		l->st = (struct vol_stat){.mtime_ns = m->links[i].mtime_ns,
					  .uid = m->links[i].uid,
					  .gid = m->links[i].gid};
	}
	return scan_settle_links(s, 0);
}

/* Builds what callers use: paths with attributes, and the offsets of their bytes. */
static int make_scan(struct unpack *u)
{
	struct scan *s = &u->scan;
	s->files = calloc(u->n + 1, sizeof(*s->files));
	u->places = calloc(u->n + 1, sizeof(*u->places));
	if (!s->files || !u->places)
		return -LE_NOMEM;
	for (size_t i = 0; i < u->n; i++) {
		struct entry *e = &u->entries[i];
		const struct manifest_file *f = &u->m->files[e->file];
		uint64_t size = size_of(u, e->file);
		if (e->at > size || e->size > size - e->at)
			return -LE_CORRUPT; /* cannot happen: tar_scan has checked it */
		const struct vol_stat st = {.size = e->size,
					    .mtime_ns = f->mtime_ns,
					    .ino = i,
					    .mode = S_IFREG | f->rights.mode,
					    .uid = f->rights.uid,
					    .gid = f->rights.gid,
					    .plain = true};
		s->files[i] = (struct scan_file){e->path, NULL, st, f->rights};
		u->places[i] = (struct place){e->file, e->at};
		s->bytes += e->size;
		e->path = NULL;
		s->n = s->cap = (uint32_t)(i + 1);
	}
	return 0;
}

/* ---- the volume ---- */

/* Returns the index in scan.files; -1: there is none. */
static int64_t find_file(const struct unpack *u, const char *path)
{
	uint32_t lo = 0, hi = u->scan.n;
	if (strncmp(path, UNPACK_ROOT "/", strlen(UNPACK_ROOT) + 1) != 0)
		return -1;
	path += strlen(UNPACK_ROOT) + 1;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = strcmp(u->scan.files[mid].path, path);
		if (c == 0)
			return mid;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return -1;
}

static int packed_stat(struct vol *v, const char *path, struct vol_stat *ret_st)
{
	const struct unpack *u = unpack_of(v);
	int64_t i = find_file(u, path);
	if (i < 0)
		return -LE_NOENT;
	*ret_st = u->scan.files[i].st;
	return 0;
}

static int packed_open(struct vol *v, const char *path, int flags, uint32_t mode,
		       struct vol_file **ret_file)
{
	struct unpack *u = unpack_of(v);
	int64_t i = find_file(u, path);
	(void)mode;
	if (i < 0 || (flags & O_ACCMODE) != O_RDONLY)
		return i < 0 ? -LE_NOENT : -LE_ROFS;
	struct packed_file *f = calloc(1, sizeof(*f));
	if (!f)
		return -LE_NOMEM;
	f->file.vol = v;
	f->at = u->places[i];
	f->index = (uint32_t)i;
	f->size = u->scan.files[i].st.size;
	int rc = open_file(u, f->at.file, &f->archive);
	if (rc < 0) {
		free(f);
		return rc;
	}
	*ret_file = &f->file;
	return 0;
}

static void packed_close(struct vol_file *file)
{
	struct packed_file *f = container_of(file, struct packed_file, file);
	env_file_close(f->archive);
	free(f);
}

static int64_t packed_pread(struct vol_file *file, void *buf, uint64_t len, uint64_t off)
{
	struct packed_file *f = container_of(file, struct packed_file, file);
	if (off >= f->size)
		return 0;
	if (len > f->size - off)
		len = f->size - off;
	int rc =
		read_range(unpack_of(file->vol), f->archive, f->at.file, buf, len, f->at.off + off);
	return rc < 0 ? rc : (int64_t)len;
}

static int packed_file_stat(struct vol_file *file, struct vol_stat *ret_st)
{
	const struct packed_file *f = container_of(file, struct packed_file, file);
	*ret_st = unpack_of(file->vol)->scan.files[f->index].st;
	return 0;
}

/* Blocks of members are not aligned with those of their archives. */
static int packed_sums(struct vol_file *f,
		       int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole),
		       void *arg)
{
	(void)f;
	(void)each;
	(void)arg;
	return -LE_NOTSUP;
}

/* Without the functions for writing: the volume is read only. */
static const struct vol_ops packed_ops = {
	.stat = packed_stat,
	.open = packed_open,
	.close = packed_close,
	.file_stat = packed_file_stat,
	.pread = packed_pread,
	.sums = packed_sums,
};

/* ---- creation and destruction ---- */

int unpack_create(struct local_store *store, const struct manifest *m,
		  const struct unpack_options *o, struct unpack **ret_unpack, struct detail *d)
{
	struct unpack *u = calloc(1, sizeof(*u));
	if (!u)
		return -LE_NOMEM;
	u->plain = calloc((size_t)m->n_files + 1, sizeof(struct plain *));
	if (!u->plain) {
		free(u);
		return -LE_NOMEM;
	}
	u->vol = (struct vol){&packed_ops, ORIGIN_LOCAL};
	u->store = store;
	u->m = m;
	u->o = *o;
	u->d = d;
	drop_plain(u);
	int rc = add_files(u);
	if (rc == 0 && u->n)
		qsort(u->entries, u->n, sizeof(*u->entries), by_path);
	if (rc == 0)
		find_links(u);
	if (rc == 0)
		rc = drop_previous(u);
	if (rc == 0)
		rc = check_entries(u);
	if (rc == 0)
		rc = make_scan(u);
	if (rc == 0)
		rc = make_dirs(u);
	if (rc == 0)
		rc = make_links(u);
	if (rc < 0)
		unpack_destroy(u);
	else
		*ret_unpack = u;
	return rc;
}

void unpack_destroy(struct unpack *u)
{
	if (!u)
		return;
	for (size_t i = 0; i < u->n; i++)
		drop_entry(&u->entries[i]);
	drop_plain(u);
	free(u->plain);
	free(u->entries);
	scan_fini(&u->scan);
	free(u->places);
	free(u);
}

const struct scan *unpack_scan(const struct unpack *u)
{
	return &u->scan;
}

struct vol *unpack_vol(struct unpack *u)
{
	return &u->vol;
}

const char *unpack_damaged(const struct unpack *u, uint64_t *ret_off)
{
	*ret_off = u->bad_off;
	return u->bad_path;
}
