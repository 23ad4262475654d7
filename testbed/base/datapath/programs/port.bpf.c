// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The data path of a port. One set of programs serves every port of a lab: a filter's class ID carries the
 * port's number, which the kernel hands to the program as skb->tc_classid.
 *
 *   port_ingress  clsact ingress: leaves the peer's queue; the wire (loss, corruption, delay), pause frames, the cap
 *                 of a tenant, ECMP hash
 *   port_cut      clsact ingress of the stub of a link that ends on another machine: leaves the queue, and goes on to
 *                 the interface whose index is the class ID
 *   port_egress   clsact egress, only where trimming is on
 *   port_enqueue  filter on HTB, under the root lock: class, admission, ECN, accounts
 *   port_purge    tracepoint kfree_skb: packets that a link going down took along
 *   port_paths    tracepoint fib_table_lookup, only where a switch adapts or pins: the paths of a packet (paths.h)
 *
 * What clsact's programs let pass goes on to the filters behind them (TC_ACT_UNSPEC), which a link group has.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "rules.h"

#define ETH_P_MAC_CONTROL 0x8808
#define ETH_P_KICK 0x88b5 /* local experimental: makes a qdisc run, never sent */
#define PFC_OPCODE 0x0101
#define PFC_BYTES 34 /* header, opcode, class-enable vector, eight quanta */
#define TRIMMED_BYTES 64 /* of the IP packet */
#define FLOWLETS 65536
#define FIRST_CLASS 0x10
#define NS_PER_S 1000000000ull
#define IFF_UP 1
#define LINK_STATE_NOCARRIER 2 /* bit of net_device.state (linux/netdevice.h, enum netdev_state_t) */
#define ECN_MASK 3

/* What is read of the kernel's own structures. */
struct qdisc_skb_cb {
	unsigned int pkt_len;
	unsigned char data[20];
} __attribute__((preserve_access_index));

struct net_device {
	unsigned int flags;
	unsigned long state;
	int ifindex;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
	char cb[48];
} __attribute__((preserve_access_index));

enum skb_drop_reason { SKB_DROP_REASON_CPU_BACKLOG };

#include "maps.h"
#include "packets.h"
#include "accounts.h"
#include "samples.h"
#include "paths.h"

/* ------------------------------------------------------------------ ingress */

static __always_inline int take_pause_frame(struct __sk_buff *skb, __u32 port)
{
	static const __u8 address[ETH_ALEN] = {0x01, 0x80, 0xc2, 0x00, 0x00, 0x01};
	__u32 index = port * CLASSES;
	struct ingress *account;
	struct event *event;
	__u8 frame[PFC_BYTES];
	int valid;

	valid = skb->len >= PFC_BYTES && !bpf_skb_load_bytes(skb, 0, frame, PFC_BYTES);
	if (valid) {
#pragma unroll
		for (int i = 0; i < ETH_ALEN; i++)
			valid &= frame[i] == address[i];
		valid &= frame[14] == PFC_OPCODE >> 8 && frame[15] == (PFC_OPCODE & 0xff);
	}
	if (!valid) {
		account = bpf_map_lookup_elem(&ingress, &index);
		if (account)
			account->malformed_frames++;
		return TC_ACT_SHOT;
	}
	event = new_event(port, EVENT_PFC, frame[17]);
	if (event) {
#pragma unroll
		for (int i = 0; i < CLASSES; i++)
			event->quanta[i] = (__u16)frame[18 + 2 * i] << 8 | frame[19 + 2 * i];
		bpf_ringbuf_submit(event, 0);
	}
#pragma unroll
	for (int i = 0; i < CLASSES; i++) {
		index = port * CLASSES + i;
		if (frame[17] & 1 << i) {
			account = bpf_map_lookup_elem(&ingress, &index);
			if (account)
				account->pause_frames++;
		}
	}
	return TC_ACT_SHOT; /* MAC control ends at the MAC */
}

