/* An attached lab: its events go through the core, and what the core wants is done at its ports. */
#ifndef TESTBED_PORTD_LAB_H
#define TESTBED_PORTD_LAB_H

#include "core.h"
#include "kicker.h"
#include "ring.h"
#include "port_io.h"

struct lab {
	struct core *core;
	struct port_io *port_io;
	struct ring ring;
	struct kicker *kicker;  /* makes opened queues run; NULL: we do it ourselves */
	struct kick *kicks;     /* by port */
	__u64 *malformed;       /* frames already told of, by port */
	__u64 *failed_ns;       /* when a failure was last told of, by port */
	__u64 next_check_ns;
	__u32 next_port; /* of the check */
	__u64 failures, broken_events;
};

/* The core and the port I/O stay the caller's. A ring of size 0 has no events. NULL: no memory. */
API struct lab *lab_new(struct core *core, struct port_io *port_io, __u64 *consumed, const __u64 *produced, const __u8 *data,
			__u64 size);
API void lab_free(struct lab *lab);

/* Do what is to be done now, for a while; whether something is left. */
API bool lab_work(struct lab *lab);

/* Do what the core wants and look at no events. */
API void lab_perform(struct lab *lab);

/* When `lab_work` must be called though there are no events. */
API __u64 lab_deadline(const struct lab *lab);

API __u64 lab_failures(struct lab *lab); /* all until now, those of kicks and gates that no check has found yet, too */
API __u64 lab_broken_events(const struct lab *lab);

API __u64 clock_ns(void); /* CLOCK_MONOTONIC */

#endif
