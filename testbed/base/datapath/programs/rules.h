/* The rules of a port's queues: what a class is told, and all that is decided by it.
 *
 * A field of class_config is filled in from the field of `ClassPlan` (testbed/base/datapath/traffic_class.py) by the same
 * name: a number as it is, a share or factor in fixed point, a word by its place among the others, nothing as 0. The
 * simulator's ClassQueue (testbed/protocols/simulation/port.py) has the same rules.
 */
#ifndef TESTBED_RULES_H
#define TESTBED_RULES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"

#define ECN_CE 3

enum class_flags {
	CLASS_PRESENT = 1,
	CLASS_LOSSLESS = 2,
	CLASS_ECN = 4,
	CLASS_DROP_NON_ECT = 8,
	CLASS_STRICT = 16,
	/* From bit 5 on those of testbed.base.datapath.markers.MarkAt, without the first. */
	CLASS_MARK_AT_DEQUEUE = 1 << 5,  /* ECN by the queue that a packet leaves behind */
	CLASS_MARK_BY_KERNEL = 1 << 16,  /* ECN by a qdisc of the kernel, which the packet meets next */
	CLASS_COUNT_MARKS = 1 << 17,     /* packets that may be marked are counted by depth */
};

struct class_config {
	__u32 flags;
	__u32 limit_bytes;    /* static tail drop */
	__u32 kmin_bytes;
	__u32 kmax_bytes;
	__u32 pmax;           /* probability at kmax, 2^32 - 1 is 1 */
	__u32 xoff_bytes;     /* of an ingress port and this priority */
	__u32 xon_bytes;
	__u32 headroom_bytes; /* above xoff; beyond it even a lossless packet is dropped */
	__u32 alpha;          /* dynamic threshold: alpha / 256 times the free buffer; 0: none */
	__u32 reserved_bytes; /* always admitted */
};

struct profile {
	__u8 class_of_dscp[64]; /* priority of each DSCP */
	__u8 control_class;     /* priority of ARP, neighbour discovery and other link-local control */
	__u8 trimmed_class;
	__u8 trimmed_dscp;
	__u8 trimmed_last_hop_dscp; /* where the port is PORT_LAST_HOP */
	__u8 pad[4];
	struct class_config classes[CLASSES];
};

enum verdict { ADMIT, DROP_TAIL, DROP_BUFFER, DROP_HEADROOM };

/* `slack`: bytes that a queue may exceed its thresholds by. */
static __always_inline enum verdict admission(const struct class_config *class, const struct queue *queue,
					      const struct buffer *buffer, const struct ingress *account, __u32 length,
					      __u32 slack)
{
	__u64 held = queue->bytes + length, bytes = held > slack ? held - slack : 0;

	if (class->flags & CLASS_LOSSLESS && account)
		return account->bytes + length > account->limit_bytes ? DROP_HEADROOM : ADMIT;
	if (bytes <= class->reserved_bytes)
		return ADMIT;
	if (bytes > class->limit_bytes)
		return DROP_TAIL;
	if (class->alpha && buffer && buffer->size_bytes) {
		__u64 used = buffer->used_bytes, size = buffer->size_bytes;
		__u64 available = used < size ? size - used : 0;
		if (length > available || bytes > (available * class->alpha >> 8))
			return DROP_BUFFER;
	}
	return ADMIT;
}

/* Whether the curve of a class hits a packet at this depth. */
static __always_inline int is_hit(const struct class_config *class, __u64 depth)
{
	__u32 span, probability;

	if (depth <= class->kmin_bytes)
		return 0;
	if (depth >= class->kmax_bytes)
		return 1;
	span = class->kmax_bytes - class->kmin_bytes;
	probability = (depth - class->kmin_bytes) * class->pmax / span;
	return bpf_get_prandom_u32() <= probability;
}

/* Where a depth lies on the curve of a class. */
static __always_inline __u32 curve_bin(const struct class_config *class, __u64 depth)
{
	__u64 bin = class->kmax_bytes ? depth * CURVE_BINS_TO_KMAX / class->kmax_bytes : CURVE_BINS;

	return bin < CURVE_BINS ? bin : CURVE_BINS - 1;
}

/* Mark a packet that allows it. What an earlier switch has marked is not marked here. */
static __always_inline int set_ce(struct __sk_buff *skb, struct queue *queue, __u8 ecn, __u32 packets)
{
	if (!ecn || ecn == ECN_CE || !bpf_skb_ecn_set_ce(skb))
		return 0;
	queue->ce_packets += packets;
	return 1;
}

/* Whether the packet may stay. */
static __always_inline int congestion(struct __sk_buff *skb, const struct class_config *class, struct queue *queue,
				      __u8 ecn, __u32 length, __u32 packets)
{
	if (ecn && class->flags & (CLASS_MARK_AT_DEQUEUE | CLASS_MARK_BY_KERNEL))
		return 1;
	if (!is_hit(class, queue->bytes))
		return 1;
	if (ecn) {
		set_ce(skb, queue, ecn, packets);
		return 1;
	}
	if (!(class->flags & CLASS_DROP_NON_ECT))
		return 1;
	queue->wred_packets += packets;
	queue->wred_bytes += length;
	return 0;
}

#endif
