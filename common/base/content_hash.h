/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash that identifies content: BLAKE2b with 256 bits (RFC 7693, by libsodium). For identities
 * that must not collide. Damage is detected with checksum.h, which is much faster.
 */
#ifndef LEAT_COMMON_BASE_CONTENT_HASH_H
#define LEAT_COMMON_BASE_CONTENT_HASH_H

#include <stddef.h>
#include <stdint.h>

#define CONTENT_HASH_LEN 32
#define CONTENT_HASH_TEXT_SIZE 65 /* hexadecimal, and NUL */

/* The state of one hash. Owned by the caller. */
struct content_hash {
	_Alignas(64) uint8_t state[384];
};
void content_hash_init(struct content_hash *h);
void content_hash_add(struct content_hash *h, const void *data, size_t len);
/* Ends the hash: only content_hash_init may follow. */
void content_hash_final(struct content_hash *h, uint8_t ret_hash[CONTENT_HASH_LEN]);
/* Like content_hash_final(), but returns 64 lower-case hexadecimal digits. */
void content_hash_final_text(struct content_hash *h, char ret_text[CONTENT_HASH_TEXT_SIZE]);

#endif
