/* Priority-based flow control frames: values in, bytes out. */
#include "pfc.h"

#include <string.h>

void pfc_encode(__u8 *frame, const __u8 *source, __u32 vector, const __u16 *quanta)
{
	static const __u8 address[6] = {0x01, 0x80, 0xc2, 0x00, 0x00, 0x01};
	static const __u8 control[4] = {0x88, 0x08, 0x01, 0x01}; /* EtherType and opcode */

	memset(frame, 0, PFC_FRAME_BYTES);
	memcpy(frame, address, 6);
	memcpy(frame + 6, source, 6);
	memcpy(frame + 12, control, 4);
	frame[17] = vector; /* the upper half of the class-enable vector is reserved */
	for (int priority = 0; priority < PRIORITIES; priority++) {
		frame[18 + 2 * priority] = quanta[priority] >> 8;
		frame[19 + 2 * priority] = quanta[priority];
	}
}

__u64 pfc_pause_ns(__u32 quanta, __u64 rate_bps)
{
	__u64 bit_ns = (__u64)(quanta & MAX_QUANTA) * QUANTUM_BITS * 1000000000; /* < 2^55 */

	if (!rate_bps)
		rate_bps = 1;
	return bit_ns / rate_bps + (bit_ns % rate_bps != 0);
}
