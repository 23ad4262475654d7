/* One end of a scale-up link, without I/O: what may be sent and when, and what may be stored.
 *
 * Both ends of a link are the same, at a GPU and at a switch. Sending: the link's rate, by the time at which the frame
 * before is through; and the receiver's leave, which is credits (CBFC), no pause in force (PFC), or nothing. Receiving:
 * a frame is on the wire until its propagation is over and its last bit is in, then it is stored or, where the buffer of
 * its VC is full, dropped. The buffer is counted in credits in all three modes, so that they have the same memory.
 *
 * Control frames (CF_Updates, PFC) pass data by, as a port inserts them into a running frame. One is sent at least every
 * `cf_max_ns`, with nothing new in it where there is nothing to say: by its absence an end sees that the link is down.
 * The last two bytes before its FCS are the epoch of who sends it, and the other end's as far as known. An end sends
 * data when the other has greeted it with its epoch, and counts credits from 0 on when the other's has changed: so
 * either may start anew at any time.
 * A control frame of an end whose link is slower than it should be, or has no signal, says so first; the other end does
 * as it says. Without a signal nothing is sent or taken for as long as LLR waits (`pcs_lost_timeout_ns`); then the link
 * is down, as it is after `silence_ns` without a frame, and what was counted and kept is void.
 *
 * CC_Update goes in line with data. A frame that arrives is not taken for granted: what cannot be understood is counted.
 *
 * With LLR a frame is kept until the other end has acknowledged it, and sent again where it has not arrived.
 *
 * Credits are counted by `credits.h`, whose twin `testbed/protocols/scale_up/credits.py` is the readable model of CBFC; without
 * credits all VCs are best effort there.
 *
 * Times are in ns of a clock that does not go back. Source: IEEE 802.1Q clause 36 (PFC).
 */
#ifndef TESTBED_SCALE_UP_LINK_PORT_H
#define TESTBED_SCALE_UP_LINK_PORT_H

#include "credits.h"
#include "frame_pool.h"
#include "retry.h"
#include "types.h"
#include "wire.h"

#define LINK_VCS 8 /* of the 32 that CBFC has: as many as PFC has priorities */
#define PFC_ETHERTYPE 0x8808
#define BODY_AT (ETHERNET_BYTES + PREFIX_BYTES)
#define EPOCHS_AT (ETHERNET_BYTES + CTLOS_SLOTS * CTLOS_BYTES + 8)
#define SIGNAL_FULL (CYCLE_MASK + 1)
#define CONTROL_CHARACTER 0x5c

enum flow_control { CREDITS, PFC, NO_FLOW_CONTROL };

/* What a payload takes of the line behind headers other than the lab's own (`testbed/protocols/scale_up/header_stacks.py`). */
struct line_format {
	__u32 packet; /* the most payload of a packet; 0: a frame takes its own bytes */
	__u32 header, grain, wide, narrow;
};

struct link_config {
	__u64 rate_bps;
	__u64 delay_ns;   /* propagation, one way */
	__u64 cf_min_ns;  /* least time between two CF_Updates */
	__u64 cf_max_ns;  /* most time between two control frames */
	__u64 idle_ns;    /* the same where nothing else was sent or came, which is reached by doubling */
	__u64 cc_ns;      /* between two CC_Updates; 0: none are sent */
	__u64 silence_ns; /* without a frame for so long the link is down; 0: never */
	__u32 flow_control;
	__u32 vcs;
	__u32 unit; /* bytes of a credit */
	__s32 overhead;
	__u32 capacity[LINK_VCS]; /* of the buffer, in credits */
	__u32 granted[LINK_VCS];  /* CREDITS: the limit of both directions; 0: best effort */
	__u32 xoff[LINK_VCS], xon[LINK_VCS]; /* PFC: thresholds of the buffer, in credits */
	__u8 mac[6], peer[6];
	struct retry_config retry; /* without outstanding frames: no LLR */
	__u32 epoch; /* 1 to 255, another one after each start; 0: no greeting */
	struct line_format line;
};

struct vc_counters {
	__u64 tx_frames, tx_bytes, rx_frames, rx_bytes;
	__u64 dropped_frames, dropped_bytes; /* there was no room for them */
	__u64 deepest;                       /* the most credits that were in the buffer */
	__u64 s_cc, s_cf, r_cc, r_cf;        /* CBFC's counters, 20 bits */
	__u64 tx_line_bytes;                 /* what the frames of tx_bytes took of the line */
	__u64 xmit_wait_ns;                  /* how long a frame waited for credits, or for the end of a pause */
};

