/* The CRC-32 by tables for short frames, and for others by folding.
 *
 * A CRC is linear: 16 bytes have the effect of their product with a power of x, modulo the polynomial, 16 or 64
 * bytes further on, and carry-less multiplication moves whole vectors. Source: Gopal et al., "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009. */
#include "fcs.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define POLYNOMIAL 0xEDB88320u /* 0x04C11DB7, bits reversed */
#define LEAST_FOLDED 128       /* below, tables are as fast */

static __u32 tables[8][256];
static bool folds;

__attribute__((constructor)) static void fill_tables(void)
{
	for (__u32 byte = 0; byte < 256; byte++) {
		__u32 value = byte;

		for (int bit = 0; bit < 8; bit++)
			value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
		tables[0][byte] = value;
	}
	for (int row = 1; row < 8; row++)
		for (int byte = 0; byte < 256; byte++)
			tables[row][byte] = tables[row - 1][byte] >> 8 ^ tables[0][tables[row - 1][byte] & 0xFF];
#if defined(__x86_64__)
	folds = __builtin_cpu_supports("pclmul");
#endif
}

/* `value` is the register itself, without the inversion before and after. */
static __u32 by_tables(__u32 value, const __u8 *data, __u64 length)
{
	for (; length >= 8; length -= 8, data += 8) {
		value ^= (__u32)data[0] | (__u32)data[1] << 8 | (__u32)data[2] << 16 | (__u32)data[3] << 24;
		value = tables[7][value & 0xFF] ^ tables[6][value >> 8 & 0xFF] ^ tables[5][value >> 16 & 0xFF] ^
			tables[4][value >> 24] ^ tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^
			tables[0][data[7]];
	}
	while (length--)
		value = value >> 8 ^ tables[0][(value ^ *data++) & 0xFF];
	return value;
}

#if defined(__x86_64__)
#define FOLDING __attribute__((target("pclmul,sse2")))

FOLDING static inline __m128i fold(__m128i front, __m128i powers, __m128i onto)
{
	__m128i low = _mm_clmulepi64_si128(front, powers, 0x00), high = _mm_clmulepi64_si128(front, powers, 0x11);

	return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

/* `length` is a multiple of 16, and 64 at least. */
FOLDING static __u32 by_folding(__u32 value, const __u8 *data, __u64 length)
{
	const __m128i by_64 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4); /* x**(512 - 32), x**(512 + 32), reflected */
	const __m128i by_16 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0); /* x**(128 - 32), x**(128 + 32), reflected */
	const __m128i *at = (const __m128i *)data, *end = at + length / 16;
	__m128i lanes[4];
	__u8 rest[16];

	for (int lane = 0; lane < 4; lane++)
		lanes[lane] = _mm_loadu_si128(at++);
	lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)value));
	for (; end - at >= 4; at += 4)
		for (int lane = 0; lane < 4; lane++)
			lanes[lane] = fold(lanes[lane], by_64, _mm_loadu_si128(at + lane));
	for (int lane = 1; lane < 4; lane++)
		lanes[0] = fold(lanes[0], by_16, lanes[lane]);
	while (at < end)
		lanes[0] = fold(lanes[0], by_16, _mm_loadu_si128(at++));
	_mm_storeu_si128((__m128i *)rest, lanes[0]);
	return by_tables(0, rest, sizeof(rest));
}
#endif

__u32 fcs_of(const __u8 *data, __u64 length)
{
	__u32 value = ~0u;

#if defined(__x86_64__)
	if (folds && length >= LEAST_FOLDED) {
		__u64 whole = length & ~15ull;

		value = by_folding(value, data, whole);
		data += whole;
		length -= whole;
	}
#endif
	return ~by_tables(value, data, length);
}
