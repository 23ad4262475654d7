/* The agent's waiting. */
#define _GNU_SOURCE
#include "loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 16 /* of work without waiting, before the control is looked at all the same */

struct loop *loop_new(int control, int kick_priority)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = -1};
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	loop->kicker = kicker_new(kick_priority);
	if (loop->epoll < 0 || !loop->kicker || epoll_ctl(loop->epoll, EPOLL_CTL_ADD, control, &event)) {
		loop_free(loop);
		return NULL;
	}
	return loop;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	kicker_free(loop->kicker);
	if (loop->epoll >= 0)
		close(loop->epoll);
	free(loop);
}

int loop_add(struct loop *loop, struct lab *lab, int ring)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = ring};

	if (loop->count == LABS)
		return ENOSPC;
	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, ring, &event))
		return errno;
	lab->kicker = loop->kicker;
	loop->labs[loop->count] = lab;
	loop->rings[loop->count++] = ring;
	return 0;
}

void loop_remove(struct loop *loop, struct lab *lab)
{
	for (__u32 i = 0; i < loop->count; i++) {
		if (loop->labs[i] != lab)
			continue;
		epoll_ctl(loop->epoll, EPOLL_CTL_DEL, loop->rings[i], NULL);
		kicker_drain(loop->kicker);
		lab->kicker = NULL;
		loop->count--;
		loop->labs[i] = loop->labs[loop->count];
		loop->rings[i] = loop->rings[loop->count];
		return;
	}
}

/* Whether something is left. */
static bool work(struct loop *loop)
{
	bool left = false;

	for (__u32 i = 0; i < loop->count; i++)
		left |= lab_work(loop->labs[i]);
	return left;
}

static bool has_notes(const struct loop *loop)
{
	for (__u32 i = 0; i < loop->count; i++) {
		if (loop->labs[i]->core->notes->count)
			return true;
	}
	return false;
}

static __u64 nearest(const struct loop *loop)
{
	__u64 nearest = NEVER;

	for (__u32 i = 0; i < loop->count; i++) {
		__u64 deadline = lab_deadline(loop->labs[i]);
		if (deadline < nearest)
			nearest = deadline;
	}
	return nearest;
}

/* Whether Python has something to do. */
static bool wait_until(struct loop *loop, __u64 deadline)
{
	struct epoll_event events[16];
	__u64 now = clock_ns(), left = deadline > now ? deadline - now : 0;
	struct timespec timeout = {left / 1000000000, left % 1000000000};
	int count = epoll_pwait2(loop->epoll, events, 16, deadline == NEVER ? NULL : &timeout, NULL);

	for (int i = 0; i < count; i++) {
		if (events[i].data.fd < 0)
			return true;
	}
	return count < 0;
}

void loop_run(struct loop *loop)
{
	for (;;) {
		bool left = true;
		for (int round = 0; left && round < ROUNDS; round++)
			left = work(loop);
		if (has_notes(loop))
			return;
		if (wait_until(loop, left ? 0 : nearest(loop)))
			return;
	}
}
