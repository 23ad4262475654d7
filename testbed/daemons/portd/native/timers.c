/* Timers by key: a binary heap that knows where each key is, so that a flood of pause frames, each of which moves an
 * expiry, makes it no longer. */
#include "timers.h"

#include <stdlib.h>

struct timers *timers_new(__u32 keys)
{
	struct timers *timers = calloc(1, sizeof(*timers));

	if (!timers)
		return NULL;
	timers->keys = keys;
	timers->heap = calloc(keys, sizeof(*timers->heap));
	timers->place = calloc(keys, sizeof(*timers->place));
	if (!timers->heap || !timers->place) {
		timers_free(timers);
		return NULL;
	}
	return timers;
}

void timers_free(struct timers *timers)
{
	if (!timers)
		return;
	free(timers->heap);
	free(timers->place);
	free(timers);
}

static void put(struct timers *timers, __u32 at, struct timer timer)
{
	timers->heap[at] = timer;
	timers->place[timer.key] = at + 1;
}

/* Puts `timer` where it belongs, from the free place `at` upwards or downwards. */
static void settle(struct timers *timers, __u32 at, struct timer timer)
{
	while (at) {
		__u32 parent = (at - 1) / 2;
		if (timers->heap[parent].when_ns <= timer.when_ns)
			break;
		put(timers, at, timers->heap[parent]);
		at = parent;
	}
	for (;;) {
		__u32 child = 2 * at + 1;
		if (child + 1 < timers->count && timers->heap[child + 1].when_ns < timers->heap[child].when_ns)
			child++;
		if (child >= timers->count || timers->heap[child].when_ns >= timer.when_ns)
			break;
		put(timers, at, timers->heap[child]);
		at = child;
	}
	put(timers, at, timer);
}

void timers_set(struct timers *timers, __u32 key, __u64 when_ns)
{
	struct timer timer = {when_ns, key};

	if (key >= timers->keys)
		return;
	settle(timers, timers->place[key] ? timers->place[key] - 1 : timers->count++, timer);
}

void timers_cancel(struct timers *timers, __u32 key)
{
	__u32 at;
	struct timer last;

	if (key >= timers->keys || !timers->place[key])
		return;
	at = timers->place[key] - 1;
	timers->place[key] = 0;
	last = timers->heap[--timers->count];
	if (at < timers->count)
		settle(timers, at, last);
}

void timers_clear(struct timers *timers)
{
	while (timers->count)
		timers->place[timers->heap[--timers->count].key] = 0;
}

__u32 timers_count(const struct timers *timers)
{
	return timers->count;
}

__u64 timers_next(const struct timers *timers)
{
	return timers->count ? timers->heap[0].when_ns : NEVER;
}

__s64 timers_pop(struct timers *timers, __u64 now_ns)
{
	__u32 key;

	if (!timers->count || timers->heap[0].when_ns > now_ns)
		return -1;
	key = timers->heap[0].key;
	timers_cancel(timers, key);
	return key;
}