/* Those of CBFC have the names of SAI's port statistics. */
struct link_counters {
	__u64 cbfc_num_cf_update_messages_tx, cbfc_num_cf_update_messages_rx;
	__u64 cbfc_num_cc_update_messages_tx, cbfc_num_cc_update_messages_rx;
	__u64 cf_update_errors, cc_update_errors, leaked_credits;
	__u64 xoff_tx, xon_tx, pfc_rx;
	__u64 control_tx, control_rx;
	__u64 malformed, bad_control, bad_frames, poisoned;
	__u64 send_failures, refused; /* the kernel's; frames for nobody, or by somebody else's name */
	__u64 stale;                  /* data of before the ends began anew */
	__u64 wire_lost_rx, wire_lost_tx, wire_damaged_rx, wire_damaged_tx; /* `wire_errors.h` */
	__u64 downs, undelivered; /* how often the link went down; frames that could not leave by it */
	__u64 returned; /* requests of this end that were given back, as answers, for one that could not leave */
};

struct link_port {
	struct link_config config;
	/* sending */
	struct credit_sender credit_sender;
	__u64 paused_until_ns[LINK_VCS];
	__u64 free_ns;      /* when the last frame is through */
	__u64 free_since_ns; /* the same, before a process that came late was forgiven some of it */
	__u64 unblocked_ns; /* when the receiver last gave leave */
	__u32 blocked;      /* a bit for each VC of which a frame was not let through since one was sent last */
	__u32 waits;        /* a bit for each VC of which a frame waits for credits, or for the end of a pause */
	__u32 wait_bytes[LINK_VCS];    /* its length */
	__u64 wait_since_ns[LINK_VCS]; /* and since when, as far as that is not counted */
	/* receiving */
	struct credit_receiver credit_receiver;
	__u32 held[LINK_VCS]; /* credits in the buffer, whatever controls the flow */
	__u32 asked;  /* PFC: a bit for each VC whose sender is to pause */
	__u32 answer; /* PFC: those of which a frame must be sent now */
	__u64 pause_refresh_ns;
	/* LLR, both ways */
	bool retries;
	struct retry_slot *slots;
	struct retry_sender retry_sender;
	struct retry_receiver retry_receiver;
	__u64 replay_ns;        /* since when frames are sent again; 0: none are */
	__u32 stale[LINK_VCS]; /* of the frames in the buffer, those of an epoch that is over */
	__u32 peer_epoch;
	bool greeted;
	__u32 gone_epoch; /* of a peer whose process has died: what it has said until then is void; 0: none */
	__u64 came, epoch_came; /* frames so far; data that came before that one is of another epoch */
	__u64 epoch_ns;         /* and when that one came */
	__u64 said_ns, heard_ns;
	__u64 beat_ns; /* most time between two control frames, as it is now */
	/* The link's rate now, and what either end says of it: SIGNAL_FULL of the configured one, down to 0. */
	__u64 rate_bps;
	__u32 own_signal, peer_signal;
	__u64 dark_ns; /* since when there is no signal; NEVER: there is one */
	bool down;
	bool owes_cc; /* credits went with frames that LLR gave up: CC_Updates until they are back */
	bool cc_told; /* once at least */
	__u64 line_ns; /* when the last bit of the last frame on the wire is in */
	struct frame_list control_line, data_line;
	struct frame_pool *pool; /* theirs */
	struct link_counters counters;
	struct vc_counters vc[LINK_VCS];
};

/* False: a field is out of range, or no memory. */
bool link_init(struct link_port *port, const struct link_config *config, __u64 now);
void link_close(struct link_port *port);

/* ---- receiving */

/* A frame came out of the wire's end in the lab; it is on the modelled wire from now on. */
void link_arrive(struct link_port *port, struct frame_pool *pool, __u32 frame, __u64 now);

/* The next data frame that is stored by now, with its `vc`; NO_FRAME: none. */
__u32 link_take(struct link_port *port, struct frame_pool *pool, __u64 now);

/* A frame of this size has left the buffer. */
void link_free(struct link_port *port, __u32 vc, __u32 length);

/* ---- sending */

/* Whether the receiver lets such a frame come at `now`. */
bool link_may_send(const struct link_port *port, __u32 vc, __u32 length, __u64 now);

/* A frame that was there since `ready_ns` is not let through though the link is free: what it waits for is counted from
 * then on (`xmit_wait_ns`), if it is the receiver's leave. */
void link_hold(struct link_port *port, __u32 vc, __u32 length, __u64 ready_ns, __u64 now);

/* No frame of these VCs is there any more. */
void link_wait_no_more(struct link_port *port, __u32 vcs, __u64 now);

