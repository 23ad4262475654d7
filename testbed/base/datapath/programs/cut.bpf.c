// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The wire of a link that is cut between two machines: what comes in goes out by the interface whose index is the
 * filter's class ID. Frames to link-local group addresses, such as PFC's, go with all others. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

SEC("tc")
int cut(struct __sk_buff *skb)
{
	return bpf_redirect(skb->tc_classid & 0xffff, 0);
}

char LICENSE[] SEC("license") = "GPL";
