/* The waiting of a process that has endpoints: their sockets, and their timers.
 *
 * Sockets of planes are waited for by ppoll(2): epoll(7) would be called for each frame that comes or has been sent, which
 * costs more than to name all sockets once a round.
 */
#ifndef TESTBED_SCALE_UP_ENDPOINT_LOOP_H
#define TESTBED_SCALE_UP_ENDPOINT_LOOP_H

#include <poll.h>

#include "endpoint.h"
#include "sockets.h"

#define ENDPOINTS 1024
#define LOOP_WATCHED 8

struct endpoint_loop {
	struct batch *batch;
	int epoll; /* of what is watched, and of sockets for PFC */
	struct pollfd *polled; /* `epoll`, and the planes' sockets */
	struct place {
		__u32 endpoint, plane;
	} *places; /* of each of them */
	__u32 polled_count, polled_room;
	struct endpoint *endpoints[ENDPOINTS];
	int sockets[ENDPOINTS][PLANES];
	struct packet_ring *rings[ENDPOINTS][PLANES];
	int watched[LOOP_WATCHED];
	__u32 watched_count;
	__u32 count;
};

API struct endpoint_loop *endpoint_loop_new(void); /* NULL: no memory or descriptor */
API void endpoint_loop_free(struct endpoint_loop *loop);

/* Serve an endpoint by these sockets, one for each plane, their rings (NULL: none), and those for PFC frames (-1: none).
 * They stay the caller's, as the endpoint does, and must be open until it is removed. 0 or an errno. */
API int endpoint_loop_add(struct endpoint_loop *loop, struct endpoint *endpoint, const int *sockets,
			  struct packet_ring *const *rings, const int *pause_sockets);
API void endpoint_loop_remove(struct endpoint_loop *loop, struct endpoint *endpoint);

/* Have `descriptor` end `endpoint_loop_run` when it becomes readable; 0 or an errno. */
API int endpoint_loop_watch(struct endpoint_loop *loop, int descriptor);

/* Serve until `until_ns`, or an operation is done or a message there (at least one round is served all the same), or
 * what is watched is readable, or a signal came. */
API void endpoint_loop_run(struct endpoint_loop *loop, __u64 until_ns);

/* Serve until the switch knows of this endpoint (`endpoint_is_known`), `until_ns`, or a signal came. What else is done
 * meanwhile, or readable, does not end it and is there afterwards. Whether the switch knows of it. */
API bool endpoint_loop_run_known(struct endpoint_loop *loop, const struct endpoint *endpoint, __u64 until_ns);

#endif
