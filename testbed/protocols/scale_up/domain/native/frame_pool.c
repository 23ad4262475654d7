/* The frames that a process has in hand. */
#include "frame_pool.h"

#include <stdlib.h>

bool frame_pool_init(struct frame_pool *pool, __u32 count, __u32 stride)
{
	*pool = (struct frame_pool){.stride = stride, .count = count};
	pool->frames = calloc(count, sizeof(*pool->frames));
	pool->bytes = calloc(count, stride);
	if (!pool->frames || !pool->bytes) {
		frame_pool_close(pool);
		return false;
	}
	for (__u32 frame = count; frame-- > 0;)
		frame_give(pool, frame);
	return true;
}

void frame_pool_close(struct frame_pool *pool)
{
	free(pool->frames);
	free(pool->bytes);
	*pool = (struct frame_pool){0};
}
