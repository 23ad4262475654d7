/* Priority-based flow control of a lab's ports, without I/O: what happened goes in, what to do comes out.
 *
 * Two machines for each port and priority. An ingress account above XOFF asks the peer to pause: a frame of the
 * longest time, again at half of it while the account is still above, and a frame of 0 afterwards (IEEE 802.1Q
 * clause 36, IEEE 802.3 annex 31B). An egress queue obeys the frames its port receives: its gate is closed until the
 * time is over, a 0 arrives, or the watchdog frees it.
 *
 * Inputs only change states; `core_next` turns the difference between what is wanted and what was done into one
 * action at a time, the most urgent first. So what comes in between two actions is heeded before the second, and what
 * was undone before its turn came is never done. Times are CLOCK_MONOTONIC in ns, quanta are taken at the lab rate.
 * Nothing is allocated after `core_new`, and nothing that comes in is taken for granted.
 */
#ifndef TESTBED_PORTD_CORE_H
#define TESTBED_PORTD_CORE_H

#include "api.h"
#include "histogram.h"
#include "notes.h"
#include "timers.h"

/* A port as Python describes it. */
struct attached_port {
	__u32 number;
	__u32 peer;     /* number of the other end; 0: none */
	__u32 lossless; /* a bit for each priority */
	__u32 ifindex;
	__u64 rate_bps;
	__u64 watchdog_detect_ns, watchdog_restore_ns; /* 0: no watchdog */
	__u32 namespace; /* index of its network namespace */
	__u32 gates;     /* index of its gate messages */
	__u8 mac[6];
	__u8 pad[2];
};

/* In order of urgency. */
enum action_kind { CLOSE_GATES = 1, SEND_XOFF, SEND_XON, OPEN_GATES };

struct action {
	__u32 kind;
	__u32 port;
	__u32 vector;             /* the priorities */
	__u16 quanta[PRIORITIES]; /* of a frame */
};

enum timer_kind { REFRESH, STORM, EXPIRY, WATCHDOG, TIMER_KINDS }; /* of a queue */

/* Inputs that had no effect, by reason. */
struct strays {
	__u64 unknown; /* events of a port or priority that does not exist */
	__u64 lossy;   /* pause asked of a priority that is not lossless at the receiving port */
	__u64 healed;  /* accounts whose crossing was never told, found by looking */
};

/* States are a bit for each priority. */
struct port_state {
	__u64 rate_bps, refresh_ns, watchdog_detect_ns, watchdog_restore_ns;
	__u32 peer;
	bool known;
	__u8 lossless;
	__u8 over, storm;   /* ingress accounts: above XOFF; a storm asks in their stead */
	__u8 asked, overdue; /* the peer has been told to pause; must be told again */
	__u8 suspect;       /* the account was not as we believed when we last looked */
	__u8 paused, freed; /* egress queues: a pause is in force; the watchdog does not let it count */
	__u8 closed;        /* the gate */
	__u8 listed;        /* in which lists of ports, a bit for each kind of action */
	__u64 cause_ns[PRIORITIES]; /* the crossing that no closed gate has answered yet */
	__u64 frame_ns[PRIORITIES]; /* the frame that no closed gate has answered yet */
	struct histogram *reactions[PRIORITIES]; /* NULL where there are none */
};

/* Ports in the order in which they came to need something; each at most once. */
struct port_list {
	__u32 *ports;
	__u32 first, count;
};

struct core {
	struct port_state *ports; /* by number, the first is none */
	__u32 port_count;
	struct ingress *accounts; /* the maps, by queue: port * PRIORITIES + priority */
	struct pause *pauses;
	struct timers *timers;
	struct histogram *histograms;
	__u32 histogram_count;
	struct port_list lists[OPEN_GATES]; /* by kind of action, less one */
	bool stopped;
	struct strays strays;
	struct histogram event_to_frame, frame_to_gate;
	struct notes *notes;
};

/* `queue_count` queues are in both maps. NULL: no memory, or a port that the maps do not have. */
API struct core *core_new(const struct attached_port *ports, __u32 count, struct ingress *accounts, struct pause *pauses,
			  __u32 queue_count);
API void core_free(struct core *core);

/* The account of ingress `port` crossed XOFF at `ns`; it came down to XON; `port` received a PFC frame at `ns`. */
API void core_on_xoff(struct core *core, __u32 port, __u32 priority, __u64 ns);
API void core_on_xon(struct core *core, __u32 port, __u32 priority);
API void core_on_pfc(struct core *core, __u32 port, __u32 vector, const __u16 *quanta, __u64 ns, __u64 now);
API void core_on_timer(struct core *core, __u64 now);

/* Ask the peer to pause as if the account were above XOFF. A new storm replaces the old. -1: nobody would obey. */
API int core_storm(struct core *core, __u32 port, __u32 priority, __u64 duration_ns, __u64 now);

/* Correct the accounts of `count` ports by the map: an event may have been lost in a full ring. */
API void core_compare(struct core *core, __u32 first, __u32 count);

/* Continue from the maps where another agent ended: what was closed opens, what was asked is settled. */
API void core_take_over(struct core *core, __u64 now);

/* Let go of everything: peers are resumed, gates open; what comes in later has no effect. */
API void core_stop(struct core *core);

/* What to do now, the most urgent first; false: nothing. It counts as done. */
API bool core_next(struct core *core, __u64 now, struct action *action);

/* What an action led to: the frame left, the gates are closed, the gates are open since `now`. */
API void core_sent(struct core *core, const struct action *action, __u64 now);
API void core_closed(struct core *core, const struct action *action, __u64 now);
API void core_opened(struct core *core, const struct action *action, __u64 now);

API __u64 core_next_timer(const struct core *core); /* NEVER: none */
API void core_reset(struct core *core);             /* forget the measured times */
API const struct histogram *core_reactions(const struct core *core, __u32 queue); /* NULL: none */
API const struct histogram *core_event_to_frame(const struct core *core);
API const struct histogram *core_frame_to_gate(const struct core *core);
API const struct strays *core_strays(const struct core *core);
API struct notes *core_notes(struct core *core);

#endif
