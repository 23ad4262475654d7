/* Packets for telemetry (sFlow): one in so many that a switch port sends, and some of those that it drops. Nobody is
 * woken up for them. Included by port.bpf.c. */
#ifndef TESTBED_SAMPLES_H
#define TESTBED_SAMPLES_H

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} samples SEC(".maps");

/* It is rare, and its callers are long: so it is not inlined. */
static __noinline int tell(struct __sk_buff *skb, __u32 queue, __u32 ingress, __u64 depth, __u32 fate)
{
	struct sample *sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	__u32 captured = skb->len, zero = 0;
	struct lab_config *config;

	if (!sample) {
		config = bpf_map_lookup_elem(&lab, &zero);
		if (config)
			__sync_fetch_and_add(fate == FATE_SENT ? &config->lost_samples : &config->untold_drops, 1);
		return 0;
	}
	if (captured > SAMPLE_BYTES)
		captured = SAMPLE_BYTES;
	sample->ns = bpf_ktime_get_ns();
	sample->queue = queue;
	sample->ingress = ingress;
	sample->depth = (__s64)depth < 0 ? 0 : depth > 0xffffffff ? 0xffffffff : depth;
	sample->length = skb->gso_segs > 1 ? skb->wire_len / skb->gso_segs : skb->len; /* of one frame */
	sample->fate = fate;
	__builtin_memset(sample->pad, 0, sizeof(sample->pad));
	__builtin_memset(sample->header, 0, sizeof(sample->header));
	if (captured < ETH_HLEN || bpf_skb_load_bytes(skb, 0, sample->header, captured))
		captured = 0;
	sample->captured = captured;
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int may_tell_drop(struct lab_config *config)
{
	__u64 now;

	if (!config->drop_gap_ns)
		return 0;
	now = bpf_ktime_get_ns();
	if (now < config->drop_due_ns) {
		__sync_fetch_and_add(&config->untold_drops, 1);
		return 0;
	}
	config->drop_due_ns = now + config->drop_gap_ns;
	return 1;
}

/* Tell of a packet of a switch port, if it is its turn. */
static __always_inline void tell_some(struct __sk_buff *skb, struct lab_config *config, __u32 queue, __u32 ingress,
				      __u64 depth, __u32 fate)
{
	if (fate != FATE_SENT) {
		if (may_tell_drop(config))
			tell(skb, queue, ingress, depth, fate);
	} else if (config->sample_below && bpf_get_prandom_u32() <= config->sample_below) {
		tell(skb, queue, ingress, depth, fate);
	}
}

#endif
