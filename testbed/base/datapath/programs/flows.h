/* What flow a packet belongs to: its headers, and a hash of them. Included by packets.h and lag.bpf.c. */
#ifndef TESTBED_FLOWS_H
#define TESTBED_FLOWS_H

#include "layout.h"

struct headers {
	__u16 protocol; /* EtherType, host order */
	__u8 tos;       /* DSCP and ECN */
	__u8 transport; /* IP protocol, 0 where there are no ports to read */
	__u64 addresses;
	__u32 transport_ports;
	__u32 queue_pair; /* the destination's, of RoCE, where the hash heeds it; else 0 */
	__u8 next; /* IP protocol */
};

static __always_inline __u64 mix(__u64 x)
{
	/* The finaliser of MurmurHash3 (public domain, A. Appleby). */
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ (x >> 33);
}

#define ROCE_PORT 4791
#define BTH_QP 5 /* where the destination queue pair stands in a base transport header (InfiniBand, section 9.2) */

/* Whether it is IP. `flow`: read what the flow hash needs of these fields (enum hash_fields), too. */
static __always_inline int parse(struct __sk_buff *skb, struct headers *headers, __u32 flow)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	__u32 offset;

	if (data + sizeof(*eth) + sizeof(struct ipv6hdr) > end) {
		/* A short frame, or headers outside of the linear part. */
		__u32 want = skb->len < 54 ? skb->len : 54;
		if (bpf_skb_pull_data(skb, want))
			return 0;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		eth = data;
	}
	if (data + sizeof(*eth) > end)
		return 0;
	headers->protocol = bpf_ntohs(eth->h_proto);
	if (headers->protocol == ETH_P_IP) {
		struct iphdr *ip = data + sizeof(*eth);
		if ((void *)(ip + 1) > end)
			return 0;
		headers->tos = ip->tos;
		headers->next = ip->protocol;
		if (!flow)
			return 1;
		headers->addresses = (__u64)ip->saddr << 32 | ip->daddr;
		/* A fragment other than the first has no ports: then none of the datagram's do. */
		headers->transport = ip->frag_off & bpf_htons(0x3fff) ? 0 : ip->protocol;
		offset = sizeof(*eth) + (ip->ihl & 15) * 4;
	} else if (headers->protocol == ETH_P_IPV6) {
		struct ipv6hdr *ip = data + sizeof(*eth);
		if ((void *)(ip + 1) > end)
			return 0;
		headers->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
		headers->next = ip->nexthdr;
		if (!flow)
			return 1;
		const __u64 *source = (const __u64 *)&ip->saddr, *destination = (const __u64 *)&ip->daddr;
		if (flow & HASH_SOURCE)
			headers->addresses = mix(source[0] ^ mix(source[1]));
		if (flow & HASH_DESTINATION)
			headers->addresses ^= mix(destination[0] ^ mix(destination[1] + 1));
		headers->transport = ip->nexthdr;
		offset = sizeof(*eth) + sizeof(*ip);
	} else {
		return 0;
	}
	if (headers->transport == IPPROTO_TCP || headers->transport == IPPROTO_UDP) {
		if (bpf_skb_load_bytes(skb, offset, &headers->transport_ports, 4))
			headers->transport_ports = 0;
	}
	if (flow & HASH_ROCE_QP && headers->transport == IPPROTO_UDP &&
	    headers->transport_ports >> 16 == bpf_htons(ROCE_PORT)) {
		__u8 pair[3];
		if (!bpf_skb_load_bytes(skb, offset + 8 + BTH_QP, pair, 3))
			headers->queue_pair = pair[0] << 16 | pair[1] << 8 | pair[2];
	}
	return 1;
}

/* The hash of a flow, by the fields (enum hash_fields) and the seed of who asks; its upper 32 bits are what is used. */
static __always_inline __u64 flow_hash(__u32 fields, __u32 seed, const struct headers *headers)
{
	__u32 ports = headers->transport_ports;
	__u64 addresses = headers->addresses, flow;
	__u8 transport = fields & HASH_PROTOCOL ? headers->transport : 0;

	if (headers->protocol == ETH_P_IP) {
		if (!(fields & HASH_SOURCE))
			addresses &= 0xffffffffull;
		if (!(fields & HASH_DESTINATION))
			addresses &= ~0xffffffffull;
	}
	if (!(fields & HASH_SOURCE_PORT))
		ports &= 0xffff0000;
	if (!(fields & HASH_DESTINATION_PORT))
		ports &= 0xffff;
	flow = mix(addresses ^ (__u64)seed << 17);
	flow = mix(flow + ((__u64)ports << 8 | transport) + seed);
	return headers->queue_pair ? mix(flow ^ (__u64)headers->queue_pair << 32) : flow;
}

#endif
