/* VL arbitration of an output: two tables of VLs with weights, of which one has priority.
 *
 * An entry is served while it has weight left, in blocks of 64 bytes, and its VL has a frame that may go; then the next
 * one has its turn, with all of its weight. The high-priority table goes first, until as many bytes have left by it as
 * its limit says while the other one had something to send. Source: InfiniBand Architecture Specification volume 1,
 * 7.6.9.2. */
#ifndef TESTBED_INFINIBAND_VL_ARBITER_H
#define TESTBED_INFINIBAND_VL_ARBITER_H

#include "api.h"

#define TABLE_ENTRIES 64
#define LIMIT_UNIT_BYTES 4096
#define UNLIMITED 255

struct vl_table {
	__u8 vl[TABLE_ENTRIES], weight[TABLE_ENTRIES];
	__u32 entries, at;
	__s32 left;
};

struct vl_arbiter {
	struct vl_table high, low;
	__u32 limit;
	__u64 high_bytes; /* sent by the high-priority table since the other one had its turn */
};

/* The VL of an entry, of those that are able to send (a bit each); -1: none is in the table. */
static inline int vl_table_pick(struct vl_table *table, __u32 able)
{
	for (__u32 tries = 0; tries <= table->entries && table->entries; tries++) {
		if (table->left > 0 && able >> table->vl[table->at] & 1)
			return table->vl[table->at];
		table->at = (table->at + 1) % table->entries;
		table->left = table->weight[table->at];
	}
	return -1;
}

/* The VL whose turn it is, of those that are able to send; -1: no table has any of them. `from` is the table that the
 * frame is to be charged to. */
static inline int vl_arbiter_pick(struct vl_arbiter *arbiter, __u32 able, struct vl_table **from)
{
	bool low_first = arbiter->limit != UNLIMITED && arbiter->high_bytes &&
			 arbiter->high_bytes >= (__u64)arbiter->limit * LIMIT_UNIT_BYTES;
	int vl = -1;

	*from = &arbiter->low;
	if (low_first && (vl = vl_table_pick(&arbiter->low, able)) >= 0)
		return vl;
	*from = &arbiter->high;
	if ((vl = vl_table_pick(&arbiter->high, able)) >= 0)
		return vl;
	*from = &arbiter->low;
	return low_first ? -1 : vl_table_pick(&arbiter->low, able);
}

static inline void vl_arbiter_charge(struct vl_arbiter *arbiter, struct vl_table *table, __u32 bytes, __u32 blocks)
{
	table->left -= (__s32)blocks;
	arbiter->high_bytes = table == &arbiter->high ? arbiter->high_bytes + bytes : 0;
}

#endif
