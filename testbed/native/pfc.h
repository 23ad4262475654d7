/* Priority-based flow control frames.
 *
 * A PFC frame is a MAC control frame (IEEE 802.3 clause 31, annex 31D; IEEE 802.1Q clause 36): destination
 * 01:80:C2:00:00:01, EtherType 0x8808, opcode 0x0101, a class-enable vector, and for each of the eight priorities a
 * time in quanta of 512 bit times (IEEE 802.3 annex 31B.2). A time of 0 resumes the priority. */
#ifndef TESTBED_NATIVE_PFC_H
#define TESTBED_NATIVE_PFC_H

#include "types.h"

#define PFC_FRAME_BYTES 60 /* the shortest Ethernet frame without its check sequence */
#define MAX_QUANTA 65535
#define QUANTUM_BITS 512

/* A frame of PFC_FRAME_BYTES from the station `source`. */
API void pfc_encode(__u8 *frame, const __u8 *source, __u32 vector, const __u16 *quanta);

/* How long `quanta` are at a line rate, rounded up. */
API __u64 pfc_pause_ns(__u32 quanta, __u64 rate_bps);

#endif
