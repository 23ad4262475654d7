/* What the native side has to tell the lab's event log: a ring that never grows; what does not fit is counted. */
#ifndef TESTBED_PORTD_NOTES_H
#define TESTBED_PORTD_NOTES_H

#include "api.h"

enum note_kind {
	WATCHDOG_FREED = 1,
	WATCHDOG_RESTORED,
	STORM_BEGAN,
	STORM_ENDED,
	MALFORMED,
	FAILED_FRAME,
	FAILED_GATE,
	FAILED_KICK,
};

struct note {
	__u32 kind;
	__u32 port;
	__u32 priority;
	__s32 error;
	__u64 value; /* ns, or a number of frames */
};

#define NOTES 4096 /* a power of two */

struct notes {
	__u32 first, count;
	__u64 lost;
	struct note ring[NOTES];
};

static inline void notes_put(struct notes *notes, struct note note)
{
	if (notes->count == NOTES) {
		notes->lost++;
		return;
	}
	notes->ring[(notes->first + notes->count++) & (NOTES - 1)] = note;
}

API bool notes_take(struct notes *notes, struct note *note); /* the oldest; false: none */
API __u64 notes_lost(const struct notes *notes);

#endif
