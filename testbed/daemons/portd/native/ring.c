/* The consumer's side of a BPF ring buffer. */
#include "ring.h"

#include <string.h>

#define BUSY (1u << 31)
#define DISCARD (1u << 30)
#define HEADER_BYTES 8

bool ring_waits(const struct ring *ring)
{
	return ring->size && ring->position < __atomic_load_n(ring->produced, __ATOMIC_ACQUIRE);
}

static void advance(struct ring *ring, __u64 position)
{
	ring->position = position;
	/* The kernel may use the place of what we have read from now on. Sequentially consistent, because it looks at
	 * this position after a commit to decide whether to wake us, and we look at its position after this. */
	__atomic_store_n(ring->consumed, position, __ATOMIC_SEQ_CST);
}

enum record ring_take(struct ring *ring, struct event *event)
{
	while (ring_waits(ring)) {
		__u64 produced = __atomic_load_n(ring->produced, __ATOMIC_ACQUIRE);
		const __u8 *record = ring->data + (ring->position & (ring->size - 1));
		__u32 header = __atomic_load_n((const __u32 *)record, __ATOMIC_ACQUIRE);
		__u32 length = header & ~(BUSY | DISCARD);
		__u64 next = ring->position + ((length + HEADER_BYTES + 7ull) & ~7ull);
		if (header & BUSY)
			return NO_RECORD;
		if (next > produced || next - ring->position > ring->size) {
			advance(ring, produced); /* no ring of the kernel's making */
			return BROKEN_RECORD;
		}
		if (!(header & DISCARD) && length == sizeof(*event))
			memcpy(event, record + HEADER_BYTES, sizeof(*event));
		advance(ring, next);
		if (!(header & DISCARD))
			return length == sizeof(*event) ? A_RECORD : BROKEN_RECORD;
	}
	return NO_RECORD;
}
