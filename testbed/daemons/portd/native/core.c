/* Priority-based flow control of a lab's ports, without I/O. */
#include "core.h"

#include <string.h>

#include "ledger.h"
#include "pfc.h"

#define FOR_EACH_PRIORITY(priority, vector)                                                                            \
	for (__u32 bits_ = (vector), priority; bits_ && (priority = __builtin_ctz(bits_), 1); bits_ &= bits_ - 1)

static void set_timer(struct core *core, __u32 queue, enum timer_kind kind, __u64 when_ns)
{
	timers_set(core->timers, queue * TIMER_KINDS + kind, when_ns);
}

static void cancel_timer(struct core *core, __u32 queue, enum timer_kind kind)
{
	timers_cancel(core->timers, queue * TIMER_KINDS + kind);
}

static struct port_state *find(struct core *core, __u32 port)
{
	return port < core->port_count && core->ports[port].known ? &core->ports[port] : NULL;
}

static bool is_over(const struct core *core, __u32 queue)
{
	return __atomic_load_n(&core->accounts[queue].xoff, __ATOMIC_RELAXED) != 0;
}

static void assign(__u8 *bits, __u32 priority, bool value)
{
	*bits = value ? *bits | 1 << priority : *bits & ~(1 << priority);
}

/* ------------------------------------------------------------------ what is wanted and not done */

static __u32 to_pause(const struct port_state *state)
{
	return (state->over | state->storm) & (state->overdue | ~state->asked);
}

static __u32 to_resume(const struct port_state *state)
{
	return state->asked & ~(state->over | state->storm);
}

static __u32 to_close(const struct port_state *state)
{
	return state->paused & ~state->freed & ~state->closed;
}

static __u32 to_open(const struct port_state *state)
{
	return state->closed & ~(state->paused & ~state->freed);
}

static void enlist(struct core *core, __u32 port, enum action_kind kind)
{
	struct port_list *list = &core->lists[kind - 1];
	__u8 bit = 1 << (kind - 1);
	__u32 place;

	if (core->ports[port].listed & bit)
		return;
	core->ports[port].listed |= bit;
	place = list->first + list->count++;
	list->ports[place < core->port_count ? place : place - core->port_count] = port;
}

/* Something about a port may have changed. */
static void changed(struct core *core, __u32 port)
{
	const struct port_state *state = &core->ports[port];

	if (to_close(state))
		enlist(core, port, CLOSE_GATES);
	if (to_pause(state))
		enlist(core, port, SEND_XOFF);
	if (to_resume(state))
		enlist(core, port, SEND_XON);
	if (to_open(state))
		enlist(core, port, OPEN_GATES);
}

/* The next port that needs an action of this kind still; 0: none. */
static __u32 take_from(struct core *core, enum action_kind kind, __u32 (*need)(const struct port_state *))
{
	struct port_list *list = &core->lists[kind - 1];

	while (list->count) {
		__u32 port = list->ports[list->first];
		list->first = list->first + 1 < core->port_count ? list->first + 1 : 0;
		list->count--;
		core->ports[port].listed &= ~(1 << (kind - 1));
		if (need(&core->ports[port]))
			return port;
	}
	return 0;
}

static void plan_frame(struct core *core, __u32 port, struct action *action, __u64 now)
{
	struct port_state *state = &core->ports[port];
	__u32 pause = to_pause(state), resume = to_resume(state), queue;

	action->vector = pause | resume;
	FOR_EACH_PRIORITY(priority, pause) {
		queue = port * PRIORITIES + priority;
		action->quanta[priority] = MAX_QUANTA;
		ledger_xoff_sent(&core->pauses[queue], now);
		set_timer(core, queue, REFRESH, now + state->refresh_ns);
	}
	FOR_EACH_PRIORITY(priority, resume) {
		queue = port * PRIORITIES + priority;
		ledger_xon_sent(&core->pauses[queue], now);
		cancel_timer(core, queue, REFRESH);
		state->cause_ns[priority] = 0;
	}
	state->asked = state->over | state->storm;
	state->overdue = 0;
}

