/* The accounts of queues, ingress ports and shared buffers. Included by port.bpf.c. */
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

static __always_inline void count_mark(__u32 queue, __u32 bin, int marked)
{
	struct curve *curve = bpf_map_lookup_elem(&curves, &queue);

	if (!curve || bin >= CURVE_BINS)
		return;
	curve->packets[bin]++;
	if (marked)
		curve->marked[bin]++;
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
