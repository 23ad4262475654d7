/* Timers by key, 0 to keys - 1: each key has one, which can be moved or taken back. Nothing is allocated after `init`. */
#ifndef TESTBED_PORTD_TIMERS_H
#define TESTBED_PORTD_TIMERS_H

#include "api.h"

struct timer {
	__u64 when_ns;
	__u32 key;
};

struct timers {
	struct timer *heap; /* the nearest first; a binary heap */
	__u32 *place;       /* of each key in it, from 1; 0: not set */
	__u32 count, keys;
};

API struct timers *timers_new(__u32 keys); /* NULL: no memory */
API void timers_free(struct timers *timers);
API void timers_set(struct timers *timers, __u32 key, __u64 when_ns);
API void timers_cancel(struct timers *timers, __u32 key);
API void timers_clear(struct timers *timers);
API __u32 timers_count(const struct timers *timers);
API __u64 timers_next(const struct timers *timers); /* NEVER: none */

/* Takes off a timer whose time has come; its key, or -1. */
API __s64 timers_pop(struct timers *timers, __u64 now_ns);

#endif