bool core_next(struct core *core, __u64 now, struct action *action)
{
	struct port_state *state;
	__u32 port;

	memset(action, 0, sizeof(*action));
	if ((port = take_from(core, CLOSE_GATES, to_close))) {
		state = &core->ports[port];
		action->kind = CLOSE_GATES;
		action->vector = to_close(state);
		state->closed |= action->vector;
		FOR_EACH_PRIORITY(priority, action->vector)
			ledger_gate_closes(&core->pauses[port * PRIORITIES + priority], now);
	} else if ((port = take_from(core, SEND_XOFF, to_pause))) {
		action->kind = SEND_XOFF;
		plan_frame(core, port, action, now);
	} else if ((port = take_from(core, SEND_XON, to_resume))) {
		action->kind = SEND_XON;
		plan_frame(core, port, action, now);
	} else if ((port = take_from(core, OPEN_GATES, to_open))) {
		state = &core->ports[port];
		action->kind = OPEN_GATES;
		action->vector = to_open(state);
		state->closed &= ~action->vector;
	}
	action->port = port;
	return port != 0;
}

/* ------------------------------------------------------------------ what actions led to */

void core_sent(struct core *core, const struct action *action, __u64 now)
{
	const struct port_state *state = find(core, action->port);

	if (!state)
		return;
	FOR_EACH_PRIORITY(priority, action->vector & 0xff) {
		if (action->quanta[priority] && state->cause_ns[priority])
			histogram_record(&core->event_to_frame, now - state->cause_ns[priority]);
	}
}

void core_closed(struct core *core, const struct action *action, __u64 now)
{
	struct port_state *state = find(core, action->port), *peer;

	if (!state)
		return;
	peer = find(core, state->peer);
	FOR_EACH_PRIORITY(priority, action->vector & 0xff) {
		if (state->frame_ns[priority])
			histogram_record(&core->frame_to_gate, now - state->frame_ns[priority]);
		if (peer && peer->cause_ns[priority] && peer->cause_ns[priority] <= state->frame_ns[priority]) {
			if (state->reactions[priority])
				histogram_record(state->reactions[priority], now - peer->cause_ns[priority]);
			peer->cause_ns[priority] = 0;
		}
		state->frame_ns[priority] = 0;
	}
}

void core_opened(struct core *core, const struct action *action, __u64 now)
{
	struct port_state *state = find(core, action->port);

	if (!state)
		return;
	/* What was closed again meanwhile stays closed in the map. */
	FOR_EACH_PRIORITY(priority, action->vector & 0xff & ~state->closed)
		ledger_gate_opened(&core->pauses[action->port * PRIORITIES + priority], now);
}

/* ------------------------------------------------------------------ ingress accounts */

/* The account that an event is about, as it is by now: two CPUs may tell of XOFF and XON in the wrong order, but the
 * account in the map is always right. */
static struct port_state *crossed(struct core *core, __u32 port, __u32 priority)
{
	struct port_state *state = find(core, port);

	if (!state || priority >= PRIORITIES || !(state->lossless >> priority & 1)) {
		core->strays.unknown++;
		return NULL;
	}
	if (core->stopped)
		return NULL;
	assign(&state->over, priority, is_over(core, port * PRIORITIES + priority));
	return state;
}

void core_on_xoff(struct core *core, __u32 port, __u32 priority, __u64 ns)
{
	struct port_state *state = crossed(core, port, priority);

	if (!state)
		return;
	if (state->over & ~state->asked & 1 << priority)
		state->cause_ns[priority] = ns;
	changed(core, port);
}

void core_on_xon(struct core *core, __u32 port, __u32 priority)
{
	struct port_state *state = crossed(core, port, priority);

	if (!state)
		return;
	if (!((state->over | state->asked) >> priority & 1))
		state->cause_ns[priority] = 0;
	changed(core, port);
}

static void end_storm(struct core *core, __u32 queue)
{
	__u32 port = queue / PRIORITIES, priority = queue % PRIORITIES;
	struct port_state *state = &core->ports[port];

	assign(&state->storm, priority, false);
	assign(&state->over, priority, !core->stopped && is_over(core, queue));
	core->pauses[queue].storm = 0;
	notes_put(core->notes, (struct note){.kind = STORM_ENDED, .port = port, .priority = priority});
	changed(core, port);
}

