/* The variant CRC of frames: x^16 + x^12 + x^3 + x + 1, least significant bit first, seed and complement of ones. */
#include "fabric.h"

#define POLYNOMIAL 0xD008

__u32 ib_vcrc(const __u8 *data, __u32 length)
{
	__u32 crc = 0xFFFF;

	while (length--) {
		crc ^= *data++;
		for (__u32 bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (POLYNOMIAL & -(crc & 1));
	}
	return crc ^ 0xFFFF;
}
