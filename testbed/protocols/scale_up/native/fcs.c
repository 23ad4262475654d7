/* The CRC-32 by tables for short frames, and for others by folding.
 *
 * A CRC is linear: 16 bytes have the effect of their product with a power of x, modulo the polynomial, 16, 64 or 128
 * bytes further on, and carry-less multiplication moves whole vectors. Source: Gopal et al., "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009. */
#include "fcs.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define POLYNOMIAL 0xEDB88320u /* 0x04C11DB7, bits reversed */
#define LEAST_FOLDED 128       /* below, tables are as fast */
#define LEAST_WIDE 512

static __u32 tables[8][256];
static bool folds, folds_wide;

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
	folds_wide = folds && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2");
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

/* `count` lanes of 16 bytes, one behind the other, and what is behind them. */
FOLDING static __u32 join(__m128i *lanes, int count, const __m128i *at, const __m128i *end)
{
	const __m128i by_16 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0); /* x**(128 - 32), x**(128 + 32), reflected */
	__u8 rest[16];

	for (int lane = 1; lane < count; lane++)
		lanes[0] = fold(lanes[0], by_16, lanes[lane]);
	while (at < end)
		lanes[0] = fold(lanes[0], by_16, _mm_loadu_si128(at++));
	_mm_storeu_si128((__m128i *)rest, lanes[0]);
	return by_tables(0, rest, sizeof(rest));
}

/* `length` is a multiple of 16, and 64 at least. */
FOLDING static __u32 by_folding(__u32 value, const __u8 *data, __u64 length)
{
	const __m128i by_64 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4); /* x**(512 - 32), x**(512 + 32), reflected */
	const __m128i *at = (const __m128i *)data, *end = at + length / 16;
	__m128i lanes[4];

	for (int lane = 0; lane < 4; lane++)
		lanes[lane] = _mm_loadu_si128(at++);
	lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)value));
	for (; end - at >= 4; at += 4)
		for (int lane = 0; lane < 4; lane++)
			lanes[lane] = fold(lanes[lane], by_64, _mm_loadu_si128(at + lane));
	return join(lanes, 4, at, end);
}

/* The same by vectors of 32 bytes; `length` is a multiple of 16, and 128 at least. */
__attribute__((target("vpclmulqdq,pclmul,avx2"))) static __u32 by_wide_folding(__u32 value, const __u8 *data, __u64 length)
{
	/* x**(1024 - 32), x**(1024 + 32), reflected */
	const __m256i by_128 = _mm256_set_epi64x(0x14A7FE880, 0x1E88EF372, 0x14A7FE880, 0x1E88EF372);
	const __m256i *at = (const __m256i *)data;
	const __u8 *end = data + length;
	__m256i lanes[4];
	__m128i halves[8];

	for (int lane = 0; lane < 4; lane++)
		lanes[lane] = _mm256_loadu_si256(at++);
	lanes[0] = _mm256_xor_si256(lanes[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)value)));
	for (; end - (const __u8 *)at >= 128; at += 4) {
		for (int lane = 0; lane < 4; lane++) {
			__m256i low = _mm256_clmulepi64_epi128(lanes[lane], by_128, 0x00);
			__m256i high = _mm256_clmulepi64_epi128(lanes[lane], by_128, 0x11);
			lanes[lane] = _mm256_xor_si256(_mm256_xor_si256(low, high), _mm256_loadu_si256(at + lane));
		}
	}
	for (int lane = 0; lane < 4; lane++) {
		halves[2 * lane] = _mm256_castsi256_si128(lanes[lane]);
		halves[2 * lane + 1] = _mm256_extracti128_si256(lanes[lane], 1);
	}
	return join(halves, 8, (const __m128i *)at, (const __m128i *)end);
}
#endif

__u32 fcs_of(const __u8 *data, __u64 length)
{
	__u32 value = ~0u;

#if defined(__x86_64__)
	if (folds && length >= LEAST_FOLDED) {
		__u64 whole = length & ~15ull;

		value = folds_wide && length >= LEAST_WIDE ? by_wide_folding(value, data, whole) :
								  by_folding(value, data, whole);
		data += whole;
		length -= whole;
	}
#endif
	return ~by_tables(value, data, length);
}
