/* The waiting of a process that has endpoints. */
#define _GNU_SOURCE
#include "endpoint_loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 8
#define RETRY_NS 50000 /* after the kernel had no room */
#define WATCHED (~0ull)

/* False: no memory. */
static bool poll_too(struct endpoint_loop *loop, int descriptor, struct place place)
{
	if (loop->polled_count == loop->polled_room) {
		__u32 room = 2 * loop->polled_room + 8;
		struct pollfd *polled = realloc(loop->polled, room * sizeof(*polled));
		struct place *places;
		if (!polled)
			return false;
		loop->polled = polled;
		places = realloc(loop->places, room * sizeof(*places));
		if (!places)
			return false;
		loop->places = places;
		loop->polled_room = room;
	}
	loop->polled[loop->polled_count] = (struct pollfd){.fd = descriptor, .events = POLLIN};
	loop->places[loop->polled_count++] = place;
	return true;
}

struct endpoint_loop *endpoint_loop_new(void)
{
	struct endpoint_loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->batch = batch_new();
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (loop->batch && loop->epoll >= 0 && poll_too(loop, loop->epoll, (struct place){0}))
		return loop;
	endpoint_loop_free(loop);
	return NULL;
}

void endpoint_loop_free(struct endpoint_loop *loop)
{
	if (!loop)
		return;
	batch_free(loop->batch);
	if (loop->epoll >= 0)
		close(loop->epoll);
	free(loop->polled);
	free(loop->places);
	free(loop);
}

/* What an event of a socket for PFC says: the socket, the endpoint and the plane. */
static int watch_pauses(struct endpoint_loop *loop, int socket, struct place place)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = (__u64)socket << 32 | place.endpoint << 8 | place.plane};

	return socket < 0 || !epoll_ctl(loop->epoll, EPOLL_CTL_ADD, socket, &event) ? 0 : errno;
}

int endpoint_loop_watch(struct endpoint_loop *loop, int descriptor)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = WATCHED};

	if (loop->watched_count == LOOP_WATCHED)
		return ENOSPC;
	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, descriptor, &event))
		return errno;
	loop->watched[loop->watched_count++] = descriptor;
	return 0;
}

/* Whether what is watched ends a wait. */
static void heed(struct endpoint_loop *loop, bool heeded)
{
	struct epoll_event event = {.events = heeded ? EPOLLIN : 0, .data.u64 = WATCHED};

	for (__u32 i = 0; i < loop->watched_count; i++)
		epoll_ctl(loop->epoll, EPOLL_CTL_MOD, loop->watched[i], &event);
}

int endpoint_loop_add(struct endpoint_loop *loop, struct endpoint *endpoint, const int *sockets,
		      struct packet_ring *const *rings, const int *pause_sockets)
{
	__u32 place = 0;
	int error = 0;

	while (place < loop->count && loop->endpoints[place])
		place++;
	if (place == ENDPOINTS)
		return ENOSPC;
	for (__u32 plane = 0; !error && plane < endpoint->config.planes; plane++) {
		loop->sockets[place][plane] = sockets[plane];
		loop->rings[place][plane] = rings[plane];
		if (!poll_too(loop, sockets[plane], (struct place){place, plane}))
			error = ENOMEM;
		else
			error = watch_pauses(loop, pause_sockets[plane], (struct place){place, plane});
	}
	loop->endpoints[place] = endpoint;
	if (place == loop->count)
		loop->count++;
	if (error)
		endpoint_loop_remove(loop, endpoint);
	return error;
}

void endpoint_loop_remove(struct endpoint_loop *loop, struct endpoint *endpoint)
{
	for (__u32 place = 0; place < loop->count; place++) {
		if (loop->endpoints[place] != endpoint)
			continue;
		loop->endpoints[place] = NULL;
		/* Those for PFC go when they are closed. */
		for (__u32 i = loop->polled_count; --i;) {
			if (loop->places[i].endpoint != place)
				continue;
			loop->polled[i] = loop->polled[--loop->polled_count];
			loop->places[i] = loop->places[loop->polled_count];
		}
	}
}

