/* SPDX-License-Identifier: Apache-2.0 */
/* From the string that the user passes to an index and a volume to read from. */
#include "client/loader/source/dataset_resolve.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/dataset/catalog.h"
#include "client/dataset/index_build.h"
#include "client/dataset/manifest_file.h"
#include "client/dataset/scan.h"
#include "client/dataset/scan_list.h"
#include "client/loader/source/checked.h"
#include "client/loader/source/dataset.h"
#include "client/loader/source/dataset_facts.h"
#include "client/loader/source/mend.h"
#include "client/loader/source/peer.h"
#include "client/stage/store/copies.h"
#include "common/base/log.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

/* Time limit for the metadata server to resolve the name of a staged data set. */
#define ASK_US 1000000u

static int entries_of_manifest(const struct manifest *m, struct files_entry **ret_entries)
{
	struct files_entry *e = calloc((size_t)m->n_files + 1, sizeof(*e));
	if (!e)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < m->n_files; i++)
		e[i] = (struct files_entry){m->files[i].path, m->files[i].size};
	*ret_entries = e;
	return 0;
}

/* How to interpret the samples. format NULL: for a path, the format that the files suggest; for
 * a name, the format that was recorded when the name was created. */
struct wanted {
	const char *format;
	bool named, verify, peers;
	bool asked; /* the metadata server has resolved the name */
	/* Where the samples of the name are recorded, unless beside the copy. */
	struct vol *beside;
	const char *dir;
};

/* A path has the same samples with a copy as without one, so it is not `named`. */
static struct wanted wanted_of(const char *what, const struct leat_dataset_options *o)
{
	return (struct wanted){.format = o->format,
			       .named = what[0] != '/',
			       .verify = !o->no_verify,
			       .peers = o->peers == LEAT_PEERS_AUTO};
}

/* Builds the index from bytes that were compared with the manifest. */
static int build_index(struct leat_dataset *ds, const struct index_source *from, struct detail *d)
{
	struct detail *why = calloc(1, sizeof(*why));
	struct vol *v;
	int rc = why ? checked_vol_create(ds, why, &v) : -LE_NOMEM;
	if (rc == 0) {
		rc = index_build(v, ds->root, from, &ds->x, d);
		vol_destroy(v);
	}
	/* A format reports any failed read as damage; the checked volume has the real reason. */
	if (rc < 0 && why && why->rc) {
		rc = why->rc;
		*d = *why;
	}
	free(why);
	return rc;
}

/* Loads the index that is stored beside the manifest, or builds a new one. */
static int load_index(struct leat_dataset *ds, struct vol *beside, const char *dir,
		      const struct wanted *w, struct detail *d)
{
	struct files_entry *e;
	struct sample_index *kept = NULL;
	bool any = w->named && !w->format;
	int rc = samples_load(beside, dir, &kept);
	if ((rc == -LE_CORRUPT || rc == -LE_NOTSUP) && any)
		return detail_set(d, rc, dir, UINT64_MAX,
				  "the record of its samples %s: stage or create it again, or name "
				  "its format",
				  rc == -LE_CORRUPT ? "is damaged here"
						    : "was written by another version of Leat");
	if (rc < 0 && rc != -LE_NOENT && rc != -LE_CORRUPT && rc != -LE_NOTSUP)
		return rc;
	rc = entries_of_manifest(ds->m, &e);
	if (rc < 0) {
		index_destroy(kept);
		return rc;
	}
	struct index_source from = {e, ds->m->n_files, w->format};
	if (kept && (any || index_is_of(kept, w->format))) {
		ds->x = kept;
	} else {
		index_destroy(kept);
		rc = build_index(ds, &from, d);
	}
	free(e);
	return rc;
}