static __always_inline __u32 balance(struct __sk_buff *skb, struct port_config *config, const struct headers *headers)
{
	__u64 flow;

	if (config->balancing == LB_SPRAY) {
		/* Multiples of the golden ratio fill any number of equal paths evenly. */
		__u64 number = config->sprayed++;
		return (__u32)(number * 0x9e3779b1u) + config->seed;
	}
	flow = flow_hash(config->hash_fields, config->seed, headers);
	if (config->balancing == LB_ADAPTIVE || config->balancing == LB_STATIC) {
		struct paths *found = ask_paths(skb, config, headers);
		if (found)
			return (config->balancing == LB_STATIC ? pinned(found, config, headers) :
								 least_loaded(found, config, flow)) << 1;
	}
	if (config->balancing == LB_FLOWLET) {
		__u32 index = flow & (FLOWLETS - 1);
		struct flowlet *flowlet = bpf_map_lookup_elem(&flowlets, &index);
		if (flowlet) {
			__u64 now = bpf_ktime_get_ns();
			if (now - flowlet->last_ns > config->gap_ns)
				flowlet->salt = bpf_get_prandom_u32();
			flowlet->last_ns = now;
			flow = mix(flow ^ flowlet->salt);
		}
	}
	return flow >> 32;
}

static __always_inline int is_lost(struct port_config *config)
{
	if (config->loss && bpf_get_prandom_u32() <= config->loss)
		return 1;
	if (config->loss_every) {
		__u64 number = ++config->arrived;
		if (number % config->loss_every == 0)
			return 1;
	}
	return 0;
}

/* The generic cell rate algorithm of a policer (ITU-T I.371, annex A): a packet conforms unless those before it have
 * used up the burst. */
static __always_inline int is_above_cap(struct port_config *config, __u32 length)
{
	__u64 now = bpf_ktime_get_ns(), due = config->conforming_ns;

	if (due < now)
		due = now;
	if (due - now > config->cap_burst_ns)
		return 1;
	config->conforming_ns = due + (__u64)length * (8 * NS_PER_S) / config->cap_bps;
	return 0;
}

static __always_inline void corrupt(struct __sk_buff *skb, struct ingress *account)
{
	/* One byte behind the network header, so that the packet still arrives and its checksum tells. */
	__u32 offset = skb->len - 1;
	__u8 byte;

	if (skb->len <= 64 || bpf_skb_load_bytes(skb, offset, &byte, 1))
		return;
	byte ^= 0x40;
	if (!bpf_skb_store_bytes(skb, offset, &byte, 1, 0))
		account->corrupted_packets++;
}

/* What the note of a packet says of its mark, where it may have one. */
struct arrival {
	__u32 queue;
	__u32 bin; /* of the curve */
	__u8 by_kernel;
	__u8 hit; /* it is to be marked as it leaves */
	__u8 counted; /* it has a place in the account of marks */
};

/* What port_enqueue noted travels with the packet to the other end of the link: skb->cb outlives a veth. So a packet
 * leaves its queue's account when it reaches the peer. (The tracepoint qdisc_dequeue is not called for every packet
 * on all kernels: 2 in 1,000 were missing on 6.18.) Returns that queue if the packet could be marked there; `arrival`
 * says how. */
static __always_inline struct queue *arrive(struct __sk_buff *skb, struct arrival *arrival)
{
	struct class_config *class;
	struct port_config *config;
	struct profile *profile;
	struct queued queued;
	struct queue *queue;
	__u32 index;

	if (!read_note(skb->cb[NOTE_QUEUE], skb->cb[NOTE_INGRESS], &queued))
		return NULL;
	skb->cb[NOTE_QUEUE] = skb->cb[NOTE_INGRESS] = 0;
	queue = bpf_map_lookup_elem(&queues, &queued.queue);
	if (!queue)
		return NULL;
	queued.bytes = skb->len; /* its own: one of several segments has the note of the whole */
	queue->out_packets++;
	queue->out_bytes += queued.bytes;
	leave(&queued, queue);
	if (!queued.bin)
		return NULL;
	index = queued.queue / CLASSES;
	config = bpf_map_lookup_elem(&ports, &index);
	if (!config)
		return NULL;
	index = config->profile;
	profile = bpf_map_lookup_elem(&profiles, &index);
	if (!profile)
		return NULL;
	class = &profile->classes[queued.queue & (CLASSES - 1)];
	arrival->queue = queued.queue;
	arrival->bin = queued.bin - 1;
	arrival->by_kernel = !!(class->flags & CLASS_MARK_BY_KERNEL);
	arrival->counted = !!(class->flags & CLASS_COUNT_MARKS);
	if (class->flags & CLASS_MARK_AT_DEQUEUE) {
		if (arrival->counted)
			arrival->bin = curve_bin(class, queue->bytes);
		arrival->hit = !arrival->by_kernel && is_hit(class, queue->bytes);
	}
	return queue;
}

