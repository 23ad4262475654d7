/* What a wire does to frames on purpose: it loses and damages them, in both directions, as a fault of the lab says.
 *
 * Losses are a share of the frames, single or in bursts (the Gilbert model: in a burst all are lost), or every n-th. The
 * two directions have a stream of random numbers, and a count, of their own, which begin anew with each change. */
#ifndef TESTBED_SCALE_UP_WIRE_ERRORS_H
#define TESTBED_SCALE_UP_WIRE_ERRORS_H

#include "types.h"

struct wire_errors {
	double loss;    /* the share of frames that are lost */
	double burst;   /* mean frames of a burst; up to 1: each by itself */
	double corrupt; /* the share of those that arrive with a wrong bit */
	__u64 rate_bps; /* below the link's; 0: that of the link */
	__u64 seed;
	__u32 every;  /* this many frames, the last of them is lost; 0: none */
	__u32 silent; /* nothing arrives, and neither end is told */
	__u32 down;   /* there is no signal, as both ends see at once */
	__u32 pad;
};

enum wire_direction { WIRE_IN, WIRE_OUT };
enum wire_fate { WIRE_PASSES, WIRE_LOSES, WIRE_DAMAGES };

struct wire_side {
	__u64 random, frames;
	bool in_burst;
};

struct wire {
	struct wire_errors errors;
	struct wire_side sides[2];
	bool faulty; /* there is something to decide */
};

/* False: a share is none. `port` makes the random numbers of ports with one seed different. */
bool wire_set(struct wire *wire, const struct wire_errors *errors, __u32 port);

/* What happens to the next frame. */
enum wire_fate wire_decide(struct wire *wire, enum wire_direction direction);

/* The byte of a frame whose bit is wrong: behind the addresses, which a link does not look at. */
__u32 wire_place(struct wire *wire, enum wire_direction direction, __u32 length);

#endif