/* Fails unless the manifest has every file of the index, with the same size. */
static int match_manifest(struct leat_dataset *ds, struct detail *d)
{
	const struct sample_index *x = ds->x;
	ds->manifest_file = calloc((size_t)x->n_files + 1, sizeof(*ds->manifest_file));
	ds->verified = calloc(ds->m->n_sums / 64 + 1, sizeof(*ds->verified));
	if (!ds->manifest_file || !ds->verified)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < x->n_files; i++) {
		const char *path = index_string(x, x->files[i].path);
		int64_t f = manifest_find(ds->m, path);
		if (f < 0 || ds->m->files[f].size != x->files[i].size)
			return detail_set(
				d, -LE_CORRUPT, path, UINT64_MAX,
				"the sample index does not belong to the manifest: make the data "
				"set anew (leat dataset create)");
		ds->manifest_file[i] = (uint32_t)f;
	}
	return 0;
}

/* Derives the content word from the manifest's id. */
static uint64_t content_of_id(const char *id)
{
	char word[17];
	memcpy(word, id, 16);
	word[16] = 0;
	return strtoull(word, NULL, 16);
}

/* Opens the READY copy in dir (DIR/.leat/ID); ds->m is its manifest. */
static int open_copy(struct leat_dataset *ds, const char *dir, const struct wanted *w,
		     struct detail *d)
{
	ds->vol = ds->io.local;
	ds->source = "copy";
	ds->is_copy = true;
	snprintf(ds->root, sizeof(ds->root), "%.4000s/data", dir);
	memcpy(ds->id, ds->m->id, sizeof(ds->id));
	ds->content = content_of_id(ds->m->id);
	TRY(mend_create(ds, w->peers, &ds->mend));
	if (w->beside)
		TRY(load_index(ds, w->beside, w->dir, w, d));
	else
		TRY(load_index(ds, ds->io.local, dir, w, d));
	TRY(match_manifest(ds, d));
	if (!w->verify) {
		mend_destroy(ds->mend);
		ds->mend = NULL;
		manifest_destroy(ds->m);
		ds->m = NULL;
	}
	return 0;
}

/* True if the path is a copy's folder or its data folder; ret_dir is the copy's folder. */
static bool is_copy(struct leat_dataset *ds, const char *what, char ret_dir[4096])
{
	char path[4096];
	struct vol_stat st;
	size_t len = strlen(what);
	while (len > 1 && what[len - 1] == '/')
		len--;
	if (len > 5 && strncmp(what + len - 5, "/data", 5) == 0)
		len -= 5;
	snprintf(ret_dir, 4096, "%.*s", (int)len, what);
	const char *name = strrchr(ret_dir, '/');
	if (!name || strlen(name + 1) != MANIFEST_ID_SIZE - 1)
		return false;
	snprintf(path, sizeof(path), "%.4000s/manifest", ret_dir);
	return vol_stat(ds->io.local, path, &st) == 0;
}

static int open_copy_at(struct leat_dataset *ds, const char *dir, const struct wanted *w,
			struct detail *d)
{
	char base[4096], id[MANIFEST_ID_SIZE];
	struct leat_stage_copy *c = malloc(sizeof(*c));
	if (!c)
		return -LE_NOMEM;
	snprintf(base, sizeof(base), "%s", dir);
	snprintf(id, sizeof(id), "%s", strrchr(base, '/') + 1);
	*strrchr(base, '/') = 0;
	char *leat = strrchr(base, '/');
	int rc = -LE_NOENT;
	if (leat && strcmp(leat, "/.leat") == 0) {
		*leat = 0;
		rc = copies_lease(&ds->io, base[0] ? base : "/", id, c, &ds->lease_fd);
	}
	free(c);
	if (rc < 0)
		return detail_set(d, rc, dir, UINT64_MAX, "not a copy that is ready: %s",
				  status_text(rc));
	TRY(manifest_load(ds->io.local, dir, &ds->m, d));
	return open_copy(ds, dir, w, d);
}