/* Mark it if that is due only now, and count how it fared. Whether it has a mark. */
static __always_inline int settle_mark(struct __sk_buff *skb, struct queue *queue, const struct arrival *arrival,
				       __u8 ecn)
{
	int marked = ecn == ECN_CE;

	if (arrival->hit)
		marked = set_ce(skb, queue, ecn, 1) || marked;
	else if (marked && arrival->by_kernel)
		queue->ce_packets++;
	if (arrival->counted)
		count_mark(arrival->queue, arrival->bin, marked);
	return marked;
}

SEC("tc")
int port_ingress(struct __sk_buff *skb)
{
	__u32 port = skb->tc_classid & 0xffff, index, zero = 0;
	struct port_config *config = bpf_map_lookup_elem(&ports, &port);
	struct headers headers = {};
	struct arrival arrival = {};
	struct profile *profile;
	struct ingress *account;
	struct queue *marking;
	__u32 class;
	int is_ip;

	marking = arrive(skb, &arrival);
	if (!config)
		return TC_ACT_UNSPEC;
	is_ip = parse(skb, &headers, config->flags & PORT_SWITCH ? config->hash_fields : 0);
	if (!is_ip && headers.protocol == ETH_P_MAC_CONTROL)
		return take_pause_frame(skb, port);
	if (marking && is_ip && settle_mark(skb, marking, &arrival, headers.tos & ECN_MASK))
		headers.tos |= ECN_CE;
	index = config->profile;
	profile = bpf_map_lookup_elem(&profiles, &index);
	if (!profile)
		return TC_ACT_UNSPEC;
	class = class_of(profile, &headers, is_ip);
	index = port * CLASSES + class;
	account = bpf_map_lookup_elem(&ingress, &index);
	if (!account)
		return TC_ACT_UNSPEC;
	if ((config->loss || config->loss_every) && is_lost(config)) {
		account->lost_packets++;
		account->lost_bytes += skb->len;
		return TC_ACT_SHOT;
	}
	if (config->cap_bps && is_above_cap(config, skb->len)) {
		struct lab_config *told = bpf_map_lookup_elem(&lab, &zero);
		account->policed_packets++;
		account->policed_bytes += skb->len;
		if (told && config->flags & PORT_SWITCH)
			tell_some(skb, told, index, index, 0, FATE_CAP);
		return TC_ACT_SHOT;
	}
	account->in_packets++;
	account->in_bytes += skb->len;
	if (is_ip && (headers.tos & ECN_MASK) == ECN_CE)
		account->ce_packets++;
	if (config->corruption && bpf_get_prandom_u32() <= config->corruption)
		corrupt(skb, account);
	if (config->flags & PORT_SWITCH) {
		skb->mark = MARK_VALID | class << MARK_CLASS_SHIFT | port;
		if (is_ip && config->balancing != LB_KERNEL)
			bpf_set_hash(skb, balance(skb, config, &headers));
	}
	if (config->delay_ifindex)
		return bpf_redirect(config->delay_ifindex, 0);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int port_cut(struct __sk_buff *skb)
{
	struct headers headers = {};
	struct arrival arrival = {};
	struct queue *marking = arrive(skb, &arrival);

	if (marking && parse(skb, &headers, 0))
		settle_mark(skb, marking, &arrival, headers.tos & ECN_MASK);
	return bpf_redirect(skb->tc_classid & 0xffff, 0);
}

/* ------------------------------------------------------------------ trimming */

static __always_inline int shorten(struct __sk_buff *skb, const struct headers *headers, __u8 dscp)
{
	__u8 tos = dscp << 2 | (headers->tos & ECN_MASK);

	if (bpf_skb_change_tail(skb, ETH_HLEN + TRIMMED_BYTES, 0))
		return -1;
	if (headers->protocol == ETH_P_IP) {
		__u16 old_length, new_length = bpf_htons(TRIMMED_BYTES), old_tos, new_tos;
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &old_tos, 2) || bpf_skb_load_bytes(skb, ETH_HLEN + 2, &old_length, 2))
			return -1;
		new_tos = (old_tos & bpf_htons(0xff00)) | bpf_htons(tos);
		bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), old_length, new_length, 2);
		bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), old_tos, new_tos, 2);
		bpf_skb_store_bytes(skb, ETH_HLEN + 2, &new_length, 2, 0);
		bpf_skb_store_bytes(skb, ETH_HLEN, &new_tos, 2, 0);
	} else {
		__u16 length = bpf_htons(TRIMMED_BYTES - sizeof(struct ipv6hdr)), word;
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &word, 2))
			return -1;
		word = (word & bpf_htons(0xf00f)) | bpf_htons((__u16)tos << 4);
		bpf_skb_store_bytes(skb, ETH_HLEN, &word, 2, 0);
		bpf_skb_store_bytes(skb, ETH_HLEN + 4, &length, 2, 0);
	}
	return 0;
}

