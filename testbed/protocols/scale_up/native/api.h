/* What every part of the link layer's native side needs: integer types, cyclic numbers, and what Python may call. */
#ifndef TESTBED_SCALE_UP_API_H
#define TESTBED_SCALE_UP_API_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>

#define API __attribute__((visibility("default"))) /* everything else stays inside the library */
#define NEVER (~0ull)                              /* a time that does not come */
#define VCS 32

/* Sequence numbers and counters of credits have 20 bits and go round (../cyclic.py). */
#define CYCLE_MASK 0xFFFFFu
#define HALF_CYCLE 0x80000u

static inline __u32 advance(__u32 number, __u32 by)
{
	return (number + by) & CYCLE_MASK;
}

/* How far `end` is ahead of `start`. */
static inline __u32 distance(__u32 start, __u32 end)
{
	return (end - start) & CYCLE_MASK;
}

#endif
