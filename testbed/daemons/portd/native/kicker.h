/* A thread that makes opened queues run.
 *
 * What a kick lets go, the stack takes on within the system call that kicked: hundreds of microseconds of forwarding,
 * in which the next crossing happens as often as not. In a thread of its own that does not hold up its answer.
 */
#ifndef TESTBED_PORTD_KICKER_H
#define TESTBED_PORTD_KICKER_H

#include <pthread.h>
#include <semaphore.h>

#include "port_io.h"

#define WAITING_KICKS 4096 /* a power of two */

/* Of a port. Lives as long as the thread may see it: until `kicker_drain`. */
struct kick {
	struct kick_target target;
	bool waiting; /* in the queue; taken back before the kick, so that an opening after that is another kick */
	int error;    /* of the last one that failed, for whoever asks next */
	sem_t *done;  /* no kick: say that all before it is done */
};

struct kicker {
	pthread_t thread;
	sem_t work;
	int priority;
	__u32 head, tail;
	struct kick *queue[WAITING_KICKS];
};

/* With SCHED_FIFO `priority`, where that is allowed. NULL: no memory or no thread. */
struct kicker *kicker_new(int priority);
void kicker_free(struct kicker *kicker);

/* Soon. The target of `kick` is set. */
void kicker_kick(struct kicker *kicker, struct kick *kick);

/* Wait until all is done. */
void kicker_drain(struct kicker *kicker);

#endif
