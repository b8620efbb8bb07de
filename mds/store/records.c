/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding of the records on disk, generated from the lists in records.h. */
#include "mds/store/records.h"

WIRE_DEFINE_MESSAGE(inode_rec)
WIRE_DEFINE_MESSAGE(dentry_rec)
WIRE_DEFINE_MESSAGE(intent_rec)
WIRE_DEFINE_MESSAGE(convert_rec)
WIRE_DEFINE_MESSAGE(removal_rec)
WIRE_DEFINE_MESSAGE(quota_rec)
WIRE_DEFINE_MESSAGE(session_rec)
WIRE_DEFINE_MESSAGE(replay_rec)
WIRE_DEFINE_MESSAGE(cluster_rec)
WIRE_DEFINE_MESSAGE(counters_rec)
WIRE_DEFINE_MESSAGE(target_rec)
WIRE_DEFINE_MESSAGE(give_up_rec)