int core_storm(struct core *core, __u32 port, __u32 priority, __u64 duration_ns, __u64 now)
{
	struct port_state *state = find(core, port), *peer = state ? find(core, state->peer) : NULL;
	__u32 queue = port * PRIORITIES + priority;

	if (!peer || priority >= PRIORITIES || !(peer->lossless >> priority & 1))
		return -1;
	assign(&state->storm, priority, true);
	core->pauses[queue].storm = 1;
	set_timer(core, queue, STORM, now + duration_ns);
	notes_put(core->notes, (struct note){.kind = STORM_BEGAN, .port = port, .priority = priority, .value = duration_ns});
	changed(core, port);
	return 0;
}

void core_compare(struct core *core, __u32 first, __u32 count)
{
	if (core->stopped)
		return;
	for (__u32 port = first; port < core->port_count && port - first < count; port++) {
		struct port_state *state = &core->ports[port];
		__u8 over = 0, wrong;

		if (!state->known)
			continue;
		FOR_EACH_PRIORITY(priority, state->lossless)
			over |= is_over(core, port * PRIORITIES + priority) << priority;
		wrong = (over ^ state->over) & state->lossless;
		/* An event may also be on its way: only what was wrong twice in a row is. */
		if (wrong & state->suspect) {
			state->over ^= wrong & state->suspect;
			core->strays.healed += __builtin_popcount(wrong & state->suspect);
			changed(core, port);
		}
		state->suspect = wrong;
	}
}

/* ------------------------------------------------------------------ egress queues */

static void resume(struct core *core, __u32 queue, __u64 now)
{
	__u32 port = queue / PRIORITIES, priority = queue % PRIORITIES;
	struct port_state *state = &core->ports[port];

	if (!(state->paused >> priority & 1))
		return;
	assign(&state->paused, priority, false);
	cancel_timer(core, queue, EXPIRY);
	cancel_timer(core, queue, WATCHDOG);
	if (state->freed >> priority & 1)
		set_timer(core, queue, WATCHDOG, now + state->watchdog_restore_ns);
	changed(core, port);
}

static void pause_until(struct core *core, __u32 queue, __u64 ns, __u64 until, __u64 now)
{
	__u32 port = queue / PRIORITIES, priority = queue % PRIORITIES;
	struct port_state *state = &core->ports[port];

	if (until <= now) {
		resume(core, queue, now); /* its time was over before we came to it */
		return;
	}
	set_timer(core, queue, EXPIRY, until);
	if (state->paused >> priority & 1)
		return;
	assign(&state->paused, priority, true);
	state->frame_ns[priority] = ns;
	if (state->freed >> priority & 1)
		cancel_timer(core, queue, WATCHDOG); /* it is not unpaused for long enough */
	else if (state->watchdog_detect_ns)
		set_timer(core, queue, WATCHDOG, now + state->watchdog_detect_ns);
	changed(core, port);
}

void core_on_pfc(struct core *core, __u32 port, __u32 vector, const __u16 *quanta, __u64 ns, __u64 now)
{
	struct port_state *state = find(core, port);
	__u32 queue;

	if (!state) {
		core->strays.unknown++;
		return;
	}
	if (core->stopped)
		return;
	vector &= 0xff; /* the upper half is reserved */
	if (vector & ~state->lossless)
		core->strays.lossy++;
	FOR_EACH_PRIORITY(priority, vector & state->lossless) {
		queue = port * PRIORITIES + priority;
		if (quanta[priority]) {
			core->pauses[queue].xoff_received++;
			pause_until(core, queue, ns, ns + pfc_pause_ns(quanta[priority], state->rate_bps), now);
		} else {
			core->pauses[queue].xon_received++;
			resume(core, queue, now);
		}
	}
}

static void restore(struct core *core, __u32 queue)
{
	__u32 port = queue / PRIORITIES, priority = queue % PRIORITIES;

	assign(&core->ports[port].freed, priority, false);
	core->pauses[queue].ignored = 0;
	notes_put(core->notes, (struct note){.kind = WATCHDOG_RESTORED, .port = port, .priority = priority});
	changed(core, port);
}

