/* The switch's process. */
#define _GNU_SOURCE
#include "switch_loop.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 64 /* after so many, what they led to is done */
#define RETRY_NS 50000      /* after the kernel had no room */
#define CONTROL (~0ull)
#define SLOT_NS 1000000
#define PAUSE (1ull << 32)  /* a port's socket for PFC */

static bool watch(struct switch_loop *loop, int descriptor, __u64 what)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = what};

	return descriptor < 0 || !epoll_ctl(loop->epoll, EPOLL_CTL_ADD, descriptor, &event);
}

struct switch_loop *switch_loop_new(struct scale_up_switch *sw, const int *sockets, const int *pause_sockets, int control,
				    __u64 quantum_ns)
{
	struct switch_loop *loop = calloc(1, sizeof(*loop));
	bool complete;

	if (!loop)
		return NULL;
	loop->sw = sw;
	loop->quantum_ns = quantum_ns;
	loop->batch = batch_new();
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	loop->sockets = calloc(sw->port_count, sizeof(int));
	loop->pause_sockets = calloc(sw->port_count, sizeof(int));
	complete = loop->batch && loop->epoll >= 0 && loop->sockets && loop->pause_sockets && watch(loop, control, CONTROL);
	for (__u32 port = 0; complete && port < sw->port_count; port++) {
		loop->sockets[port] = sockets[port];
		loop->pause_sockets[port] = pause_sockets[port];
		complete = watch(loop, sockets[port], port) && watch(loop, pause_sockets[port], port | PAUSE);
	}
	if (complete)
		return loop;
	switch_loop_free(loop);
	return NULL;
}

void switch_loop_free(struct switch_loop *loop)
{
	if (!loop)
		return;
	batch_free(loop->batch);
	if (loop->epoll >= 0)
		close(loop->epoll);
	free(loop->sockets);
	free(loop->pause_sockets);
	free(loop);
}

static void receive(struct switch_loop *loop, __u32 port, int socket)
{
	struct scale_up_switch *sw = loop->sw;
	__u32 frames[AT_ONCE];
	/* Some are left for what the switch itself says. */
	int count = batch_receive(loop->batch, socket, &sw->pool, sw->port_count, frames);
	__u64 now = monotonic_ns();

	if (count > 0)
		loop->came += count;
	for (int i = 0; i < count; i++)
		switch_arrive(sw, port, frames[i], now);
}

/* All frames of a port, in their order; false: the kernel had no room for some. */
static bool send_port(struct switch_loop *loop, struct switch_port *port, int socket)
{
	struct scale_up_switch *sw = loop->sw;

	while (port->out.count) {
		__u32 frames[AT_ONCE], number = port->out.first;
		int count = 0, done;
		__u64 now;
		for (; count < AT_ONCE && count < (int)port->out.count; number = sw->pool.frames[number].next)
			frames[count++] = number;
		done = batch_send(loop->batch, socket, &sw->pool, frames, count, &port->link.counters.send_failures);
		now = monotonic_ns();
		for (int i = 0; i < done; i++)
			switch_sent(sw, frame_shift(&sw->pool, &port->out), now);
		if (done < count)
			return false;
	}
	return true;
}

static void send_all(struct switch_loop *loop)
{
	struct scale_up_switch *sw = loop->sw;
	__u32 left = 0;

	for (__u32 i = 0; i < sw->ready_count; i++) {
		__u32 number = sw->ready[i];
		struct switch_port *port = &sw->ports[number];
		if (send_port(loop, port, loop->sockets[number])) {
			port->listed = false;
			continue;
		}
		sw->ready[left++] = number;
		sw->wake_ns[number] = earlier(sw->wake_ns[number], monotonic_ns() + RETRY_NS);
	}
	sw->ready_count = left;
}

/* Whether Python has something to do. */
static bool wait_and_receive(struct switch_loop *loop, __u64 deadline)
{
	struct epoll_event events[EVENTS];
	__u64 before = monotonic_ns(), left = deadline > before ? deadline - before : 0;
	struct timespec timeout = {left / 1000000000, left % 1000000000};
	int count = epoll_pwait2(loop->epoll, events, EVENTS, deadline == NEVER ? NULL : &timeout, NULL);
	bool asked = count < 0;

	if (left)
		loop->asleep_ns += monotonic_ns() - before;
	for (int i = 0; i < count; i++) {
		__u64 what = events[i].data.u64;
		__u32 port = what;
		if (what == CONTROL)
			asked = true;
		else
			receive(loop, port, what & PAUSE ? loop->pause_sockets[port] : loop->sockets[port]);
	}
	return asked;
}

/* Whether more than one frame comes in a quantum, on average. */
static bool is_busy(struct switch_loop *loop)
{
	__u64 now = monotonic_ns(), limit = SLOT_NS / loop->quantum_ns;

	if (now >= loop->slot_ns + SLOT_NS) {
		loop->came_before = now < loop->slot_ns + 2 * SLOT_NS ? loop->came : 0;
		loop->came = 0;
		loop->slot_ns = now;
	}
	return loop->came > limit || loop->came_before > limit;
}

/* A FIFO process would take each frame as it comes, from under the hands of who sends the next. */
static void gather(struct switch_loop *loop)
{
	struct timespec pause = {0, loop->quantum_ns};

	if (!loop->quantum_ns || !is_busy(loop))
		return;
	nanosleep(&pause, NULL);
	loop->asleep_ns += loop->quantum_ns;
}

void switch_loop_run(struct switch_loop *loop)
{
	do {
		switch_work(loop->sw, monotonic_ns());
		send_all(loop);
		gather(loop);
	} while (!wait_and_receive(loop, switch_next_timer(loop->sw)));
}

__u64 switch_loop_asleep_ns(const struct switch_loop *loop)
{
	return loop->asleep_ns;
}
