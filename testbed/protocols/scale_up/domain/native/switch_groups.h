/* Operations of a scale-up switch on the memory of all GPUs of a group (NVLink SHARP; PTX `multimem`).
 *
 * A group is joined by its members, by each plane for itself (COMMAND_JOIN), and each says how many there are to be. The
 * members have memory at one address, which they lend to the switch (SWITCH_ID).
 *
 * COMMAND_MULTICAST: a write to that address. The switch writes it to every member, the one that asks included, and
 * answers when all have answered. The frame stays in its input buffer until the last copy has begun to leave: it waits
 * beside the frames for single GPUs, and each copy for the credits of its own output. Where copies and other frames want
 * to leave by an output, they take turns.
 * COMMAND_REDUCE: a read of that address (`multimem.ld_reduce`). The switch reads it at every member, adds up the
 * elements, and answers with the sums: 32-bit integers (modulo 2^32) or IEEE floats, which are added in the order in
 * which they come.
 *
 * A plane has OPEN_OPERATIONS of them at a time, of a frame's payload each; further requests wait in their input
 * buffers. An operation that a member does not answer ends after a time in STATUS_BUSY. Where a member's link is down,
 * or not all have joined, it ends in STATUS_UNREACHABLE: the GPU may take another plane. A member that starts anew has to
 * join again. Nothing that arrives is taken for granted. */
#ifndef TESTBED_SCALE_UP_SWITCH_GROUPS_H
#define TESTBED_SCALE_UP_SWITCH_GROUPS_H

#include "transactions.h"

#define GROUPS 16
#define OPEN_OPERATIONS 256
#define TAG_ROUNDS (TAGS / OPEN_OPERATIONS)

struct scale_up_switch;

struct group_operation {
	__u64 until_ns; /* when it ends without all answers; of one that has: when its place is free again */
	__u64 ready_ns; /* when it, or its answer, was complete here */
	__u64 epoch;    /* of the link of who asks */
	struct request request;
	__u32 port;      /* of who asks */
	__u32 frame;     /* what is copied; NO_FRAME: nothing is */
	__u32 copies, answers; /* yet to be sent, and to come */
	__u32 bytes;     /* of the payload */
	__u32 round;     /* in the tags of its copies, lest a late answer be taken for another's */
	__u32 next;      /* of those that wait to be answered */
	__u8 vc, answer_vc, status;
	bool used, over, answered;
	bool summed; /* there is something to add to */
	__u64 awaited[16]; /* a bit for each member that has yet to answer */
	__u64 asked[16];   /* and for each that has its copy */
};

struct group {
	__u32 expected;
	__u64 *joined; /* by GPU: 1 + the epoch of its link; 0: it is no member */
};

/* The operations that have a copy for an output, in order: those of reads in one ring, which go first, since what they ask
 * for is on the members' other links; and those of writes in one. */
#define RINGS 2
struct copy_ring {
	__u16 operation[OPEN_OPERATIONS];
	__u32 first, count;
};

struct plane_groups {
	struct group groups[GROUPS];
	struct group_operation operations[OPEN_OPERATIONS];
	__u8 *sums; /* of each operation */
	__u32 open, last; /* where one was begun last */
	__u64 due_ns; /* when one has to be looked at */
};

/* False: no memory. */
bool groups_init(struct scale_up_switch *sw);
void groups_free(struct scale_up_switch *sw);

/* Take a frame that came in at a port, if it is of such an operation; false: it is of none. */
bool groups_take(struct scale_up_switch *sw, __u32 frame, __u64 now);

/* One frame of such operations by an output; false: none may go. `resumes_ns` is when one may. */
bool groups_serve(struct scale_up_switch *sw, __u32 port, __u64 now, __u64 *resumes_ns);

/* The link of a port is down. */
void groups_discard(struct scale_up_switch *sw, __u32 port, __u64 now);

/* What has waited for too long. */
void groups_expire(struct scale_up_switch *sw, __u64 now);
__u64 groups_next_timer(const struct scale_up_switch *sw);

#endif
