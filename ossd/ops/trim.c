/*
 * oss_trim, oss_punch, oss_remove: what makes files shorter or empty. Each is repeatable by
 * content; its answer is remembered after all its steps are durable.
 */
#include "ossd/ops/op.h"

static int trim(struct mutation *m, const void *in, void *out)
{
	const struct oss_trim_req *req = in;
	struct oss_trim_rep *rep = out;
	struct chunk_key file = {op_chain(m->r), req->ino, req->gen, 0};

	TRY(chunk_trim_file(m->t->store, NULL, &file, req->chunk_size, req->size, &rep->n_chunks));
	return op_answer_durable(m, rep);
}

int op_trim(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_trim_req *req = in;

	TRY(op_admit(r));
	TRY(op_check_cap(r, &req->cap, req->ino, req->gen, CAP_WRITE));
	return op_mutate(r, trim, in, out);
}

static int punch(struct mutation *m, const void *in, void *out)
{
	const struct oss_punch_req *req = in;
	struct oss_punch_rep *rep = out;
	struct chunk_punch p = {
		{op_chain(m->r), req->ino, req->gen, 0}, req->chunk_size, req->off, req->len};

	TRY(chunk_punch_file(m->t->store, NULL, &p, &rep->n_chunks));
	return op_answer_durable(m, rep);
}

int op_punch(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_punch_req *req = in;

	TRY(op_admit(r));
	TRY(op_check_cap(r, &req->cap, req->ino, req->gen, CAP_WRITE));
	return op_mutate(r, punch, in, out);
}

#define FILE_SIZE 12u /* u64 ino, u32 gen */

static int remove_files(struct mutation *m, const void *in, void *out)
{
	const struct oss_remove_req *req = in;
	struct oss_remove_rep *rep = out;
	struct wire_r w;

	wire_r_init(&w, req->files.data, req->files.len);
	while (!wire_r_end(&w)) {
		struct chunk_key file = {.chain = op_chain(m->r)};
		uint64_t n;

		wire_get_u64(&w, &file.ino.v);
		wire_get_u32(&w, &file.gen);
		TRY(w.status);
		TRY(chunk_remove_file(m->t->store, NULL, &file, &n));
		rep->n_chunks += n;
	}
	return op_answer_durable(m, rep);
}

int op_remove(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_remove_req *req = in;

	if (r->peer->role != ROLE_MDS)
		return -LE_PERM;
	if (req->files.len % FILE_SIZE != 0)
		return -LE_BAD_MESSAGE;
	return op_mutate(r, remove_files, in, out);
}
