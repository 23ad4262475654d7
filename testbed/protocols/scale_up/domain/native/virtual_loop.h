/* A whole domain in virtual time: the ends of its GPUs and its switch, without sockets, in one process.
 *
 * What an end sends is at the other end of its wire at once: what a wire takes is in the ends of the links (`link_port.h`).
 * Frames that find no end there, or no free frame, are lost, and counted. */
#ifndef TESTBED_SCALE_UP_VIRTUAL_LOOP_H
#define TESTBED_SCALE_UP_VIRTUAL_LOOP_H

#include "endpoint.h"
#include "switch.h"

struct virtual_loop {
	struct scale_up_switch *sw; /* NULL: it has died */
	struct endpoint **endpoints; /* by GPU; NULL: nobody is there */
	__u32 gpus, planes;
	__u64 lost;
};

/* NULL: no memory. */
API struct virtual_loop *virtual_loop_new(__u32 gpus, __u32 planes);
API void virtual_loop_free(struct virtual_loop *loop);

/* They stay the caller's. NULL: there is none from now on. */
API void virtual_loop_set_switch(struct virtual_loop *loop, struct scale_up_switch *sw);
API void virtual_loop_set_endpoint(struct virtual_loop *loop, __u32 gpu, struct endpoint *endpoint);

/* Do what is due, from `now` on and up to `until` and at it, but not beyond a time at which an end has something to be
 * collected. That time, or when the next thing is due that is left; NEVER: nothing will be, unless somebody begins it. */
API __u64 virtual_loop_run(struct virtual_loop *loop, __u64 now, __u64 until);

API __u64 virtual_loop_lost(const struct virtual_loop *loop);

#endif
