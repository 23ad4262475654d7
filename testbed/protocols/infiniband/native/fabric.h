/* An InfiniBand fabric in virtual time: switches of several hops, host channel adapters (HCAs) at its edge, no I/O.
 *
 * A frame is a handle of the caller's with the bytes of its headers (LRH, perhaps GRH, BTH): its payload stays with the
 * caller. Who may send is what a link's credits say (`credits.h`, those of scale-up links, in blocks of 64 bytes for
 * each virtual lane, VL). A frame that has come in whole is stored at its input, in a FIFO of its VL or, with `voq`, in
 * one of its VL and output; where it goes is what the switch's linear forwarding table (LFT) says of its destination's
 * local identifier (LID), on which VL what its table says of input, output and service level (SL). At an output the
 * tables of VL arbitration choose the VL, and inputs take turns in it. VL15, which is management's, has no credits: it
 * goes before all else, and what it has no room for is dropped.
 *
 * The difference to the switch of a scale-up domain, whose frame lists and credits these are: ports are those of many
 * switches, a frame changes its VL on the way, its header is the LRH, and nobody gives an answer for what cannot be
 * delivered.
 *
 * Store and forward: a switch has a frame whole before it sends it. The buffer of an input is free again when the frame
 * begins to leave. Times are in ns.
 *
 * Source: InfiniBand Architecture Specification volume 1, release 1.4: 7.6 (VLs, arbitration), 7.7 (LRH), 7.9 (credits),
 * 10.9 (partitions), 18.2 (switches), annex A10 (congestion control). Credits are counted as CBFC does, absolute and in
 * both directions, where the specification has FCTBS and FCCL, which are absolute as well. */
#ifndef TESTBED_INFINIBAND_FABRIC_H
#define TESTBED_INFINIBAND_FABRIC_H

#include "credits.h"
#include "event_heap.h"
#include "frame_pool.h"
#include "vl_arbiter.h"

#define HEADER_BYTES 60 /* LRH, GRH and BTH */
#define LRH_BYTES 8
#define GRH_BYTES 40
#define BTH_BYTES 12
#define VCRC_BYTES 2
#define BLOCK_BYTES 64
#define DATA_VLS 15
#define ALL_VLS 16
#define MANAGEMENT_VL 15
#define SLS 16
#define NO_PORT 255
#define NOBODY (~0u)
#define MOST_PORTS 254 /* of a node */
#define LEAST_MULTICAST 0xC000

struct fabric_config {
	__u32 nodes, links, vls, voq;
	__u32 lids;              /* one more than the highest */
	__u32 management_frames; /* of VL15 that an input has room for */
};

struct node_config {
	__u32 ports, is_switch, lid;
};

struct fabric_link {
	__u32 node_a, port_a, node_b, port_b; /* ports count from 1 */
	__u64 rate_bps, delay_ns;
	__u64 spacing_ns;         /* least time between two updates of credits */
	__u32 blocks, pad;        /* of an input's buffer, for each VL */
};

struct lane_counters {
	__u64 xmit_bytes, xmit_pkts, rcv_bytes, rcv_pkts;
	__u64 xmit_wait_ns; /* data was there, the line was free, and there were no credits */
	__u64 deepest;      /* the most blocks that were in the buffer */
	__u64 marked;       /* frames that got their FECN here */
};

/* Names as in the PortCounters and PortExtendedCounters attributes (16.1.3.5). */
struct port_counters {
	__u64 xmit_data, rcv_data; /* words of 4 bytes */
	__u64 xmit_pkts, rcv_pkts;
	__u64 xmit_wait_ns;
	__u64 xmit_discards, rcv_errors, rcv_switch_relay_errors;
	__u64 xmit_constraint_errors, rcv_constraint_errors, vl15_dropped;
	__u64 buffer_overruns, bad_pkey, misrouted, lost_on_link, link_downed;
};

struct entry {
	__u8 vl, weight;
};

struct frame_extra {
	__u64 token;
	__u32 epoch; /* of the link that it came in by */
	__u8 out_vl, sl;
	__u8 known;  /* bytes of its headers that are there */
	__u8 at_bth; /* 0: it has not been looked at */
	bool is_own; /* it waits at the HCA that sends it */
	bool is_injected; /* it came without credits */
};

/* A FIFO of an input; while it has frames it waits at the output of its first one. */
struct input_queue {
	struct frame_list frames;
	struct input_queue *next;
};

struct waiting_queues {
	struct input_queue *first, *last;
};

