/* The switch's process. */
#define _GNU_SOURCE
#include "switch_loop.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCHES 8           /* of frames at most: after so many, what they led to is done */
#define RETRY_NS 50000      /* after the kernel had no room */
#define SLOT_NS 1000000
#define NO_PORT (~0u)

/* ---- the ports of interfaces: a table with open addressing, half of it free at least */

static __u32 place_of(const struct switch_loop *loop, int interface)
{
	__u32 place = (__u32)interface * 2654435761u >> 8 & loop->ports_mask;

	while (loop->ports[place] && loop->interfaces[loop->ports[place] - 1] != interface)
		place = (place + 1) & loop->ports_mask;
	return place;
}

static __u32 find_port(const struct switch_loop *loop, int interface)
{
	__u32 found = loop->ports[place_of(loop, interface)];

	return found ? found - 1 : NO_PORT;
}

static bool take_interfaces(struct switch_loop *loop, const int *interfaces)
{
	__u32 count = loop->sw->port_count, size = 2;

	while (size < 2 * count)
		size *= 2;
	loop->ports_mask = size - 1;
	loop->interfaces = calloc(count, sizeof(int));
	loop->ports = calloc(size, sizeof(__u32));
	if (!loop->interfaces || !loop->ports)
		return false;
	memcpy(loop->interfaces, interfaces, count * sizeof(int));
	for (__u32 port = 0; port < count; port++)
		loop->ports[place_of(loop, interfaces[port])] = port + 1;
	return true;
}

struct switch_loop *switch_loop_new(struct scale_up_switch *sw, int socket, struct packet_ring *ring,
				    int pause_socket, const int *interfaces, int control, __u64 quantum_ns)
{
	struct switch_loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->sw = sw;
	loop->quantum_ns = quantum_ns;
	loop->socket = socket;
	loop->ring = ring;
	loop->pause_socket = pause_socket;
	loop->batch = batch_new();
	loop->control = control;
	if (loop->batch && take_interfaces(loop, interfaces))
		return loop;
	switch_loop_free(loop);
	return NULL;
}

void switch_loop_free(struct switch_loop *loop)
{
	if (!loop)
		return;
	batch_free(loop->batch);
	free(loop->interfaces);
	free(loop->ports);
	free(loop);
}

static void receive(struct switch_loop *loop, int socket, struct packet_ring *ring)
{
	struct scale_up_switch *sw = loop->sw;
	__u32 frames[AT_ONCE];
	int count = AT_ONCE;

	for (int batch = 0; batch < BATCHES && count == AT_ONCE; batch++) {
		/* Some are left for what the switch itself says. */
		count = batch_receive(loop->batch, socket, ring, &sw->pool, sw->port_count, frames);
		__u64 now = monotonic_ns();
		if (count > 0)
			loop->came += count;
		for (int i = 0; i < count; i++) {
			__u32 port = find_port(loop, batch_interface(loop->batch, i));
			if (port == NO_PORT)
				frame_give(&sw->pool, frames[i]);
			else
				switch_arrive(sw, port, frames[i], now);
		}
	}
}

/* The first frames of ports that have some to send, those of a port in their order. */
struct gathered {
	__u32 frames[AT_ONCE], ports[AT_ONCE];
	int interfaces[AT_ONCE];
	__u64 *failures[AT_ONCE];
	int count;
};

/* False: the kernel had no room for some. */
static bool send_gathered(struct switch_loop *loop, struct gathered *gathered)
{
	struct scale_up_switch *sw = loop->sw;
	int count = gathered->count;
	int done = batch_send_by(loop->batch, loop->socket, &sw->pool, gathered->frames, gathered->interfaces,
				 gathered->failures, count);
	__u64 now = monotonic_ns();

	for (int i = 0; i < done; i++)
		switch_sent(sw, frame_shift(&sw->pool, &sw->ports[gathered->ports[i]].out), now);
	gathered->count = 0;
	return done == count;
}

static bool send_ready(struct switch_loop *loop)
{
	struct scale_up_switch *sw = loop->sw;
	struct gathered gathered = {.count = 0};

	for (__u32 i = 0; i < sw->ready_count; i++) {
		__u32 number = sw->ready[i];
		struct switch_port *port = &sw->ports[number];
		__u32 frame = port->out.first;
		for (__u32 left = port->out.count; left; left--) {
			__u32 next = sw->pool.frames[frame].next;
			gathered.frames[gathered.count] = frame;
			gathered.ports[gathered.count] = number;
			gathered.interfaces[gathered.count] = loop->interfaces[number];
			gathered.failures[gathered.count++] = &port->link.counters.send_failures;
			if (gathered.count == AT_ONCE && !send_gathered(loop, &gathered))
				return false;
			frame = next;
		}
	}
	return !gathered.count || send_gathered(loop, &gathered);
}

static void send_all(struct switch_loop *loop)
{
	struct scale_up_switch *sw = loop->sw;
	__u32 left = 0;

	send_ready(loop);
	for (__u32 i = 0; i < sw->ready_count; i++) {
		__u32 number = sw->ready[i];
		if (!sw->ports[number].out.count) {
			sw->ports[number].listed = false;
			continue;
		}
		sw->ready[left++] = number;
		sw->wake_ns[number] = earlier(sw->wake_ns[number], monotonic_ns() + RETRY_NS);
	}
	sw->ready_count = left;
}

/* Whether Python has something to do. By ppoll(2), for epoll(7) would be called for each frame that comes or has been
 * sent. */
static bool wait_and_receive(struct switch_loop *loop, __u64 deadline)
{
	enum { CONTROL, FRAMES, PAUSES, ALL };
	struct pollfd polled[ALL] = {
		[CONTROL] = {.fd = loop->control, .events = POLLIN},
		[FRAMES] = {.fd = loop->socket, .events = POLLIN},
		[PAUSES] = {.fd = loop->pause_socket, .events = POLLIN}, /* less than 0: none */
	};
	__u64 before = monotonic_ns(), left = deadline > before ? deadline - before : 0;
	struct timespec timeout = {left / 1000000000, left % 1000000000};
	int count = ppoll(polled, ALL, deadline == NEVER ? NULL : &timeout, NULL);

	if (left)
		loop->asleep_ns += monotonic_ns() - before;
	if (count <= 0)
		return count < 0;
	if (polled[FRAMES].revents & POLLERR)
		socket_forget_error(loop->socket);
	if (polled[FRAMES].revents)
		receive(loop, loop->socket, loop->ring);
	if (polled[PAUSES].revents)
		receive(loop, loop->pause_socket, NULL);
	return polled[CONTROL].revents;
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
