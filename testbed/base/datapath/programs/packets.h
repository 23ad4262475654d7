/* What class a packet is of. Included by port.bpf.c. */
#ifndef TESTBED_PACKETS_H
#define TESTBED_PACKETS_H

#include "flows.h"

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
