/* The consumer's side of a BPF ring buffer, over its memory. Source: kernel Documentation/bpf/ringbuf.rst. */
#ifndef TESTBED_PORTD_RING_H
#define TESTBED_PORTD_RING_H

#include "api.h"

struct ring {
	__u64 *consumed;         /* our position, which the kernel reads */
	const __u64 *produced;   /* the kernel's */
	const __u8 *data;        /* `size` bytes, mapped twice in a row, so that no record is ever in two pieces */
	__u64 size;              /* a power of two */
	__u64 position;
};

enum record { NO_RECORD, A_RECORD, BROKEN_RECORD };

/* Whether there is anything to read. */
bool ring_waits(const struct ring *ring);

/* Takes the next record, which must have the length of `event`. One that is not yet committed ends the reading. */
enum record ring_take(struct ring *ring, struct event *event);

#endif
