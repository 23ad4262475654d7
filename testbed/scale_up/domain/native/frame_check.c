/* CRC-32 by carry-less multiplication where the CPU has it: 0.5 us for 8 kB, where a table takes 20.
 *
 * Source: Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009, whose
 * constants for the reflected polynomial 0xEDB88320 these are. */
#include "frame_check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static __u32 table[256];

__attribute__((constructor)) static void make_table(void)
{
	for (__u32 i = 0; i < 256; i++) {
		__u32 value = i;
		for (int bit = 0; bit < 8; bit++)
			value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
		table[i] = value;
	}
}

static __u32 by_table(__u32 crc, const __u8 *data, __u32 length)
{
	while (length--)
		crc = crc >> 8 ^ table[(crc ^ *data++) & 0xff];
	return crc;
}

#if defined(__x86_64__)
#define FOLDS __attribute__((target("sse4.1,pclmul")))

FOLDS static __m128i fold(__m128i value, __m128i by, __m128i next)
{
	__m128i low = _mm_clmulepi64_si128(value, by, 0x00), high = _mm_clmulepi64_si128(value, by, 0x11);

	return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FOLDS static __m128i load(const __u8 *data)
{
	return _mm_loadu_si128((const __m128i *)data);
}

/* Of at least 64 bytes, a multiple of 16. */
FOLDS static __u32 by_folding(__u32 crc, const __u8 *data, __u32 length)
{
	const __m128i by_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
	const __m128i by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
	const __m128i reduction = _mm_set_epi64x(0, 0x0163cd6124);
	const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
	const __m128i mask = _mm_setr_epi32(~0, 0, ~0, 0);
	__m128i sums[4], sum;

	for (int i = 0; i < 4; i++)
		sums[i] = load(data + 16 * i);
	sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128(crc));
	for (data += 64, length -= 64; length >= 64; data += 64, length -= 64) {
		for (int i = 0; i < 4; i++)
			sums[i] = fold(sums[i], by_four, load(data + 16 * i));
	}
	sum = sums[0];
	for (int i = 1; i < 4; i++)
		sum = fold(sum, by_one, sums[i]);
	for (; length >= 16; data += 16, length -= 16)
		sum = fold(sum, by_one, load(data));
	sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_one, 0x10));
	sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, mask), reduction, 0x00));
	sums[0] = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, mask), barrett, 0x10), mask);
	sum = _mm_xor_si128(sum, _mm_clmulepi64_si128(sums[0], barrett, 0x00));
	return _mm_extract_epi32(sum, 1);
}

static bool can_fold(void)
{
	return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#else
static __u32 by_folding(__u32 crc, const __u8 *data, __u32 length)
{
	return by_table(crc, data, length);
}

static bool can_fold(void)
{
	return false;
}
#endif

__u32 frame_crc(const __u8 *data, __u32 length)
{
	__u32 crc = ~0u, folded = length & ~15u;

	if (folded >= 64 && can_fold()) {
		crc = by_folding(crc, data, folded);
		data += folded;
		length -= folded;
	}
	return ~by_table(crc, data, length);
}

enum frame_check frame_checked(const __u8 *data, __u32 length)
{
	const __u8 *end = data + length - FCS_BYTES;
	__u32 right, found;

	if (length < FCS_BYTES)
		return FRAME_BAD;
	right = frame_crc(data, length - FCS_BYTES);
	found = end[0] | end[1] << 8 | end[2] << 16 | (__u32)end[3] << 24;
	return found == right ? FRAME_GOOD : found == ~right ? FRAME_POISONED : FRAME_BAD;
}

__u32 frame_seal(__u8 *data, __u32 length)
{
	__u32 crc = frame_crc(data, length);

	for (int i = 0; i < FCS_BYTES; i++)
		data[length + i] = crc >> 8 * i;
	return length + FCS_BYTES;
}