/* Whether a packet of this class is cut rather than dropped. */
static __always_inline int is_trimmed(const struct port_config *config, const struct class_config *class,
				      const struct headers *headers, __u32 length)
{
	return config->flags & PORT_TRIM && !(class->flags & (CLASS_LOSSLESS | CLASS_STRICT)) &&
	       headers->next == IPPROTO_UDP && length > ETH_HLEN + TRIMMED_BYTES;
}

/* A packet that its queue would refuse is cut and sent on in the trimmed class (UE specification section 4.1).
 * It is handed to the interface once more, since HTB charges the length that a packet had before its filter ran. */
SEC("tc")
int port_egress(struct __sk_buff *skb)
{
	__u32 port = skb->tc_classid & 0xffff, index, class, length = skb->len;
	struct port_config *config = bpf_map_lookup_elem(&ports, &port);
	struct headers headers = {};
	struct class_config *settings;
	struct profile *profile;
	struct buffer *buffer;
	struct queue *queue;

	if (!config || skb->mark & MARK_TRIMMED || !parse(skb, &headers, 0))
		return TC_ACT_UNSPEC;
	index = config->profile;
	profile = bpf_map_lookup_elem(&profiles, &index);
	if (!profile)
		return TC_ACT_UNSPEC;
	class = class_of(profile, &headers, 1);
	settings = &profile->classes[class];
	if (!is_trimmed(config, settings, &headers, length))
		return TC_ACT_UNSPEC;
	index = port * CLASSES + class;
	queue = bpf_map_lookup_elem(&queues, &index);
	index = config->buffer;
	buffer = bpf_map_lookup_elem(&buffers, &index);
	if (!queue || admission(settings, queue, buffer, NULL, length, 0) == ADMIT)
		return TC_ACT_UNSPEC;
	if (shorten(skb, &headers, config->flags & PORT_LAST_HOP ? profile->trimmed_last_hop_dscp : profile->trimmed_dscp))
		return TC_ACT_SHOT;
	__sync_fetch_and_add(&queue->trimmed_packets, 1);
	__sync_fetch_and_add(&queue->trimmed_bytes, length - ETH_HLEN - TRIMMED_BYTES);
	skb->mark |= MARK_VALID | MARK_TRIMMED;
	return bpf_redirect(skb->ifindex, 0);
}

/* ------------------------------------------------------------------ the queue */

