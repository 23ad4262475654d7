/* Credit-based flow control: the twin of ../credits.py, which tells its story.
 *
 * Nothing is allocated. Times are in ns. */
#ifndef TESTBED_SCALE_UP_CREDITS_H
#define TESTBED_SCALE_UP_CREDITS_H

#include "api.h"
#include "wire.h"

struct credit_config {
	__u32 limits[VCS]; /* credits; 0: best effort */
	__u32 unit_bytes;  /* 32 to 2**20; of a specification's link a power of two, up to 2048 */
	__s32 overhead_bytes;
	__u32 port_limit; /* 0: none */
	__u32 reserved;
	__u64 cf_min_ns;
	__u64 cf_max_ns;    /* 0: no repetition */
	__u64 cc_period_ns; /* 0: no CC_Updates */
};

struct credit_sender_counters {
	__u64 sender_credits_used_watermark;
	__u64 num_cc_update_messages_tx;
	__u64 num_cf_update_messages_rx;
	__u64 cf_update_errors;
};

struct credit_receiver_counters {
	__u64 num_cc_update_messages_rx;
	__u64 num_cf_update_messages_tx;
	__u64 cc_update_errors;
	__u64 leaked_credits;
	__u64 over_limit_frames;
};

struct credit_sender {
	struct credit_config config;
	__u32 consumed[VCS]; /* S_CC */
	__u32 freed[VCS];    /* S_CF */
	__u64 port_in_use;   /* S_CU of the port */
	__u64 cc_due_ns;
	__u32 lossless; /* a bit for each VC that has credits */
	__u32 pad;
	struct credit_sender_counters counters;
};

struct credit_receiver {
	struct credit_config config;
	__u32 consumed[VCS]; /* R_CC */
	__u32 freed[VCS];    /* R_CF */
	__u32 told[VCS];     /* R_CF in the last CF_Update */
	__u64 told_ns[VCS];  /* when that was sent */
	__u64 port_held;
	__u64 earliest_ns; /* when the next CF_Update may be sent */
	__u32 lossless;
	__u32 changed; /* VCs whose R_CF is not the one that was told */
	__u32 next_vc;
	__u32 pad;
	struct credit_receiver_counters counters;
};

/* -1 for a configuration that is out of range. */
API int credit_sender_init(struct credit_sender *sender, const struct credit_config *config);
/* Count from 0 again: the other end has begun anew, and what was sent is void. What was counted of messages stays. */
API void credit_sender_restart(struct credit_sender *sender);
API bool credit_may_send(const struct credit_sender *sender, __u32 vc, __u32 frame_bytes);
API void credit_sent(struct credit_sender *sender, __u32 vc, __u32 frame_bytes);
API void credit_on_cf_update(struct credit_sender *sender, const struct ctlos *update);

/* The VCs whose S_CC is to be sent in CC_Updates now, a bit for each. */
API __u32 credit_sender_poll(struct credit_sender *sender, __u64 now);
API __u64 credit_sender_timer(const struct credit_sender *sender);

API int credit_receiver_init(struct credit_receiver *receiver, const struct credit_config *config);

API void credit_receiver_restart(struct credit_receiver *receiver);

/* False: there is no room, and the frame is to be dropped. */
API bool credit_stored(struct credit_receiver *receiver, __u32 vc, __u32 frame_bytes);
API void credit_freed(struct credit_receiver *receiver, __u32 vc, __u32 frame_bytes);
API void credit_on_cc_update(struct credit_receiver *receiver, const struct cc_count *counts, __u32 count);

/* Whether a CF_Update is due, and which. */
API bool credit_receiver_poll(struct credit_receiver *receiver, __u64 now, struct ctlos *update);
API __u64 credit_receiver_timer(const struct credit_receiver *receiver);

#endif