/* A data frame that was there since `ready_ns` begins; when it should have, had nobody come late. */
__u64 link_sent(struct link_port *port, __u32 vc, __u32 length, __u64 ready_ns);

/* That frame gets its number, and is kept, where there is LLR. */
void link_number(struct link_port *port, struct frame_pool *pool, __u32 frame, __u64 now);

/* A frame that is to be sent again now, before new ones; NO_FRAME: none, or the link is busy. */
__u32 link_replay(struct link_port *port, struct frame_pool *pool, __u64 now);

/* A frame has been sent, or never will be: it is free, or kept for a replay. */
void link_gone(struct frame_pool *pool, __u32 frame);

/* A control frame of CONTROL_FRAME_BYTES that is due, or a CC_Update; 0: none. Ask again until there is none. */
__u32 link_control(struct link_port *port, __u64 now, __u8 *frame);
__u32 link_cc_update(struct link_port *port, __u64 now, __u8 *frame);

/* When something is due without a frame being received or offered; frames on the wire included. */
__u64 link_next_timer(const struct link_port *port, const struct frame_pool *pool);

/* When a VC that is paused may go on, at the latest; NEVER: something must come for that. */
__u64 link_resumes_ns(const struct link_port *port, __u32 vc, __u64 now);

/* The counters of the link and of a VC, with those of CBFC as they are now. */
const struct link_counters *link_counters(struct link_port *port);
const struct vc_counters *link_vc_counters(struct link_port *port, __u32 vc);

/* What this end says of its link: SIGNAL_FULL, or less, or 0 for no signal. */
void link_set_signal(struct link_port *port, __u32 signal, __u64 now);

/* Whoever was at the other end is gone, whatever of his is still under way; or somebody new is. */
void link_set_peer(struct link_port *port, bool there, __u64 now);

/* Look whether the link is down: it has been dark, or silent, for too long. When it goes down, all of it begins anew. */
bool link_watch(struct link_port *port, __u64 now);

/* When it may be down. */
__u64 link_watch_timer(const struct link_port *port);

/* ---- between the files of a link's end */

/* Whether what else a control frame says counts: it was sent in the epochs that are now. */
/* Frames that waited for leave have it now, as far as they do. */
void link_wait_ends(struct link_port *port, __u64 now);
bool link_greet(struct link_port *port, const __u8 *data, __u64 came, __u64 now);
void link_put_signal(const struct link_port *port, __u8 *set);

bool link_retry_init(struct link_port *port, __u64 now);
void link_retry_on(struct link_port *port, const __u8 *set, __u64 now); /* an ordered set came */
void link_retry_release(struct link_port *port, struct frame_pool *pool);
/* Whether credits are missing that a CC_Update brings back now: none of the frames that have them is under way. */
bool link_retry_leaks(const struct link_port *port);
/* Writes ordered sets behind the first `sets`; how many there are then. */
__u32 link_retry_put(struct link_port *port, __u64 now, __u8 *frame, __u32 sets);

static inline __u32 link_credits(const struct link_port *port, __u32 length)
{
	__s64 bytes = (__s64)length + port->config.overhead;

	return bytes <= 0 ? 0 : (bytes + port->config.unit - 1) / port->config.unit;
}

#define OWN_BYTES 38 /* of a request of the lab besides its payload; an answer has 8 less */

/* What a frame takes of the line, to the next byte. */
static inline __u64 link_line_bytes(const struct link_port *port, __u64 length)
{
	const struct line_format *line = &port->config.line;
	__u64 payload = length > OWN_BYTES ? length - OWN_BYTES : 0, packets;

	if (!line->packet)
		return length;
	packets = payload ? (payload + line->packet - 1) / line->packet : 1;
	payload = (payload + line->grain - 1) / line->grain * line->grain;
	return ((payload + packets * line->header) * line->wide + line->narrow / 2) / line->narrow;
}

/* How long so many bytes take at the link's rate. */
static inline __u64 link_time_ns(const struct link_port *port, __u64 bytes)
{
	return (bytes * 8000000000ull + port->rate_bps - 1) / port->rate_bps;
}

static inline __u64 earlier(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

static inline __u64 later(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

#define CATCH_UP_NS 2000000

/* A process that comes late may send at once what should have left in so long, and no more: a longer burst would fill
 * buffers before the other end can ask for a pause. */
static inline void link_catch_up(struct link_port *port, __u64 now)
{
	port->free_since_ns = port->free_ns;
	if (now > CATCH_UP_NS)
		port->free_ns = later(port->free_ns, now - CATCH_UP_NS);
}

#endif
