/* The frame check sequence of the lab's frames: the CRC-32 of IEEE 802.3, 3.2.9, over all bytes before it, the low byte
 * first, and inverted in a poisoned frame. */
#ifndef TESTBED_SCALE_UP_FRAME_CHECK_H
#define TESTBED_SCALE_UP_FRAME_CHECK_H

#include "types.h"

#define FCS_BYTES 4

enum frame_check { FRAME_GOOD, FRAME_POISONED, FRAME_BAD };

API __u32 frame_crc(const __u8 *data, __u32 length);

/* What the last four of `length` bytes say of those before them. */
API enum frame_check frame_checked(const __u8 *data, __u32 length);

/* Writes the four bytes behind `length` bytes; the length of the whole. */
API __u32 frame_seal(__u8 *data, __u32 length);

#endif
