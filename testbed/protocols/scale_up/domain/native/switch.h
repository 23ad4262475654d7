/* The switch of a scale-up domain, without I/O: frames come in at ports and go out at others, in place.
 *
 * A domain has `planes` switch chips that know nothing of each other, and a port of every GPU in each: port
 * plane * gpus + gpu. All are in one process. A frame is stored at its input, in a FIFO of its VC or, with `voq`, in one
 * of its VC and output, and stays there until an output takes it: outputs take turns over VCs, and over inputs in each
 * VC. What a link lets through, and when, is `link_port.h`. A frame goes where its header says (10 bits, a GPU), and is
 * refused where it says to come from a GPU other than that of its port.
 *
 * A wire may lose and damage what comes in and goes out (`wire_errors.h`). A frame for a port whose link is down leaves
 * the buffer and goes nowhere; a request is answered with STATUS_UNREACHABLE.
 *
 * What all GPUs of a group are to do at once is of `switch_groups.h`.
 *
 * The buffer of an input is free again when the frame begins to leave, not when its last bit has left.
 */
#ifndef TESTBED_SCALE_UP_SWITCH_H
#define TESTBED_SCALE_UP_SWITCH_H

#include "histogram.h"
#include "link_port.h"
#include "switch_groups.h"
#include "wire_errors.h"

#define MOST_GPUS 1024

struct switch_config {
	__u32 gpus, planes;
	__u32 voq;
	__u32 frames, frame_bytes; /* of the pool */
};

/* The inputs that have a frame for an output on a VC, a bit each. */
struct requests {
	__u64 *inputs;
	__u32 last; /* the input that was served last */
};

struct switch_port {
	struct link_port link;
	struct wire wire;
	struct frame_list *queues; /* FIFO: one for each VC; VOQ: for each VC and output */
	struct requests requests[LINK_VCS]; /* of the output */
	__u32 last_vc;
	struct frame_list out; /* to be sent now */
	struct frame_list returned; /* requests of this GPU's that found their target's link down, as answers */
	bool listed;           /* in `ready` */
	struct frame_list held_back; /* operations on groups that wait until one before them has ended */
	__u32 answers_first, answers_last; /* operations on groups to be answered */
	__u32 reads; /* that the switch has asked of this GPU, and are not answered */
	__u64 asks_ns; /* when there was last an answer without which it might have asked for no more */
	bool groups_last; /* of the two kinds, which was served last */
};

struct scale_up_switch {
	struct switch_config config;
	__u32 port_count, words; /* of a bit for each GPU */
	struct switch_port *ports;
	__u64 *wake_ns; /* when a port needs attention */
	__u32 *ready;   /* ports that have frames to be sent */
	__u32 ready_count;
	struct frame_pool pool;
	struct frame_list *queue_memory;
	__u64 *request_memory;
	struct plane_groups *groups; /* of each plane */
	struct copy_ring *copies;    /* RINGS of each port */
	struct histogram passes;   /* from a frame's last bit to its being handed to the kernel */
	struct histogram lateness; /* from when it should have begun to leave */
	__u64 frames;
};

/* `links` are as many as ports. NULL: no memory, or a field is out of range. */
API struct scale_up_switch *switch_new(const struct switch_config *config, const struct link_config *links, __u64 now);
API void switch_free(struct scale_up_switch *sw);

/* A frame of the pool came in at a port. */
void switch_arrive(struct scale_up_switch *sw, __u32 port, __u32 frame, __u64 now);

/* From now on the wire of a port does that; false: a share is none, or no such port. A rate is of both directions. */
API bool switch_set_errors(struct scale_up_switch *sw, __u32 port, const struct wire_errors *errors, __u64 now);

/* Have a frame sent by a port: between the files of the switch. */
void switch_send_out(struct scale_up_switch *sw, __u32 port, __u32 frame);
/* The process of a GPU's end has died, or another one is there. */
API void switch_set_peer(struct scale_up_switch *sw, __u32 gpu, bool there, __u64 now);

/* Do all that is due by `now`: what is to be sent is in the lists of the ports in `ready`. */
API void switch_work(struct scale_up_switch *sw, __u64 now);

/* When there is something to do though nothing comes in. */
API __u64 switch_next_timer(const struct scale_up_switch *sw);

/* A frame was sent, or could not be; it is in the pool again. */
void switch_sent(struct scale_up_switch *sw, __u32 frame, __u64 now);

/* For whoever has no sockets: a frame that came in (false: no frame is free); the next one that goes out of a port (0:
 * none), copied. */
API bool switch_put(struct scale_up_switch *sw, __u32 port, const __u8 *data, __u32 length, __u64 now);
API __u32 switch_get(struct scale_up_switch *sw, __u32 port, __u8 *data, __u32 size, __u64 now);

API __u32 switch_held(const struct scale_up_switch *sw, __u32 port, __u32 vc); /* credits in an input buffer */
API const struct link_counters *switch_link_counters(struct scale_up_switch *sw, __u32 port);
API const struct vc_counters *switch_vc_counters(struct scale_up_switch *sw, __u32 port, __u32 vc);
/* Of LLR, all 0 where it is not used. */
API const struct retry_sender_counters *switch_retry_sender(struct scale_up_switch *sw, __u32 port);
API const struct retry_receiver_counters *switch_retry_receiver(struct scale_up_switch *sw, __u32 port);
API const struct histogram *switch_passes(const struct scale_up_switch *sw);
API const struct histogram *switch_lateness(const struct scale_up_switch *sw);
API __u64 switch_frames(const struct scale_up_switch *sw);

/* Forget the times until now, and how deep buffers were: they are those of what comes. */
API void switch_forget_peaks(struct scale_up_switch *sw);

#endif
