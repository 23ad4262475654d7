/* The CRC-32 of Ethernet (IEEE 802.3, 3.2.9), by tables for little, and for more by folding.
 *
 * zlib's, by tables, takes 3 us for 4 KiB, a quarter of all that a packet costs. A CRC is linear: 16 bytes of a message
 * have the same effect as their product with a power of x, modulo the polynomial, 16 or 64 bytes further on. So whole
 * vectors are folded onto those after them by carry-less multiplication, where the CPU has that, and tables do the rest.
 * Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009. */
#ifndef TESTBED_CRC32_H
#define TESTBED_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define CRC32_POLYNOMIAL 0xEDB88320u /* 0x04C11DB7, bits reversed */
#define CRC32_LEAST_FOLDED 128 /* below, tables are as fast */
#define CRC32_LEAST_WIDE 256

static uint32_t tables[8][256];
static int folds, folds_wide;

__attribute__((constructor)) static void crc32_prepare(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t value = byte;

		for (int bit = 0; bit < 8; bit++)
			value = value >> 1 ^ (value & 1 ? CRC32_POLYNOMIAL : 0);
		tables[0][byte] = value;
	}
	for (int row = 1; row < 8; row++)
		for (int byte = 0; byte < 256; byte++)
			tables[row][byte] = tables[row - 1][byte] >> 8 ^ tables[0][tables[row - 1][byte] & 0xFF];
#if defined(__x86_64__)
	folds = __builtin_cpu_supports("pclmul");
	folds_wide = folds && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") &&
		     __builtin_cpu_supports("avx512dq");
#endif
}

/* Here and below, `value` is the register itself, without the inversion before and after that makes it a CRC. */
static uint32_t crc32_by_tables(uint32_t value, const unsigned char *data, size_t length)
{
	for (; length >= 8; length -= 8, data += 8) {
		value ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
		value = tables[7][value & 0xFF] ^ tables[6][value >> 8 & 0xFF] ^ tables[5][value >> 16 & 0xFF] ^
			tables[4][value >> 24] ^ tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^
			tables[0][data[7]];
	}
	while (length--)
		value = value >> 8 ^ tables[0][(value ^ *data++) & 0xFF];
	return value;
}

#if defined(__x86_64__)
__attribute__((target("pclmul,sse2"), always_inline)) static inline __m128i fold(__m128i front, __m128i powers,
										  __m128i onto)
{
	__m128i low = _mm_clmulepi64_si128(front, powers, 0x00), high = _mm_clmulepi64_si128(front, powers, 0x11);

	return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

/* `length` is a multiple of 16, and 64 at least. */
__attribute__((target("pclmul,sse2"))) static uint32_t by_folding(uint32_t value, const unsigned char *data,
								  size_t length)
{
	const __m128i by_64 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4); /* x**(512 - 32), x**(512 + 32), reflected */
	const __m128i by_16 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0); /* x**(128 - 32), x**(128 + 32), reflected */
	const __m128i *at = (const __m128i *)data, *end = at + length / 16;
	__m128i lanes[4];
	unsigned char rest[16];

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
	return crc32_by_tables(0, rest, sizeof(rest));
}

#define CRC32_WIDE "vpclmulqdq,pclmul,avx512f,avx512dq"

__attribute__((target(CRC32_WIDE), always_inline)) static inline __m512i fold_wide(__m512i front, __m512i powers, __m512i onto)
{
	__m512i low = _mm512_clmulepi64_epi128(front, powers, 0x00), high = _mm512_clmulepi64_epi128(front, powers, 0x11);

	return _mm512_ternarylogic_epi64(low, high, onto, 0x96); /* all three, exclusive or */
}

__attribute__((target(CRC32_WIDE), always_inline)) static inline __m512i taken(const unsigned char *data, unsigned char *copy)
{
	__m512i vector = _mm512_loadu_si512(data);

	if (copy)
		_mm512_storeu_si512(copy, vector);
	return vector;
}

/* The same with four vectors side by side, as CPUs since 2019 have it, of any `length` from 256 on. What has been read
 * is written to `copy`, unless that is NULL, while it is in a register. */
__attribute__((target(CRC32_WIDE), always_inline)) static inline uint32_t folded_wide(uint32_t value, const unsigned char *data,
										size_t length, unsigned char *copy)
{
	const __m512i by_256 = _mm512_broadcast_i64x2(_mm_set_epi64x(0x1322D1430, 0x11542778A)); /* x**(2048 -+ 32) */
	const __m512i by_64 = _mm512_broadcast_i64x2(_mm_set_epi64x(0x1C6E41596, 0x154442BD4));
	unsigned char rest[64];
	size_t at = 256;
	__m512i lanes[4];

	for (int lane = 0; lane < 4; lane++)
		lanes[lane] = taken(data + 64 * lane, copy ? copy + 64 * lane : NULL);
	lanes[0] = _mm512_xor_si512(lanes[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)value)));
	for (; at + 256 <= length; at += 256)
		for (int lane = 0; lane < 4; lane++)
			lanes[lane] = fold_wide(lanes[lane], by_256,
						taken(data + at + 64 * lane, copy ? copy + at + 64 * lane : NULL));
	for (int lane = 1; lane < 4; lane++)
		lanes[0] = fold_wide(lanes[0], by_64, lanes[lane]);
	for (; at + 64 <= length; at += 64)
		lanes[0] = fold_wide(lanes[0], by_64, taken(data + at, copy ? copy + at : NULL));
	_mm512_storeu_si512(rest, lanes[0]);
	value = by_folding(0, rest, sizeof(rest));
	if (copy)
		memcpy(copy + at, data + at, length - at);
	return crc32_by_tables(value, data + at, length - at);
}

__attribute__((target(CRC32_WIDE))) static uint32_t by_wide_folding(uint32_t value, const unsigned char *data, size_t length)
{
	return folded_wide(value, data, length, NULL);
}

__attribute__((target(CRC32_WIDE))) static uint32_t copied_by_wide_folding(uint32_t value, const unsigned char *data,
								     size_t length, unsigned char *copy)
{
	return folded_wide(value, data, length, copy);
}
#endif

static inline uint32_t crc32_update(uint32_t value, const unsigned char *data, size_t length)
{
#if defined(__x86_64__)
	if (folds_wide && length >= CRC32_LEAST_WIDE)
		return by_wide_folding(value, data, length);
	if (folds && length >= CRC32_LEAST_FOLDED) {
		size_t whole = length & ~(size_t)15;

		value = by_folding(value, data, whole);
		data += whole;
		length -= whole;
	}
#endif
	return crc32_by_tables(value, data, length);
}

/* The same, and a copy of the data. */
static inline uint32_t crc32_update_copying(uint32_t value, const unsigned char *data, size_t length, unsigned char *copy)
{
#if defined(__x86_64__)
	if (folds_wide && length >= CRC32_LEAST_WIDE)
		return copied_by_wide_folding(value, data, length, copy);
#endif
	memcpy(copy, data, length);
	return crc32_update(value, copy, length);
}

#endif