static bool is_its_id(const struct leat_dataset *ds, const char *what)
{
	return strlen(what) >= COPIES_ID_MIN && strncmp(ds->m->id, what, strlen(what)) == 0;
}

/* True if the copy may be what `what` means here. A path means another folder in another cluster
 * or on another machine, and a name means another data set in another cluster. An id means the
 * same content everywhere. */
static bool is_of_here(const struct leat_dataset *ds, const char *what)
{
	struct uuid here = io_cluster(&ds->io);
	const struct uuid *there = &ds->m->cluster;
	if (uuid_equal(there, &here))
		return true;
	return what[0] != '/' &&
	       (uuid_is_zero(there) || uuid_is_zero(&here) || is_its_id(ds, what));
}

static void leave_copy(struct leat_dataset *ds)
{
	manifest_destroy(ds->m);
	ds->m = NULL;
	close(ds->lease_fd);
	ds->lease_fd = -1;
}

static const char *catalog_of(const struct leat_dataset_options *o)
{
	return o->catalog ? o->catalog : CATALOG_DEFAULT;
}

/* Resolves the name at the metadata server within ASK_US: with a copy at hand no server is
 * needed. Any failure but -LE_NOENT means that the server cannot answer now. */
static int ask_name(const struct leat_dataset *ds, const char *what,
		    const struct leat_dataset_options *o, char ret_id[MANIFEST_ID_SIZE])
{
	if (!ds->io.remote)
		return -LE_HOSTDOWN;
	uint64_t outer = fiber_deadline(), until = loop_now_us() + ASK_US;
	fiber_set_deadline(until < outer ? until : outer);
	int rc = catalog_lookup(ds->io.remote, catalog_of(o), what, ret_id);
	fiber_set_deadline(outer);
	/* A request fails with -LE_IO when its deadline has passed. */
	return rc == -LE_IO ? -LE_TIMEDOUT : rc;
}

/* Decides whether the copy may be used for the name while the metadata server does not answer. A
 * version keeps its meaning unless it was removed and made again, so the meaning recorded at
 * staging is used. A name without a version may have changed and is refused. */
static int believe_note(const struct leat_dataset *ds, const char *what, int rc, struct detail *d)
{
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	TRY(manifest_parse_alias(what, name, version));
	if (!strchr(what, '@') || strcmp(version, "latest") == 0)
		return detail_set(d, rc, what, UINT64_MAX,
				  "only the metadata server has its present version, and it does "
				  "not answer now: give name@version, or the id of the copy");
	log_warn("%s: the metadata server cannot be asked (%s); using the copy %.12s, which was "
		 "staged under that name",
		 what, status_text(rc), ds->m->id);
	return 0;
}

/* Checks that the name still means the copy that was found by it. If not, *ret_id is the id that
 * the name means now. *ret_asked: the metadata server has answered, or need not. */
static int check_name(const struct leat_dataset *ds, const char *what,
		      const struct leat_dataset_options *o, char ret_id[MANIFEST_ID_SIZE],
		      bool *ret_asked, struct detail *d)
{
	ret_id[0] = 0;
	*ret_asked = true;
	/* A copy that was made on this machine has no metadata server. */
	if (what[0] == '/' || is_its_id(ds, what) || uuid_is_zero(&ds->m->cluster))
		return 0;
	int rc = ask_name(ds, what, o, ret_id);
	*ret_asked = rc == 0 || rc == -LE_NOENT;
	if (rc < 0)
		ret_id[0] = 0;
	return *ret_asked ? 0 : believe_note(ds, what, rc, d);
}

/* Chooses the record of the samples. A copy serves all names of its content but stores the
 * samples of the name that was staged last. If that is not this name, or is unknown, the catalog
 * is read. If the catalog cannot be read, the copy's samples are used, unless they are those of
 * another name: then the call fails. */