SEC("tc")
int port_enqueue(struct __sk_buff *skb)
{
	/* A packet still to be segmented (UDP_SEGMENT) counts as what it will be on the wire. */
	__u32 packets = skb->gso_segs > 1 ? skb->gso_segs : 1, length = skb->wire_len;
	__u32 port = skb->tc_classid & 0xffff, index, class, mark = skb->mark, zero = 0, bin = 0, slack;
	__u32 fate = FATE_SENT;
	struct port_config *config = bpf_map_lookup_elem(&ports, &port);
	struct lab_config *tag = bpf_map_lookup_elem(&lab, &zero);
	struct class_config *settings;
	struct headers headers = {};
	struct profile *profile;
	struct ingress *account;
	struct buffer *buffer;
	struct queue *queue;
	__u8 ecn;
	int is_ip;

	skb->cb[NOTE_QUEUE] = skb->cb[NOTE_INGRESS] = 0;
	if (!config || !tag)
		return TC_ACT_UNSPEC;
	is_ip = parse(skb, &headers, 0);
	if (headers.protocol == ETH_P_KICK)
		return TC_ACT_SHOT;
	index = config->profile;
	profile = bpf_map_lookup_elem(&profiles, &index);
	if (!profile)
		return TC_ACT_UNSPEC;
	if (mark & MARK_VALID && mark & MARK_TRIMMED)
		class = profile->trimmed_class & (CLASSES - 1);
	else
		class = class_of(profile, &headers, is_ip);
	settings = &profile->classes[class];
	index = port * CLASSES + class;
	queue = bpf_map_lookup_elem(&queues, &index);
	if (!queue)
		return TC_ACT_UNSPEC;
	index = config->buffer;
	buffer = bpf_map_lookup_elem(&buffers, &index);

	queue->in_packets += packets;
	queue->in_bytes += length;
	queue->depth[depth_bin(queue->bytes) & (DEPTH_BINS - 1)]++;
	account = account_of(mark, class, &index);
	if (account) {
		queue->forwarded_packets += packets;
		queue->forwarded_bytes += length;
	}
	/* What port_egress found room for may have been overtaken by what other CPUs brought since. */
	slack = is_ip && is_trimmed(config, settings, &headers, length) ? settings->reserved_bytes : 0;
	switch (admission(settings, queue, buffer, account, length, slack)) {
	case DROP_TAIL:
		queue->tail_packets += packets;
		queue->tail_bytes += length;
		fate = FATE_TAIL;
		break;
	case DROP_BUFFER:
		queue->buffer_packets += packets;
		queue->buffer_bytes += length;
		fate = FATE_BUFFER;
		break;
	case DROP_HEADROOM:
		queue->headroom_packets += packets;
		queue->headroom_bytes += length;
		fate = FATE_HEADROOM;
		break;
	case ADMIT:
		break;
	}
	ecn = is_ip ? headers.tos & ECN_MASK : 0;
	if (fate == FATE_SENT && settings->flags & CLASS_ECN &&
	    !congestion(skb, settings, queue, ecn, length, packets))
		fate = FATE_WRED;
	if (config->flags & PORT_SWITCH)
		tell_some(skb, tag, port * CLASSES + class, index, queue->bytes, fate);
	if (fate != FATE_SENT)
		return TC_ACT_SHOT;

	/* The far end has something to do for a packet that is counted there, marked there, or by a qdisc on the way. */
	if (settings->flags & CLASS_ECN && ecn && ecn != ECN_CE) {
		if (settings->flags & CLASS_MARK_AT_DEQUEUE)
			bin = 1;
		else if (settings->flags & CLASS_COUNT_MARKS)
			bin = 1 + curve_bin(settings, queue->bytes);
		else if (settings->flags & CLASS_MARK_BY_KERNEL)
			bin = 1;
	}
	queue->enqueued_packets += packets;
	queue->enqueued_bytes += length;
	if (ecn)
		queue->ect_packets += packets;
	__sync_fetch_and_add(&queue->bytes, length);
	if (queue->bytes > queue->max_bytes)
		queue->max_bytes = queue->bytes;
	if (buffer && config->buffer) {
		__u64 used = __sync_fetch_and_add(&buffer->used_bytes, length) + length;
		if (used > buffer->max_bytes)
			buffer->max_bytes = used;
	}
	if (account)
		charge(account, index, length);
	skb->cb[NOTE_QUEUE] = (port * CLASSES + class) | tag->tag << INDEX_BITS;
	skb->cb[NOTE_INGRESS] = index | bin << INDEX_BITS | tag->tag >> LOW_TAG_BITS << (INDEX_BITS + BIN_BITS);
	skb->tc_classid = FIRST_CLASS + class;
	return TC_ACT_OK;
}

/* Read what port_enqueue left in a packet; whether it is one of this lab's. */
static __always_inline int read_queued(struct sk_buff *skb, struct queued *queued)
{
	void *noted = (void *)skb->cb + bpf_core_field_offset(struct qdisc_skb_cb, data);
	void *length = (void *)skb->cb + bpf_core_field_offset(struct qdisc_skb_cb, pkt_len);
	__u32 note[2];

	return !bpf_probe_read_kernel(note, sizeof(note), noted + NOTE_QUEUE * sizeof(__u32)) &&
	       !bpf_probe_read_kernel(&queued->bytes, sizeof(queued->bytes), length) &&
	       read_note(note[0], note[1], queued);
}

/* Packets that leave a queue and never reach the peer: those that a link going down takes along, and those that the
 * peer's CPU backlog refuses. (A packet tap that is full frees its clone with the same note, and must not count.) */
SEC("tp_btf/kfree_skb")
int BPF_PROG(port_purge, struct sk_buff *skb, void *location, int reason)
{
	struct queued queued;
	struct queue *queue;

	if (!read_queued(skb, &queued))
		return 0;
	if (reason != bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_CPU_BACKLOG)) {
		struct net_device *device = skb->dev;
		if (!device || (device->flags & IFF_UP && !(device->state & 1 << LINK_STATE_NOCARRIER)))
			return 0;
	}
	queue = bpf_map_lookup_elem(&queues, &queued.queue);
	if (!queue)
		return 0;
	__sync_fetch_and_add(&queue->purged_packets, 1);
	__sync_fetch_and_add(&queue->purged_bytes, queued.bytes);
	leave(&queued, queue);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