struct fabric_port {
	__u32 node, number, peer; /* `peer`: the port at the link's other end, or NOBODY */
	__u64 rate_bps, delay_ns;
	bool up, is_edge, free_due, tell_due;
	bool has_sent; /* an HCA's caller is to be told when the line is free */
	bool is_watched; /* the caller is to be told of each frame that it sends and receives */
	__u64 sent_token;
	__u32 epoch; /* another one whenever the link goes down or comes back */
	/* sending */
	struct credit_sender sender;
	struct waiting_queues wanted[ALL_VLS];
	__u32 wanting; /* a bit for each VL of which a queue waits */
	__u64 free_ns;
	struct vl_arbiter arbiter;
	__u32 waits;   /* a bit for each VL that has waited for credits since `wait_since_ns` */
	__u64 wait_since_ns[ALL_VLS], idle_since_ns;
	bool held;     /* something waits since `idle_since_ns`, though the line is free */
	__u64 queued_bytes[ALL_VLS]; /* of all inputs' frames that are for this output, by the VL that they leave on */
	__u32 unmarked[ALL_VLS], since_wait[ALL_VLS]; /* frames */
	/* receiving */
	struct credit_receiver receiver;
	__u32 blocks, held_blocks[DATA_VLS], management_held;
	struct input_queue *queues;
	/* partitions */
	__u16 *pkeys;
	__u32 pkey_count;
	struct port_counters counters;
	struct lane_counters lanes[ALL_VLS];
};

struct fabric_node {
	__u32 first_port, ports, lid;
	bool is_switch;
	__u8 *lft;
	__u8 *sl2vl;  /* by input, output and SL; NULL: `common_sl2vl` */
	__u8 common_sl2vl[SLS];
	__u64 up_ports[4]; /* those of which a frame may take any; none: the table's alone */
	/* congestion control */
	__u32 threshold_bytes, marking_rate, least_marked_bytes;
};

/* Of a watched port NOTICE_LEAVES says that a frame begins to leave, and NOTICE_COMES that one is in whole. */
enum notice_kind { NOTICE_DELIVERED = 1, NOTICE_SENT, NOTICE_LOST, NOTICE_LEAVES, NOTICE_COMES };

struct notice {
	__u64 at_ns, token;
	__u32 node, kind; /* `node`: the HCA; of a frame that was lost, the node that it was lost at */
	__u32 fecn, cause; /* of a frame that was lost, the place of a counter in `port_counters` */
	__u32 port, vl; /* of a watched port */
};

/* The output of a node, and a VL of it. */
struct channel {
	__u32 node, port, vl;
};

struct ib_fabric {
	struct fabric_config config;
	__u64 now;
	struct fabric_node *nodes;
	struct fabric_port *ports;
	__u32 port_count;
	struct input_queue *queue_memory;
	struct frame_pool pool;
	struct frame_extra *extra;
	struct event_heap events;
	struct notice *notices;
	__u32 notice_count, notice_room;
	bool broken; /* there was no memory */
	__u64 in_flight, hops;
};

/* NULL: a field is out of range, or no memory. */
API struct ib_fabric *ib_fabric_new(const struct fabric_config *config, const struct node_config *nodes,
				    const struct fabric_link *links);
API void ib_fabric_free(struct ib_fabric *fabric);

/* ---- tables, which are in force at once; false: out of range */
API bool ib_fabric_set_lft(struct ib_fabric *fabric, __u32 node, const __u8 *ports, __u32 count);
/* `input` and `output` 0: of all; `vls` are SLS. */
API bool ib_fabric_set_sl2vl(struct ib_fabric *fabric, __u32 node, __u32 input, __u32 output, const __u8 *vls);
/* `port` 0: of all. `limit`: of the high-priority table, in units of 4,096 bytes; 255: none. */
API bool ib_fabric_set_arbitration(struct ib_fabric *fabric, __u32 node, __u32 port, const struct entry *high,
				   __u32 highs, const struct entry *low, __u32 lows, __u32 limit);
/* No keys at all: everything passes. */
API bool ib_fabric_set_pkeys(struct ib_fabric *fabric, __u32 node, __u32 port, const __u16 *keys, __u32 count);
/* `threshold`: 0 (off) to 15 (the lowest queue); a mark for each `rate` + 1 packets of at least `least_bytes`. */
API bool ib_fabric_set_congestion(struct ib_fabric *fabric, __u32 node, __u32 threshold, __u32 rate, __u32 least_bytes);
/* Ports of a switch among which the least loaded is taken where the table names one of them; ours, not InfiniBand's. */
API bool ib_fabric_set_up_ports(struct ib_fabric *fabric, __u32 node, const __u64 *bits);
API bool ib_fabric_set_link(struct ib_fabric *fabric, __u32 node, __u32 port, bool up);
/* What a port sends on a VL lacks so many credits, until it is told another number or its link has been down: its peer
 * has lost the buffers of as many blocks. */
