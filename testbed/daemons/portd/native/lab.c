/* An attached lab. */
#include "lab.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define EVENTS_AT_ONCE 256 /* after so many, the most urgent of what they led to is done before more are read */
#define TURNS 64           /* after so many, other labs have theirs */
#define CHECK_NS 250000000ull /* how often accounts are compared with the maps, and malformed frames counted */
#define PORTS_AT_ONCE 256     /* of a check: memory that nobody has touched for long is slow */
#define REPEAT_NS 1000000000ull /* failures at the same port are told of once in this time */

__u64 clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* A port that went with its link or namespace fails silently: it has nothing to pause. */
static bool is_silent(int error)
{
	return error == ENODEV || error == ENXIO || error == ENETDOWN || error == ENOENT;
}

static void failed(struct lab *lab, __u32 port, enum note_kind kind, int error)
{
	__u64 now = clock_ns();

	lab->failures++;
	if (is_silent(error) || port >= lab->core->port_count || !lab->core->ports[port].known ||
	    now - lab->failed_ns[port] < REPEAT_NS)
		return;
	lab->failed_ns[port] = now;
	notes_put(lab->core->notes, (struct note){.kind = kind, .port = port, .error = error});
}

/* ------------------------------------------------------------------ events */

static bool read_events(struct lab *lab)
{
	struct event event;
	enum record found;
	int count = 0;

	for (; count < EVENTS_AT_ONCE && (found = ring_take(&lab->ring, &event)) != NO_RECORD; count++) {
		if (found == BROKEN_RECORD)
			lab->broken_events++;
		else if (event.kind == EVENT_XOFF)
			core_on_xoff(lab->core, event.port, event.priority, event.ns);
		else if (event.kind == EVENT_XON)
			core_on_xon(lab->core, event.port, event.priority);
		else if (event.kind == EVENT_PFC)
			core_on_pfc(lab->core, event.port, event.priority, event.quanta, event.ns, clock_ns());
		else
			lab->broken_events++;
	}
	return count > 0;
}

/* ------------------------------------------------------------------ actions */

static void kick(struct lab *lab, __u32 port)
{
	struct kick *kick = &lab->kicks[port];
	int error = 0;

	if (!lab->kicker)
		error = port_io_kick(lab->port_io, port);
	else if (!kick->target.ifindex) /* set once: the thread may look at it any time from then on */
		error = port_io_kick_target(lab->port_io, port, &kick->target);
	if (error)
		failed(lab, port, FAILED_KICK, error);
	else if (lab->kicker)
		kicker_kick(lab->kicker, kick);
}

/* The most urgent action; whether there was one. */
static bool perform_one(struct lab *lab, __u64 now)
{
	struct action action;
	int error;

	if (!core_next(lab->core, now, &action))
		return false;
	switch ((enum action_kind)action.kind) {
	case CLOSE_GATES:
		error = port_io_change_gates(lab->port_io, action.port, action.vector, true);
		if (error)
			failed(lab, action.port, FAILED_GATE, error);
		else
			core_closed(lab->core, &action, clock_ns());
		break;
	case OPEN_GATES:
		error = port_io_change_gates(lab->port_io, action.port, action.vector, false);
		if (error)
			failed(lab, action.port, FAILED_GATE, error);
		core_opened(lab->core, &action, clock_ns());
		kick(lab, action.port);
		break;
	default:
		error = port_io_send_frame(lab->port_io, action.port, action.vector, action.quanta);
		if (error)
			failed(lab, action.port, FAILED_FRAME, error);
		else
			core_sent(lab->core, &action, clock_ns());
	}
	return true;
}

void lab_perform(struct lab *lab)
{
	while (perform_one(lab, clock_ns()))
		;
}

/* ------------------------------------------------------------------ checks */

static void tell_malformed(struct lab *lab, __u32 port)
{
	__u64 frames = lab->core->accounts[port * PRIORITIES].malformed_frames;

	if (lab->core->ports[port].known && frames > lab->malformed[port])
		notes_put(lab->core->notes,
			  (struct note){.kind = MALFORMED, .port = port, .value = frames - lab->malformed[port]});
	lab->malformed[port] = frames;
}

/* Kicks and gate changes fail behind our back: the thread of the kicks leaves an errno, the kernel answers later. */
static void take_failed_kick(struct lab *lab, __u32 port)
{
	int error = __atomic_exchange_n(&lab->kicks[port].error, 0, __ATOMIC_RELAXED);

	if (error)
		failed(lab, port, FAILED_KICK, error);
}

static void take_failed_gates(struct lab *lab)
{
	__u32 port;
	int error;

	while (port_io_failed_gate(lab->port_io, &port, &error))
		failed(lab, port, FAILED_GATE, error);
}

static void check(struct lab *lab, __u64 now)
{
	__u32 count = lab->core->port_count, parts = count / PORTS_AT_ONCE + 1;

	lab->next_check_ns = now + CHECK_NS / parts;
	core_compare(lab->core, lab->next_port, PORTS_AT_ONCE);
	for (__u32 i = 0; i < PORTS_AT_ONCE && lab->next_port < count; i++, lab->next_port++) {
		tell_malformed(lab, lab->next_port);
		take_failed_kick(lab, lab->next_port);
	}
	if (lab->next_port < count)
		return;
	lab->next_port = 0;
	take_failed_gates(lab);
}

/* ------------------------------------------------------------------ the loop's view */

bool lab_work(struct lab *lab)
{
	bool busy = true;

	for (int turn = 0; busy && turn < TURNS; turn++) {
		/* A frame that we sent may be an event at the peer by now: look before what is less urgent. */
		bool read = read_events(lab);
		__u64 now = clock_ns();
		if (core_next_timer(lab->core) <= now)
			core_on_timer(lab->core, now);
		if (now >= lab->next_check_ns)
			check(lab, now);
		busy = perform_one(lab, now) || read;
	}
	return busy;
}

__u64 lab_deadline(const struct lab *lab)
{
	__u64 timer = core_next_timer(lab->core);

	return timer < lab->next_check_ns ? timer : lab->next_check_ns;
}

__u64 lab_failures(struct lab *lab)
{
	for (__u32 port = 0; port < lab->core->port_count; port++)
		take_failed_kick(lab, port);
	take_failed_gates(lab);
	return lab->failures;
}

__u64 lab_broken_events(const struct lab *lab)
{
	return lab->broken_events;
}

struct lab *lab_new(struct core *core, struct port_io *port_io, __u64 *consumed, const __u64 *produced, const __u8 *data,
		    __u64 size)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	if (!lab)
		return NULL;
	lab->core = core;
	lab->port_io = port_io;
	lab->ring = (struct ring){consumed, produced, data, size, size ? *consumed : 0};
	lab->next_check_ns = clock_ns() + CHECK_NS;
	lab->kicks = calloc(core->port_count + 1, sizeof(*lab->kicks));
	lab->malformed = calloc(core->port_count + 1, sizeof(*lab->malformed));
	lab->failed_ns = calloc(core->port_count + 1, sizeof(*lab->failed_ns));
	if (!lab->kicks || !lab->malformed || !lab->failed_ns) {
		lab_free(lab);
		return NULL;
	}
	for (__u32 port = 0; port < core->port_count; port++)
		lab->malformed[port] = core->accounts[port * PRIORITIES].malformed_frames;
	return lab;
}

void lab_free(struct lab *lab)
{
	if (!lab)
		return;
	free(lab->kicks);
	free(lab->malformed);
	free(lab->failed_ns);
	free(lab);
}
