/* The frame check sequence of Ethernet: the CRC-32 of IEEE 802.3, 3.2.9. */
#ifndef TESTBED_SCALE_UP_FCS_H
#define TESTBED_SCALE_UP_FCS_H

#include "api.h"

/* The CRC-32 of `length` bytes. */
API __u32 fcs_of(const __u8 *data, __u64 length);

#endif