/* False: the kernel had no room for some. */
static bool send_plane(struct endpoint_loop *loop, struct endpoint *endpoint, struct plane *plane, int socket)
{
	while (plane->out.count) {
		__u32 frames[AT_ONCE], number = plane->out.first;
		int count = 0, done;
		for (; count < AT_ONCE && count < (int)plane->out.count; number = endpoint->pool.frames[number].next)
			frames[count++] = number;
		done = batch_send(loop->batch, socket, &endpoint->pool, frames, count, &plane->link.counters.send_failures);
		for (int i = 0; i < done; i++)
			link_gone(&endpoint->pool, frame_shift(&endpoint->pool, &plane->out));
		if (done < count)
			return false;
	}
	return true;
}

/* Whether somebody has something to collect. */
static bool work(struct endpoint_loop *loop, __u64 *next)
{
	bool done = false;

	*next = NEVER;
	for (__u32 place = 0; place < loop->count; place++) {
		struct endpoint *endpoint = loop->endpoints[place];
		if (!endpoint)
			continue;
		endpoint_work(endpoint, monotonic_ns());
		for (__u32 plane = 0; plane < endpoint->config.planes; plane++) {
			if (!send_plane(loop, endpoint, &endpoint->planes[plane], loop->sockets[place][plane]))
				endpoint->wake_ns = earlier(endpoint->wake_ns, monotonic_ns() + RETRY_NS);
		}
		*next = earlier(*next, endpoint_next_timer(endpoint));
		done |= endpoint->completed || endpoint->inbox.count;
	}
	return done;
}

static void receive(struct endpoint_loop *loop, int socket, struct packet_ring *ring, struct place place)
{
	struct endpoint *endpoint = place.endpoint < loop->count ? loop->endpoints[place.endpoint] : NULL;
	__u32 frames[AT_ONCE];
	int count;
	__u64 now;

	if (!endpoint)
		return;
	count = batch_receive(loop->batch, socket, ring, &endpoint->pool, endpoint->config.planes * 2 * RESPONSES, frames);
	now = monotonic_ns();
	for (int i = 0; i < count; i++)
		endpoint_arrive(endpoint, place.plane, frames[i], now);
}

/* Sockets for PFC, and whether what is watched is readable. */
static bool serve_events(struct endpoint_loop *loop)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(loop->epoll, events, EVENTS, 0);
	bool asked = false;

	for (int i = 0; i < count; i++) {
		__u64 what = events[i].data.u64;
		if (what == WATCHED)
			asked = true;
		else
			receive(loop, what >> 32, NULL, (struct place){what >> 8 & 0xffffff, what & 0xff});
	}
	return asked;
}

/* Whether the caller has something to do. */
static bool wait_and_receive(struct endpoint_loop *loop, __u64 deadline)
{
	__u64 now = monotonic_ns(), left = deadline > now ? deadline - now : 0;
	struct timespec timeout = {left / 1000000000, left % 1000000000};
	int count = ppoll(loop->polled, loop->polled_count, deadline == NEVER ? NULL : &timeout, NULL);
	bool asked = count < 0 || (count && loop->polled[0].revents && serve_events(loop));

	for (__u32 i = 1; count > 0 && i < loop->polled_count; i++) {
		struct place place = loop->places[i];
		if (loop->polled[i].revents & POLLERR) /* ENETDOWN: it is told until it is asked for */
			socket_forget_error(loop->polled[i].fd);
		if (loop->polled[i].revents)
			receive(loop, loop->polled[i].fd, loop->rings[place.endpoint][place.plane], place);
	}
	return asked;
}

/* Take what came while nobody looked, before anything is taken for silence. */
static void catch_up(struct endpoint_loop *loop)
{
	for (int i = 0; i < 4; i++) {
		if (wait_and_receive(loop, 0))
			break;
	}
}

void endpoint_loop_run(struct endpoint_loop *loop, __u64 until_ns)
{
	__u64 next;
	bool done;

	catch_up(loop);
	do {
		done = work(loop, &next);
		if (done)
			until_ns = 0;
	} while (!wait_and_receive(loop, earlier(next, until_ns)) && monotonic_ns() < until_ns);
	work(loop, &next);
}

bool endpoint_loop_run_known(struct endpoint_loop *loop, const struct endpoint *endpoint, __u64 until_ns)
{
	__u64 next;

	heed(loop, false);
	catch_up(loop);
	do
		work(loop, &next);
	while (!endpoint_is_known(endpoint) && !wait_and_receive(loop, earlier(next, until_ns)) &&
	       monotonic_ns() < until_ns);
	heed(loop, true);
	work(loop, &next);
	return endpoint_is_known(endpoint);
}
