/* What happens next, in order of time, then in order of being scheduled. */
#ifndef TESTBED_INFINIBAND_EVENT_HEAP_H
#define TESTBED_INFINIBAND_EVENT_HEAP_H

#include <stdlib.h>

#include "api.h"

enum event_kind {
	EVENT_ARRIVE,  /* a frame is in whole at a port */
	EVENT_CREDITS, /* an update of credits is at a port */
	EVENT_FREE,    /* the line behind a port is free */
	EVENT_TELL,    /* a port may tell of its credits */
};

struct event {
	__u64 at_ns, order, argument;
	__u32 kind, port, frame, epoch;
};

struct event_heap {
	struct event *events;
	__u32 count, room;
	__u64 order;
};

static inline bool event_before(const struct event *a, const struct event *b)
{
	return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

/* False: no memory. */
static inline bool event_push(struct event_heap *heap, struct event event)
{
	__u32 at = heap->count;

	if (heap->count == heap->room) {
		__u32 room = heap->room ? 2 * heap->room : 1024;
		struct event *events = realloc(heap->events, room * sizeof(*events));
		if (!events)
			return false;
		heap->events = events;
		heap->room = room;
	}
	event.order = heap->order++;
	heap->count++;
	for (; at; at = (at - 1) / 2) {
		struct event *parent = &heap->events[(at - 1) / 2];
		if (!event_before(&event, parent))
			break;
		heap->events[at] = *parent;
	}
	heap->events[at] = event;
	return true;
}

/* The first event, which there must be. */
static inline struct event event_pop(struct event_heap *heap)
{
	struct event first = heap->events[0], last = heap->events[--heap->count];
	__u32 at = 0, child;

	while ((child = 2 * at + 1) < heap->count) {
		if (child + 1 < heap->count && event_before(&heap->events[child + 1], &heap->events[child]))
			child++;
		if (!event_before(&heap->events[child], &last))
			break;
		heap->events[at] = heap->events[child];
		at = child;
	}
	if (heap->count)
		heap->events[at] = last;
	return first;
}

static inline __u64 event_next_ns(const struct event_heap *heap)
{
	return heap->count ? heap->events[0].at_ns : NEVER;
}

#endif
