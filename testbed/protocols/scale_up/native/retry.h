/* Link layer retry: the twin of ../retry.py, which tells its story.
 *
 * The frames themselves are the caller's: the sender keeps a handle of each, and says which it keeps no longer
 * (`retry_collect`); only then is its room free again. Slots are the caller's memory, too. Nothing is allocated.
 * Times are in ns. */
#ifndef TESTBED_SCALE_UP_RETRY_H
#define TESTBED_SCALE_UP_RETRY_H

#include "api.h"
#include "wire.h"

#define MOST_OUTSTANDING HALF_CYCLE
#define UNLIMITED_REPLAYS 255

enum frame_action { ACTION_DISCARD = 0, ACTION_BLOCK = 1, ACTION_BEST_EFFORT = 2 };
enum sender_state { SENDER_OFF = 0, SENDER_INIT = 1, SENDER_ADVANCE = 2, SENDER_REPLAY = 3, SENDER_FLUSH = 4 };
enum receiver_state { RECEIVER_OFF = 0, RECEIVER_SEND_ACKS = 1, RECEIVER_SEND_NACK = 2, RECEIVER_NACK_SENT = 3 };
enum verdict { VERDICT_SENT = 0, VERDICT_BLOCKED = 1, VERDICT_DISCARDED = 2, VERDICT_BEST_EFFORT = 3 };

struct retry_config {
	__u32 outstanding_frames_max;
	__u32 outstanding_bytes_max;
	__u32 replay_count_max;
	__u32 init_action;  /* enum frame_action */
	__u32 flush_action; /* likewise */
	__u32 re_init_on_flush;
	__u64 replay_timer_ns;
	__u64 pcs_lost_timeout_ns; /* 0: for ever */
	__u64 data_age_timeout_ns; /* likewise */
	__u64 ack_spacing_ns;
};

struct retry_sender_counters {
	__u64 tx_init_ctl_os;
	__u64 rx_init_echo_ctl_os;
	__u64 rx_ack_ctl_os;
	__u64 rx_nack_ctl_os;
	__u64 rx_ack_nack_seq_error;
	__u64 tx_ok;
	__u64 tx_poisoned;
	__u64 tx_discard;
	__u64 tx_replay;
	__u64 tx_flushed;
};

struct retry_receiver_counters {
	__u64 rx_init_ctl_os;
	__u64 tx_init_echo_ctl_os;
	__u64 tx_ack_ctl_os;
	__u64 tx_nack_ctl_os;
	__u64 rx_ok;
	__u64 rx_poisoned;
	__u64 rx_bad;
	__u64 rx_expected_seq_good;
	__u64 rx_expected_seq_poisoned;
	__u64 rx_expected_seq_bad;
	__u64 rx_missing_seq;
	__u64 rx_duplicate_seq;
	__u64 rx_replay;
};

struct retry_slot {
	__u64 sent_ns; /* for the first time */
	__u32 handle;
	__u32 size;
	__u32 poisoned;
	__u32 acknowledged; /* of a released one; 0: it was given up */
};

struct retry_released {
	__u32 handle;
	__u32 acknowledged;
};

struct retry_sender {
	struct retry_config config;
	struct retry_slot *slots;
	__u32 slots_mask;
	__u32 state; /* enum sender_state */
	__u32 next;  /* the number of the next new frame */
	/* Positions in the ring of slots that only grow: released, outstanding, free. */
	__u32 collected;
	__u32 oldest;
	__u32 end;
	__u32 cursor; /* in REPLAY: the slot to be sent next */
	__u32 replays_in_a_row;
	__u32 init_data;
	__u32 pcs_down;
	__u64 pcs_down_ns;
	__u64 outstanding_bytes;
	__u64 timer_ns;
	__u64 init_due_ns;
	struct retry_sender_counters counters;
};

struct retry_receiver {
	struct retry_config config;
	__u32 state; /* enum receiver_state */
	__u32 expected;
	__u32 acked; /* what the last ACK or NACK said */
	__u32 seen;  /* the number of the last frame that was not damaged */
	__u32 ack_again;
	__u32 owes_echo;
	__u32 echo_sequence;
	__u32 echo_data;
	__u64 earliest_ns;
	struct retry_receiver_counters counters;
};

/* `slots`: a power of two of them, at least as many as may be outstanding; -1 for what is out of range. */
API int retry_sender_init(struct retry_sender *sender, const struct retry_config *config, struct retry_slot *slots,
			  __u32 count);

/* `sequence`: the number of the first frame; above 20 bits: the next in turn. */
API void retry_start(struct retry_sender *sender, __u64 now, __u32 sequence);
API void retry_stop(struct retry_sender *sender);
API void retry_set_pcs(struct retry_sender *sender, bool up, __u64 now);
API enum verdict retry_verdict(const struct retry_sender *sender, __u32 frame_bytes);
API enum verdict retry_offer(struct retry_sender *sender, __u32 handle, __u32 frame_bytes, bool poisoned, __u64 now,
			     __u32 *sequence);
API void retry_on_ack(struct retry_sender *sender, __u32 sequence, __u64 now);
API void retry_on_nack(struct retry_sender *sender, __u32 sequence, __u64 now);
API void retry_on_init_echo(struct retry_sender *sender, __u32 sequence, __u32 data);
API __u32 retry_outstanding(const struct retry_sender *sender);

/* Let timers expire; whether an LLR_INIT is to be sent, and which. */
API bool retry_sender_poll(struct retry_sender *sender, __u64 now, struct ctlos *item);

/* Whether a frame is to be sent again, and which. */
API bool retry_replay(struct retry_sender *sender, __u64 now, __u32 *handle, __u32 *sequence);

/* How many frames were released, up to `room`, and which. */
API __u32 retry_collect(struct retry_sender *sender, struct retry_released *released, __u32 room);
API __u64 retry_sender_timer(const struct retry_sender *sender);

API void retry_receiver_init(struct retry_receiver *receiver, const struct retry_config *config);
API void retry_receiver_stop(struct retry_receiver *receiver);
API void retry_on_init(struct retry_receiver *receiver, __u32 sequence, __u32 data);

/* Whether a numbered frame is to be taken. `sequence`: above 20 bits where it is too damaged to have one. */
API bool retry_on_frame(struct retry_receiver *receiver, __u32 sequence, __u32 check);
API bool retry_receiver_poll(struct retry_receiver *receiver, __u64 now, struct ctlos *item);
API __u64 retry_receiver_timer(const struct retry_receiver *receiver);

#endif
