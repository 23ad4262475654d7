/* The accounts of queues, ingress ports and shared buffers, and what is decided by them. Included by port.bpf.c. */
#ifndef TESTBED_ACCOUNTS_H
#define TESTBED_ACCOUNTS_H

/* What is left. An account that would go below zero starts anew: one wrong packet must not close a queue for ever. */
static __always_inline __u64 take(__u64 *bytes, __u32 length)
{
	__u64 left = __sync_fetch_and_sub(bytes, length) - length;

	if ((__s64)left < 0)
		left = *bytes = 0;
	return left;
}

static __always_inline void discharge(__u32 index, __u32 length)
{
	struct ingress *account = bpf_map_lookup_elem(&ingress, &index);
	__u64 bytes;

	if (!account)
		return;
	bytes = take(&account->bytes, length);
	if (!account->xoff || bytes > account->xon_bytes)
		return;
	if (__sync_val_compare_and_swap(&account->xoff, 1, 0) != 1)
		return;
	account->xon_events++;
	notify(index, EVENT_XON, bytes);
}

/* Whether the two words are a note of this lab; `queued` is what they say, but for the bytes. */
static __always_inline int read_note(__u32 first, __u32 second, struct queued *queued)
{
	__u32 zero = 0, tag = first >> INDEX_BITS | second >> (INDEX_BITS + BIN_BITS) << LOW_TAG_BITS;
	struct lab_config *config;

	if (!tag)
		return 0;
	config = bpf_map_lookup_elem(&lab, &zero);
	if (!config || tag != config->tag)
		return 0;
	queued->queue = first & ((1 << INDEX_BITS) - 1);
	queued->ingress = second & ((1 << INDEX_BITS) - 1);
	queued->bin = second >> INDEX_BITS & ((1 << BIN_BITS) - 1);
	return 1;
}

static __always_inline void leave(const struct queued *queued, struct queue *queue)
{
	__u32 index = queued->queue / CLASSES;
	struct port_config *config = bpf_map_lookup_elem(&ports, &index);
	struct buffer *buffer;

	take(&queue->bytes, queued->bytes);
	index = config ? config->buffer : 0;
	if (index) {
		buffer = bpf_map_lookup_elem(&buffers, &index);
		if (buffer)
			take(&buffer->used_bytes, queued->bytes);
	}
	if (queued->ingress)
		discharge(queued->ingress, queued->bytes);
}


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

static __always_inline struct ingress *account_of(__u32 mark, __u32 class, __u32 *index)
{
	struct ingress *account;

	*index = 0;
	if (!(mark & MARK_VALID) || !(mark & MARK_PORT))
		return NULL;
	*index = (mark & MARK_PORT) * CLASSES + class;
	account = bpf_map_lookup_elem(&ingress, index);
	if (!account)
		*index = 0;
	return account;
}


static __always_inline __u32 depth_bin(__u64 bytes)
{
	__u32 bin = 0, scaled = bytes >> 8;

	if (scaled >> 8) {
		bin += 8;
		scaled >>= 8;
	}
	if (scaled >> 4) {
		bin += 4;
		scaled >>= 4;
	}
	if (scaled >> 2) {
		bin += 2;
		scaled >>= 2;
	}
	bin += scaled > 1 ? 2 : scaled;
	return bin < DEPTH_BINS ? bin : DEPTH_BINS - 1;
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

static __always_inline void count_mark(__u32 queue, __u32 bin, int marked)
{
	struct curve *curve = bpf_map_lookup_elem(&curves, &queue);

	if (!curve || bin >= CURVE_BINS)
		return;
	curve->packets[bin]++;
	if (marked)
		curve->marked[bin]++;
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

static __always_inline void charge(struct ingress *account, __u32 index, __u32 length)
{
	__u64 bytes = __sync_fetch_and_add(&account->bytes, length) + length;

	if (bytes > account->max_bytes)
		account->max_bytes = bytes;
	if (!account->xoff_bytes || bytes <= account->xoff_bytes || account->xoff)
		return;
	if (__sync_val_compare_and_swap(&account->xoff, 0, 1))
		return;
	account->xoff_events++;
	account->xoff_ns = bpf_ktime_get_ns();
	notify(index, EVENT_XOFF, bytes);
	/* The queue may have drained between the two steps, and nobody would come by to say so. */
	if (account->bytes <= account->xon_bytes && __sync_val_compare_and_swap(&account->xoff, 1, 0) == 1) {
		account->xon_events++;
		notify(index, EVENT_XON, account->bytes);
	}
}

#endif
