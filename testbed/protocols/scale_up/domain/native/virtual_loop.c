/* A domain in virtual time. */
#include "virtual_loop.h"

#include <stdlib.h>

struct virtual_loop *virtual_loop_new(__u32 gpus, __u32 planes)
{
	struct virtual_loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->gpus = gpus;
	loop->planes = planes;
	loop->endpoints = calloc(gpus, sizeof(*loop->endpoints));
	if (loop->endpoints)
		return loop;
	free(loop);
	return NULL;
}

void virtual_loop_free(struct virtual_loop *loop)
{
	if (!loop)
		return;
	free(loop->endpoints);
	free(loop);
}

void virtual_loop_set_switch(struct virtual_loop *loop, struct scale_up_switch *sw)
{
	loop->sw = sw;
}

void virtual_loop_set_endpoint(struct virtual_loop *loop, __u32 gpu, struct endpoint *endpoint)
{
	if (gpu < loop->gpus)
		loop->endpoints[gpu] = endpoint;
}

__u64 virtual_loop_lost(const struct virtual_loop *loop)
{
	return loop->lost;
}

/* What a GPU's end has sent comes to the switch. */
static void carry_up(struct virtual_loop *loop, __u32 gpu, struct endpoint *endpoint, __u64 now)
{
	__u32 frame;

	for (__u32 plane = 0; plane < loop->planes; plane++) {
		while ((frame = frame_shift(&endpoint->pool, &endpoint->planes[plane].out)) != NO_FRAME) {
			if (!loop->sw || !switch_put(loop->sw, plane * loop->gpus + gpu, frame_bytes(&endpoint->pool, frame),
						     endpoint->pool.frames[frame].length, now))
				loop->lost++;
			link_gone(&endpoint->pool, frame);
		}
	}
}

/* What the switch has sent comes to the GPUs' ends. */
static void carry_down(struct virtual_loop *loop, __u64 now)
{
	struct scale_up_switch *sw = loop->sw;
	__u32 frame;

	for (__u32 i = 0; i < sw->ready_count; i++) {
		__u32 number = sw->ready[i];
		struct switch_port *port = &sw->ports[number];
		struct endpoint *endpoint = loop->endpoints[number % loop->gpus];

		while ((frame = frame_shift(&sw->pool, &port->out)) != NO_FRAME) {
			if (!endpoint || !endpoint_put(endpoint, number / loop->gpus, frame_bytes(&sw->pool, frame),
						       sw->pool.frames[frame].length, now))
				loop->lost++;
			switch_sent(sw, frame, now);
		}
		port->listed = false;
	}
	sw->ready_count = 0;
}

/* Whether an end has something to be collected. */
static bool work(struct virtual_loop *loop, __u64 now)
{
	bool done = false;

	for (__u32 gpu = 0; gpu < loop->gpus; gpu++) {
		struct endpoint *endpoint = loop->endpoints[gpu];
		if (!endpoint)
			continue;
		if (endpoint_next_timer(endpoint) <= now) {
			endpoint_work(endpoint, now);
			carry_up(loop, gpu, endpoint, now);
		}
		done |= endpoint->completed;
	}
	if (loop->sw && switch_next_timer(loop->sw) <= now) {
		switch_work(loop->sw, now);
		carry_down(loop, now);
	}
	return done;
}

static __u64 next_timer(const struct virtual_loop *loop)
{
	__u64 next = loop->sw ? switch_next_timer(loop->sw) : NEVER;

	for (__u32 gpu = 0; gpu < loop->gpus; gpu++) {
		if (loop->endpoints[gpu])
			next = earlier(next, endpoint_next_timer(loop->endpoints[gpu]));
	}
	return next;
}

__u64 virtual_loop_run(struct virtual_loop *loop, __u64 now, __u64 until)
{
	__u64 next;

	while (!work(loop, now)) {
		next = next_timer(loop);
		/* What is due again at once is done a ns later, so that time goes on. */
		next = next == NEVER ? NEVER : later(now + 1, next);
		if (next > until)
			return next;
		now = next;
	}
	return now;
}
