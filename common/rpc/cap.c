/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/cap.h"

#include <sodium.h>

#include "common/base/assert.h"

#define CAP_SIGNED_SIZE 36u

void cap_key_derive(const struct rpc_key *cluster_key, struct cap_key *ret_key)
{
	static const char purpose[] = "leat capability 1";

	crypto_generichash(ret_key->b, sizeof(ret_key->b), (const uint8_t *)purpose,
			   sizeof(purpose) - 1, cluster_key->b, sizeof(cluster_key->b));
}

/* The bytes are the wire encoding without the MAC. A new field needs a new purpose string. */
static void cap_mac(const struct cap_key *k, const struct cap *cap, uint8_t mac[16])
{
	uint8_t buf[CAP_SIGNED_SIZE];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_ino(&w, &cap->ino);
	wire_put_u32(&w, &cap->gen);
	wire_put_u32(&w, &cap->rights);
	wire_put_u32(&w, &cap->epoch);
	wire_put_u64(&w, &cap->session);
	wire_put_i64(&w, &cap->expiry_s);
	ASSERT(w.status == 0 && w.len == sizeof(buf));
	crypto_generichash(mac, 16, buf, sizeof(buf), k->b, sizeof(k->b));
}

void cap_sign(const struct cap_key *k, struct cap *cap)
{
	uint8_t mac[16];
	struct wire_r r;

	cap_mac(k, cap, mac);
	wire_r_init(&r, mac, sizeof(mac));
	wire_get_u64(&r, &cap->mac_lo);
	wire_get_u64(&r, &cap->mac_hi);
}

int cap_check(const struct cap_key *k, const struct cap *cap, struct ino ino, uint32_t gen,
	      uint64_t session, uint32_t rights, int64_t now_s)
{
	uint8_t want[16], have[16];
	struct wire_w w;

	cap_mac(k, cap, want);
	wire_w_init(&w, have, sizeof(have));
	wire_put_u64(&w, &cap->mac_lo);
	wire_put_u64(&w, &cap->mac_hi);
	if (sodium_memcmp(want, have, sizeof(want)) != 0 || !ino_equal(cap->ino, ino) ||
	    cap->gen != gen || cap->session != session || (cap->rights & rights) != rights)
		return -LE_BAD_CAP;
	return cap->expiry_s < now_s ? -LE_CAP_EXPIRED : 0;
}
