/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/content_hash.h"

#include <sodium.h>

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(struct content_hash), "the state fits");

/* h->state has the alignment that libsodium requires. */
static crypto_generichash_state *state_of(struct content_hash *h)
{
	return (crypto_generichash_state *)(void *)h->state;
}

void content_hash_init(struct content_hash *h)
{
	crypto_generichash_init(state_of(h), NULL, 0, CONTENT_HASH_LEN);
}

void content_hash_add(struct content_hash *h, const void *data, size_t len)
{
	crypto_generichash_update(state_of(h), data, len);
}

void content_hash_final(struct content_hash *h, uint8_t ret_hash[CONTENT_HASH_LEN])
{
	crypto_generichash_final(state_of(h), ret_hash, CONTENT_HASH_LEN);
}

void content_hash_final_text(struct content_hash *h, char ret_text[CONTENT_HASH_TEXT_SIZE])
{
	uint8_t hash[CONTENT_HASH_LEN];

	content_hash_final(h, hash);
	sodium_bin2hex(ret_text, CONTENT_HASH_TEXT_SIZE, hash, sizeof(hash));
}