API bool ib_fabric_set_leak(struct ib_fabric *fabric, __u32 node, __u32 port, __u32 vl, __u32 blocks);
/* There are notices of all frames at a port, or none any more. */
API bool ib_fabric_watch(struct ib_fabric *fabric, __u32 node, __u32 port, bool on);

/* ---- frames */

/* Let an HCA send a frame of `bytes` from its LRH to its VCRC, whose first `length` are `header`, as soon as it may.
 * `management`: on VL15. False: there is no such HCA, or no memory. A header that is none is counted, and lost. */
API bool ib_fabric_offer(struct ib_fabric *fabric, __u32 node, const __u8 *header, __u32 length, __u32 bytes,
			 __u64 token, bool management, __u64 now);
/* A frame has come in at a port of any node, whatever it is and whoever sent it. */
API bool ib_fabric_inject(struct ib_fabric *fabric, __u32 node, __u32 port, const __u8 *header, __u32 length,
			  __u32 bytes, __u64 token, __u64 now);

/* Do what is due up to `until` and at it; with `stops`, not beyond the time of the first notice. When that was, or when
 * the next thing is due; NEVER: nothing is. */
API __u64 ib_fabric_run(struct ib_fabric *fabric, __u64 until, bool stops);
/* It is `now`, and nothing was due since. */
API void ib_fabric_pass(struct ib_fabric *fabric, __u64 now);
API const struct notice *ib_fabric_notices(const struct ib_fabric *fabric);
API __u32 ib_fabric_notice_count(const struct ib_fabric *fabric);
API void ib_fabric_forget_notices(struct ib_fabric *fabric);

/* How many outputs wait for each other's buffers in a circle, none of which will ever be free, unless a link goes down;
 * 0: there is no such circle. `found` has the first `room` of them, each before the one that it waits for. */
API __u32 ib_fabric_deadlock(const struct ib_fabric *fabric, struct channel *found, __u32 room);

API const struct port_counters *ib_fabric_counters(struct ib_fabric *fabric, __u32 node, __u32 port);
API const struct lane_counters *ib_fabric_lane(struct ib_fabric *fabric, __u32 node, __u32 port, __u32 vl);
/* What buffers hold now is the most that was in them. */
API void ib_fabric_forget_peaks(struct ib_fabric *fabric);
API __u64 ib_fabric_in_flight(const struct ib_fabric *fabric);
API __u64 ib_fabric_hops(const struct ib_fabric *fabric);
API bool ib_fabric_is_broken(const struct ib_fabric *fabric);

/* The variant CRC of a frame, from its LRH to its ICRC (7.8.2). */
API __u32 ib_vcrc(const __u8 *data, __u32 length);

/* ---- between the files of a fabric */

static inline struct fabric_port *port_of(struct ib_fabric *fabric, __u32 node, __u32 number)
{
	if (node >= fabric->config.nodes || !number || number > fabric->nodes[node].ports)
		return NULL;
	return &fabric->ports[fabric->nodes[node].first_port + number - 1];
}

static inline __u32 number_of(const struct ib_fabric *fabric, const struct fabric_port *port)
{
	return port - fabric->ports;
}

void fabric_event(struct ib_fabric *fabric, const struct event *event);
void fabric_arrive(struct ib_fabric *fabric, struct fabric_port *port, __u32 frame);
/* Have a port look what it may send, now or as soon as its line is free. */
void fabric_wake(struct ib_fabric *fabric, struct fabric_port *port);
void fabric_notify(struct ib_fabric *fabric, struct notice notice);
/* A frame goes nowhere, which the counter of a port says. */
void fabric_lose(struct ib_fabric *fabric, struct fabric_port *port, __u32 frame, __u64 *counter);
/* All that wants to leave by a port is lost. */
void fabric_discard(struct ib_fabric *fabric, struct fabric_port *port);
/* The queue of an input whose frames came on a VL, and with `voq` leave by an output. */
static inline struct input_queue *queue_of(const struct ib_fabric *fabric, const struct fabric_port *input, __u32 vl,
					   __u32 output)
{
	return &input->queues[fabric->config.voq ? vl * fabric->nodes[input->node].ports + output - 1 : vl];
}

/* A new frame; NO_FRAME: no memory. */
__u32 fabric_frame(struct ib_fabric *fabric, const __u8 *header, __u32 length, __u32 bytes, __u64 token);

static inline __u32 blocks_of(__u32 bytes)
{
	return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

#endif