static int find_samples(struct leat_dataset *ds, const char *what,
			const struct leat_dataset_options *o, char buf[4096], struct wanted *w,
			struct detail *d)
{
	char id[MANIFEST_ID_SIZE];
	const char *catalog = catalog_of(o);
	struct vol *v = io_source(&ds->io);
	if (!w->named || w->format || is_its_id(ds, what))
		return 0;
	int named = samples_named(ds->io.local, w->dir, catalog, what);
	if (named > 0)
		return 0;
	int rc = w->asked ? catalog_find(v, catalog, what, id, buf) : -LE_HOSTDOWN;
	if (rc == 0 && strcmp(id, ds->m->id) != 0)
		rc = -LE_NOENT;
	if (rc == 0)
		rc = samples_compare(v, buf, ds->io.local, w->dir);
	if (rc < 0 && named == 0)
		return detail_set(d, rc, what, UINT64_MAX,
				  "the record of its samples cannot be read now, and the copy does "
				  "not have it");
	if (rc == 0) {
		w->beside = v;
		w->dir = buf;
	}
	return 0;
}

/* Leases the READY copy in stage_dir that `what` denotes and loads its manifest; ds->m stays
 * NULL without one. A stale copy cannot be found by its path, only by its id or name. */
static int lease_copy(struct leat_dataset *ds, const char *what,
		      const struct leat_dataset_options *o, char ret_dir[4096], struct detail *d)
{
	struct leat_stage_copy *c = malloc(sizeof(*c));
	if (!c)
		return -LE_NOMEM;
	int rc = copies_lease(&ds->io, o->stage_dir, what, c, &ds->lease_fd);
	bool stale = rc == 0 && c->state == LEAT_COPY_STALE;
	if (rc == 0)
		snprintf(ret_dir, 4096, "%.4000s/.leat/%s", o->stage_dir, c->id);
	free(c);
	if (rc < 0)
		return 0;
	TRY(manifest_load(ds->io.local, ret_dir, &ds->m, d));
	if ((stale && what[0] == '/') || !is_of_here(ds, what))
		leave_copy(ds);
	return 0;
}

static int try_staged(struct leat_dataset *ds, const char *what,
		      const struct leat_dataset_options *o, struct detail *d, bool *ret_found)
{
	char dir[4096], named[4096], id[MANIFEST_ID_SIZE];
	struct wanted w = wanted_of(what, o);
	*ret_found = false;
	TRY(lease_copy(ds, what, o, dir, d));
	if (!ds->m)
		return 0;
	TRY(check_name(ds, what, o, id, &w.asked, d));
	if (id[0] && strcmp(id, ds->m->id) != 0) {
		leave_copy(ds);
		TRY(lease_copy(ds, id, o, dir, d));
		if (!ds->m)
			return 0;
	}
	*ret_found = true;
	w.dir = dir;
	TRY(find_samples(ds, what, o, named, &w, d));
	return open_copy(ds, dir, &w, d);
}

static int open_alias(struct leat_dataset *ds, const char *what,
		      const struct leat_dataset_options *o, struct detail *d)
{
	char id[MANIFEST_ID_SIZE], dir[4096];
	struct wanted w = wanted_of(what, o);
	struct vol *v = io_source(&ds->io);
	int rc = catalog_find(v, catalog_of(o), what, id, dir);
	if (rc == -LE_NOENT)
		return detail_set(d, rc, what, UINT64_MAX,
				  "there is no such data set: leat dataset ls has them all");
	if (rc < 0)
		return detail_set(d, rc, what, UINT64_MAX,
				  "its entry in the catalog cannot be read now: %s",
				  status_text(rc));
	TRY(manifest_load(v, dir, &ds->m, d));
	ds->vol = v;
	ds->source = ds->io.remote ? "server" : "local";
	memcpy(ds->root, ds->m->source, sizeof(ds->root));
	memcpy(ds->id, ds->m->id, sizeof(ds->id));
	ds->content = content_of_id(ds->m->id);
	TRY(mend_create(ds, w.peers, &ds->mend));
	TRY(load_index(ds, v, dir, &w, d));
	TRY(match_manifest(ds, d));
	if (!ds->io.fs || o->peers != LEAT_PEERS_AUTO)
		return 0;
	struct peer_options po = {.fs = ds->io.fs, .m = ds->m};
	return peer_create(&po, &ds->peers);
}