/* The watchdog's time has come: a paused queue is freed, a freed one that is not paused is guarded again. */
static void watch(struct core *core, __u32 queue)
{
	__u32 port = queue / PRIORITIES, priority = queue % PRIORITIES;
	struct port_state *state = &core->ports[port];

	if (state->freed >> priority & 1) {
		restore(core, queue);
	} else if (state->paused >> priority & 1) {
		assign(&state->freed, priority, true);
		ledger_watchdog_frees(&core->pauses[queue]);
		notes_put(core->notes, (struct note){.kind = WATCHDOG_FREED,
						      .port = port,
						      .priority = priority,
						      .value = state->watchdog_detect_ns});
		changed(core, port);
	}
}

/* ------------------------------------------------------------------ time */

static void refresh(struct core *core, __u32 queue)
{
	struct port_state *state = &core->ports[queue / PRIORITIES];
	__u32 priority = queue % PRIORITIES;

	assign(&state->over, priority, is_over(core, queue));
	assign(&state->overdue, priority, true);
	changed(core, queue / PRIORITIES);
}

void core_on_timer(struct core *core, __u64 now)
{
	__s64 key;

	while ((key = timers_pop(core->timers, now)) >= 0) {
		__u32 queue = key / TIMER_KINDS;
		switch ((enum timer_kind)(key % TIMER_KINDS)) {
		case REFRESH:
			refresh(core, queue);
			break;
		case STORM:
			end_storm(core, queue);
			break;
		case EXPIRY:
			resume(core, queue, now);
			break;
		default:
			watch(core, queue);
		}
	}
}

__u64 core_next_timer(const struct core *core)
{
	return timers_next(core->timers);
}

/* ------------------------------------------------------------------ beginnings and ends */

/* A port that the lab no longer has, or that has not been one: whatever another agent noted of it is over. */
static void forget(struct core *core, __u32 queue, __u64 now)
{
	struct pause *pause = &core->pauses[queue];

	if (!pause->closed && !pause->asked_since && !is_over(core, queue))
		return;
	ledger_xon_sent(pause, now);
	ledger_gate_opened(pause, now);
}

void core_take_over(struct core *core, __u64 now)
{
	for (__u32 port = 0; port < core->port_count; port++) {
		struct port_state *state = &core->ports[port];
		for (__u32 priority = 0; priority < PRIORITIES; priority++) {
			__u32 queue = port * PRIORITIES + priority;
			struct pause *pause = &core->pauses[queue];
			pause->storm = 0;
			pause->ignored = 0;
			if (!state->known) {
				forget(core, queue, now);
				continue;
			}
			if (pause->closed)
				assign(&state->closed, priority, true);
			if (pause->asked_since) {
				assign(&state->asked, priority, true);
				assign(&state->overdue, priority, true);
			}
			if (state->lossless >> priority & 1)
				assign(&state->over, priority, is_over(core, queue));
		}
		if (state->known)
			changed(core, port);
	}
}

void core_stop(struct core *core)
{
	core->stopped = true;
	timers_clear(core->timers);
	for (__u32 port = 0; port < core->port_count; port++) {
		struct port_state *state = &core->ports[port];
		if (!state->known)
			continue;
		state->over = 0;
		state->paused = 0;
		FOR_EACH_PRIORITY(priority, state->storm)
			end_storm(core, port * PRIORITIES + priority);
		FOR_EACH_PRIORITY(priority, state->freed)
			restore(core, port * PRIORITIES + priority);
		changed(core, port);
	}
}

/* ------------------------------------------------------------------ what is measured */

void core_reset(struct core *core)
{
	memset(&core->event_to_frame, 0, sizeof(core->event_to_frame));
	memset(&core->frame_to_gate, 0, sizeof(core->frame_to_gate));
	for (__u32 i = 0; i < core->histogram_count; i++) {
		/* One that was never used has no memory yet. */
		if (core->histograms[i].count)
			memset(&core->histograms[i], 0, sizeof(core->histograms[i]));
	}
}

const struct histogram *core_reactions(const struct core *core, __u32 queue)
{
	__u32 port = queue / PRIORITIES;

	return port < core->port_count ? core->ports[port].reactions[queue % PRIORITIES] : NULL;
}

const struct histogram *core_event_to_frame(const struct core *core)
{
	return &core->event_to_frame;
}

const struct histogram *core_frame_to_gate(const struct core *core)
{
	return &core->frame_to_gate;
}

const struct strays *core_strays(const struct core *core)
{
	return &core->strays;
}

struct notes *core_notes(struct core *core)
{
	return core->notes;
}
