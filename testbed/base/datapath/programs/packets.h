/* Reading packets: what class they are, what flow they belong to. Included by port.bpf.c. */
#ifndef TESTBED_PACKETS_H
#define TESTBED_PACKETS_H

struct headers {
	__u16 protocol; /* EtherType, host order */
	__u8 tos;       /* DSCP and ECN */
	__u8 transport; /* IP protocol, 0 where there are no ports to read */
	__u64 addresses;
	__u32 transport_ports;
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

/* Whether it is IP. `flow`: read what the flow hash needs, too. */
static __always_inline int parse(struct __sk_buff *skb, struct headers *headers, int flow)
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
		headers->addresses = mix(source[0] ^ mix(source[1])) ^ mix(destination[0] ^ mix(destination[1] + 1));
		headers->transport = ip->nexthdr;
		offset = sizeof(*eth) + sizeof(*ip);
	} else {
		return 0;
	}
	if (headers->transport == IPPROTO_TCP || headers->transport == IPPROTO_UDP) {
		if (bpf_skb_load_bytes(skb, offset, &headers->transport_ports, 4))
			headers->transport_ports = 0;
	}
	return 1;
}

static __always_inline __u32 class_of(const struct profile *profile, const struct headers *headers, int is_ip)
{
	__u32 class;
	/* ARP, LLDP and neighbour discovery keep the fabric together. */
	if (!is_ip || (headers->next == IPPROTO_ICMPV6 && headers->protocol == ETH_P_IPV6))
		class = profile->control_class;
	else
		class = profile->class_of_dscp[headers->tos >> 2];
	return class & (CLASSES - 1);
}

#endif