/* Splits off a last component with wildcards and returns it; NULL if it has none. */
static const char *split_pattern(const char *what, char ret_dir[4096])
{
	const char *slash = strrchr(what, '/');
	snprintf(ret_dir, 4096, "%s", what);
	if (!slash || !strpbrk(slash, "*?["))
		return NULL;
	ret_dir[slash == what ? 1 : slash - what] = 0;
	return slash + 1;
}

/* If `what` is a file or a link to one, returns its name and sets ds->root to its folder; else
 * NULL. */
static const char *split_file(struct leat_dataset *ds, const char *what)
{
	struct vol_stat st;
	char inside[4096 + 3];
	const char *slash = strrchr(what, '/');
	snprintf(inside, sizeof(inside), "%s/.", what);
	if (vol_stat(ds->vol, what, &st) < 0 || S_ISDIR(st.mode) ||
	    (S_ISLNK(st.mode) && vol_stat(ds->vol, inside, &st) != -LE_NOTDIR))
		return NULL;
	snprintf(ds->root, sizeof(ds->root), "%s", what);
	ds->root[slash == what ? 1 : slash - what] = 0;
	return slash + 1;
}

/* Inode numbers identify files only within one cluster. */
static uint64_t content_of_cluster(const struct leat_dataset *ds)
{
	struct uuid cluster = io_cluster(&ds->io);
	uint64_t word[2];
	memcpy(word, cluster.b, sizeof(word));
	return order_fold(word[0], word[1]);
}

static int open_dir(struct leat_dataset *ds, const char *what, const char *format, struct detail *d)
{
	struct scan scan;
	uint32_t n = 0;
	ds->vol = io_source(&ds->io);
	const char *file = split_file(ds, what);
	const char *pattern = file ? NULL : split_pattern(what, ds->root);
	ds->source = ds->io.remote ? "server" : "local";
	ds->content = content_of_cluster(ds);
	TRY(scan_tree(ds->vol, ds->root, &scan, d));
	struct files_entry *e = calloc((size_t)scan.n + 1, sizeof(*e));
	int rc = e ? 0 : -LE_NOMEM;
	for (uint32_t i = 0; i < scan.n && rc == 0; i++) {
		const struct scan_file *f = &scan.files[i];
		if (pattern && fnmatch(pattern, f->path, FNM_PATHNAME | FNM_PERIOD) != 0)
			continue;
		if (file && strcmp(file, f->path) != 0)
			continue;
		e[n++] = (struct files_entry){f->path, f->st.size};
		ds->content = order_fold(order_fold(ds->content, f->st.ino), f->st.ver);
	}
	if (rc == 0 && n == 0)
		rc = detail_set(d, -LE_NOENT, what, UINT64_MAX, "no files");
	struct index_source from = {e, n, format};
	if (rc == 0)
		rc = index_build(ds->vol, ds->root, &from, &ds->x, d);
	free(e);
	scan_fini(&scan);
	return rc;
}

int dataset_resolve(struct leat_dataset *ds, const char *what, const struct leat_dataset_options *o,
		    struct detail *d)
{
	char dir[4096];
	bool found = false;
	if (o->stage_dir)
		TRY(try_staged(ds, what, o, d, &found));
	if (found)
		return 0;
	if (what[0] != '/')
		return open_alias(ds, what, o, d);
	if (!o->fs && is_copy(ds, what, dir)) {
		struct wanted w = wanted_of(what, o);
		w.named = true; /* the path names the copy itself */
		return open_copy_at(ds, dir, &w, d);
	}
	return open_dir(ds, what, o->format, d);
}
