/* The frames that a process has in hand: all memory is there from the start, and a frame stays where it was received
 * until it has been sent. A frame is in one list at a time, or in none. */
#ifndef TESTBED_SCALE_UP_FRAME_POOL_H
#define TESTBED_SCALE_UP_FRAME_POOL_H

#include "types.h"

#define NO_FRAME (~0u)

struct frame {
	__u64 due_ns; /* when its last bit arrives, or has arrived */
	__u64 head_ns; /* in a switch: since when it is there, and no frame for another output before it in its queue */
	__u64 came;   /* its place among the frames of its link */
	__u32 length;
	__u32 next;
	__u16 port, output; /* that it came in by, and goes out by */
	__u8 vc;
	bool poisoned;
	bool kept;  /* for a replay of the link that it went out by */
	bool going; /* in a list of frames to be sent now */
	__u16 damaged; /* the place of a byte with a wrong bit, which is put right when it has been sent; 0: none */
};

struct frame_list {
	__u32 first, last, count;
};

struct frame_pool {
	struct frame *frames;
	__u8 *bytes;
	__u32 stride; /* the longest frame */
	__u32 count;
	struct frame_list free;
};

/* False: no memory. */
bool frame_pool_init(struct frame_pool *pool, __u32 count, __u32 stride);
void frame_pool_close(struct frame_pool *pool);

static inline __u8 *frame_bytes(const struct frame_pool *pool, __u32 frame)
{
	return pool->bytes + (size_t)frame * pool->stride;
}

static inline void frame_append(struct frame_pool *pool, struct frame_list *list, __u32 frame)
{
	pool->frames[frame].next = NO_FRAME;
	if (list->count++)
		pool->frames[list->last].next = frame;
	else
		list->first = frame;
	list->last = frame;
}

/* The first of a list, which is out of it then; NO_FRAME: it is empty. */
static inline __u32 frame_shift(struct frame_pool *pool, struct frame_list *list)
{
	__u32 frame = list->first;

	if (!list->count)
		return NO_FRAME;
	list->first = pool->frames[frame].next;
	list->count--;
	return frame;
}

static inline __u32 frame_take(struct frame_pool *pool)
{
	__u32 frame = frame_shift(pool, &pool->free);

	if (frame != NO_FRAME)
		pool->frames[frame].kept = pool->frames[frame].going = pool->frames[frame].poisoned = pool->frames[frame].damaged = false;
	return frame;
}

/* The one used last is used again first: its memory is still near. */
static inline void frame_give(struct frame_pool *pool, __u32 frame)
{
	pool->frames[frame].next = pool->free.first;
	if (!pool->free.count++)
		pool->free.last = frame;
	pool->free.first = frame;
}

#endif
