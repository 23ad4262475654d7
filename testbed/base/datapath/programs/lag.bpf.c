// A link aggregation group where the kernel has no bonding driver, and the split horizon of two leaves that are one.
//
// to_member (ingress of the inner end of a host's aggregate): what the host sends leaves by one of the members that
// distribute, chosen by the hash of its flow, so that no flow is reordered. It is that of a switch's port (flows.h), by a
// seed of the host: the one that a TCP socket gives its packets is another after each time-out (sk_rethink_txhash), and
// the kernel's own of the headers is another after each start of the machine. What the leaf does by it goes with it.
// from_member (ingress of a member): what arrives goes to the aggregate, but for slow protocols (LACP) and LLDP, which
// are the port's own. A member that does not collect drops (IEEE 802.1AX, 6.2.6).
// split_horizon (egress of a leaf's port, or of a VXLAN device): what came over the peer link is kept from a port whose
// group has had it from the peer, and from the VXLAN devices, which the peer has, too.
// to_trunk (ingress of the other end of a bridge's port to the peer): what leaves by it goes over the peer link, with the
// tag of its VLAN. from_trunk (ingress of the peer link): the other way round; frames without a tag stay.
// trunk_only (egress of the peer link): tags are those of to_trunk alone. A host that wrote one itself would have its frame
// come out in a VLAN that it has no part in.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flows.h"

#define VLAN_VID_MASK 0x0fff
#define MEMBERS 8
#define FIRST 3
#define FIVE_TUPLE (HASH_SOURCE | HASH_DESTINATION | HASH_PROTOCOL | HASH_SOURCE_PORT | HASH_DESTINATION_PORT)
#define LISTED 1
#define PEER 2

// 0: how many members distribute; 1: the ifindex of the aggregate's inner end, or of the leaf's peer link; 2: the seed
// of the hash; 3...: the ifindexes of those members.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __type(key, __u32);
    __type(value, __u32);
    __uint(max_entries, FIRST + MEMBERS);
} members SEC(".maps");

// By ifindex: LISTED are ports that collect (of a host), or that the peer's frames are kept from (of a leaf); PEER are
// ports that those frames come in by.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, __u32);
    __type(value, __u32);
    __uint(max_entries, 1024);
} ports SEC(".maps");

// The VLAN of each trunk by the ifindex of its outer end, and the other way round.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, __u32);
    __type(value, __u32);
    __uint(max_entries, 512);
} vlans SEC(".maps"), tails SEC(".maps");

SEC("tc")
int to_member(struct __sk_buff *skb)
{
    __u32 key = 0, *count = bpf_map_lookup_elem(&members, &key), *seed, *out, hash = 0;
    struct headers headers = {};

    key = 2;
    seed = bpf_map_lookup_elem(&members, &key);
    if (!count || !*count || !seed)
        return TC_ACT_SHOT;
    if (parse(skb, &headers, FIVE_TUPLE))
        hash = flow_hash(FIVE_TUPLE, *seed, &headers) >> 32;
    bpf_set_hash(skb, hash);
    key = FIRST + hash % *count;
    out = bpf_map_lookup_elem(&members, &key);
    return out ? bpf_redirect(*out, 0) : TC_ACT_SHOT;
}

SEC("tc")
int from_member(struct __sk_buff *skb)
{
    __u32 key = 1, port = skb->ifindex, *inner;

    if (skb->protocol == bpf_htons(ETH_P_SLOW) || skb->protocol == bpf_htons(ETH_P_LLDP))
        return TC_ACT_OK;
    if (!bpf_map_lookup_elem(&ports, &port))
        return TC_ACT_SHOT;
    inner = bpf_map_lookup_elem(&members, &key);
    return inner ? bpf_redirect(*inner, 0) : TC_ACT_SHOT;
}

SEC("tc")
int split_horizon(struct __sk_buff *skb)
{
    __u32 from = skb->ingress_ifindex, port = skb->ifindex, *found;

    if (!from || !(found = bpf_map_lookup_elem(&ports, &from)) || *found != PEER)
        return TC_ACT_OK;
    found = bpf_map_lookup_elem(&ports, &port);
    return found && *found == LISTED ? TC_ACT_SHOT : TC_ACT_OK;
}

static __always_inline int tagged(struct __sk_buff *skb)
{
    return skb->vlan_present || skb->protocol == bpf_htons(ETH_P_8021Q) || skb->protocol == bpf_htons(ETH_P_8021AD);
}

SEC("tc")
int to_trunk(struct __sk_buff *skb)
{
    __u32 key = 1, port = skb->ifindex, *vlan, *peer;

    vlan = bpf_map_lookup_elem(&vlans, &port);
    peer = bpf_map_lookup_elem(&members, &key);
    if (!vlan || !peer || tagged(skb) || bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), *vlan))
        return TC_ACT_SHOT;
    return bpf_redirect(*peer, 0);
}

SEC("tc")
int from_trunk(struct __sk_buff *skb)
{
    __u32 vlan = skb->vlan_tci & VLAN_VID_MASK, *tail;

    if (!tagged(skb))
        return TC_ACT_OK;
    if (!skb->vlan_present || skb->vlan_proto != bpf_htons(ETH_P_8021Q))
        return TC_ACT_SHOT;
    tail = bpf_map_lookup_elem(&tails, &vlan);
    if (!tail || bpf_skb_vlan_pop(skb))
        return TC_ACT_SHOT;
    return bpf_redirect(*tail, 0);
}

SEC("tc")
int trunk_only(struct __sk_buff *skb)
{
    __u32 from = skb->ingress_ifindex;

    return !tagged(skb) || bpf_map_lookup_elem(&vlans, &from) ? TC_ACT_OK : TC_ACT_SHOT;
}

char _license[] SEC("license") = "GPL";
