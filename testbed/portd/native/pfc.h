/* Priority-based flow control frames. testbed/portd/pfc.py has the standards. */
#ifndef TESTBED_PORTD_PFC_H
#define TESTBED_PORTD_PFC_H

#include "api.h"

#define PFC_FRAME_BYTES 60 /* the shortest Ethernet frame without its check sequence */
#define MAX_QUANTA 65535
#define QUANTUM_BITS 512

/* A frame of PFC_FRAME_BYTES from the station `source`. */
API void pfc_encode(__u8 *frame, const __u8 *source, __u32 vector, const __u16 *quanta);

/* How long `quanta` are at a line rate, rounded up. */
API __u64 pfc_pause_ns(__u32 quanta, __u64 rate_bps);

#endif
