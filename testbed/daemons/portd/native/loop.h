/* The agent's waiting: for events of all labs, for their timers, and for whatever else Python must look after. */
#ifndef TESTBED_PORTD_LOOP_H
#define TESTBED_PORTD_LOOP_H

#include "lab.h"

#define LABS 256

struct loop {
	int epoll;
	struct kicker *kicker;
	struct lab *labs[LABS];
	int rings[LABS]; /* their descriptors */
	__u32 count;
};

/* `control` becomes readable when Python has something to do; the kicker has the real-time priority `kick_priority`.
 * NULL: no memory, descriptor or thread. */
API struct loop *loop_new(int control, int kick_priority);
API void loop_free(struct loop *loop);

/* Serve a lab whose ring has the descriptor `ring`; 0 or an errno. */
API int loop_add(struct loop *loop, struct lab *lab, int ring);
API void loop_remove(struct loop *loop, struct lab *lab);

/* Serve the labs until `control` is readable, a signal came, or there is a note to take. */
API void loop_run(struct loop *loop);

#endif
