/* The maps that the eBPF programs, the pause agent and the telemetry share.
 *
 * testbed/base/datapath/maps.py makes the types of numpy of these structures and those of rules.h; a test compiles both
 * against each other.
 * A port's number is its place in the lab (from 1); 0 means "no port". Index of a queue: port * 8 + priority.
 */
#ifndef TESTBED_LAYOUT_H
#define TESTBED_LAYOUT_H

#define CLASSES 8
#define DEPTH_BINS 16
#define CURVE_BINS 24
#define CURVE_BINS_TO_KMAX 16 /* of those: below kmax */
#define MARK_VALID 0x80000000u /* skb->mark: valid, trimmed, priority, ingress port */
#define MARK_TRIMMED 0x00080000u
#define MARK_CLASS_SHIFT 16
#define MARK_PORT 0x0000ffffu
#define MOST_PATHS 64 /* of a packet whose path is not chosen by a hash */

/* The modes of testbed.lab.core.model.qos.BalancingMode in their order, then LB_KERNEL. */
enum load_balancing { LB_FLOW, LB_FLOWLET, LB_SPRAY, LB_ADAPTIVE, LB_STATIC, LB_KERNEL };

/* The fields of a packet that a hash heeds: testbed.base.datapath.abi.HashField in their order. */
enum hash_fields {
	HASH_SOURCE = 1,
	HASH_DESTINATION = 2,
	HASH_PROTOCOL = 4,
	HASH_SOURCE_PORT = 8,
	HASH_DESTINATION_PORT = 16,
	HASH_ROCE_QP = 32,
};

enum port_flags {
	PORT_SWITCH = 1,
	PORT_TRIM = 2,
	PORT_LAST_HOP = 4, /* a NIC is at the other end */
	PORT_FLOWLETS = 8, /* LB_ADAPTIVE: a flow may move after a gap alone */
};

struct port_config {
	__u32 ifindex;
	__u16 profile;
	__u16 buffer;        /* the switch's shared buffer */
	__u32 flags;         /* enum port_flags */
	__u32 balancing;     /* enum load_balancing */
	__u32 seed;          /* of the switch */
	__u32 peer;          /* port number of the other end */
	__u64 gap_ns;        /* flowlet gap, lab time */
	__u32 loss;          /* of received packets, 2^32 - 1 is all: the wire to this port */
	__u32 corruption;    /* likewise */
	__u32 delay_ifindex; /* ifb that delays what is received; 0: none */
	__u32 loss_every;    /* drop one packet in so many; 0: none */
	__u64 sprayed;       /* packets sprayed from this port */
	__u64 arrived;       /* packets received, for loss_every */
	__u64 cap_bps;       /* of what is received; 0: none */
	__u64 cap_burst_ns;  /* so much may come at once, as the time in which the cap lets it through */
	__u64 conforming_ns; /* when all that was let through would have come at the cap */
	__u32 hash_fields;   /* enum hash_fields */
	__u32 stride;        /* LB_STATIC: so many destinations in a row have the same path */
	__u32 hysteresis_bytes; /* LB_ADAPTIVE: a flow stays until another path has so many fewer queued */
	__u32 pad;
};

/* A destination of the lab, and the number by which it is pinned to a path. Ascending by address. */
struct address {
	__u32 address; /* IPv4, host order; the rest of the map: all ones */
	__u32 number;
};

/* The port that an interface of a switch is. Ascending by buffer and interface; the rest of the map: all ones. */
struct egress {
	__u32 buffer; /* of the switch */
	__u32 ifindex;
	__u32 port;
	__u32 pad;
};

struct buffer {
	__u64 used_bytes; /* atomic */
	__u64 max_bytes;
	__u64 size_bytes;
	__u64 pad[5];
};

/* An egress queue. Written under the root lock of its port's qdisc. */
struct queue {
	__u64 bytes; /* now in the queue, padding the rest: everything else only grows */
	__u64 max_bytes;
	__u64 in_packets, in_bytes; /* offered */
	__u64 enqueued_packets, enqueued_bytes;
	__u64 out_packets, out_bytes;
	__u64 tail_packets, tail_bytes;     /* dropped: static limit */
	__u64 buffer_packets, buffer_bytes; /* dropped: dynamic threshold or a full buffer */
	__u64 wred_packets, wred_bytes;     /* dropped: not ECT where ECT would have been marked */
	__u64 headroom_packets, headroom_bytes; /* dropped: lossless, headroom exceeded */
	__u64 purged_packets, purged_bytes; /* lost with the queue when the link went down */
	__u64 ce_packets;                   /* marked here */
	__u64 ect_packets;                  /* enqueued with ECT or CE */
	__u64 trimmed_packets, trimmed_bytes; /* bytes cut off */
	__u64 forwarded_packets, forwarded_bytes; /* offered, having come in at another port */
	__u64 depth[DEPTH_BINS]; /* arrivals that found a depth of less than 2^(8 + bin) bytes; the last: all others */
};

/* How the packets of a queue that allowed a mark fared, by the depth that decided it: bins of kmax / 16 bytes, the last
 * one all that is deeper. Written where they arrive, by the link's other end, so that it is the same for every marker. */
struct curve {
	__u64 packets[CURVE_BINS];
	__u64 marked[CURVE_BINS];
};

/* What a port received of a priority, and what of it is still in the switch. */
struct ingress {
	__u64 bytes; /* in the switch now: atomic */
	__u64 max_bytes;
	__u64 in_packets, in_bytes;
	__u64 lost_packets, lost_bytes; /* by the emulated wire */
	__u64 policed_packets, policed_bytes; /* dropped: above the cap of the port */
	__u64 corrupted_packets;
	__u64 ce_packets; /* arrived with CE */
	__u64 xoff_events, xon_events;
	__u64 pause_frames;     /* valid PFC frames received that name this priority */
	__u64 malformed_frames; /* MAC control frames that are no valid PFC frame (kept at priority 0) */
	__u32 xoff;             /* 1 while above */
	__u32 xoff_bytes;       /* thresholds of the port's profile; 0: not lossless */
	__u32 xon_bytes;
	__u32 limit_bytes;      /* xoff and headroom */
	__u64 xoff_ns;          /* CLOCK_MONOTONIC of the last crossing */
};

/* Pausing of an egress queue and of the peer. Written by the pause agent alone. */
struct pause {
	__u64 xoff_sent, xon_sent;
	__u64 xoff_received, xon_received;
	__u64 paused_ns;    /* of this egress queue, in all */
	__u64 paused_since; /* CLOCK_MONOTONIC, 0: not paused */
	__u64 asked_ns;     /* time in which this port kept its peer paused, in all */
	__u64 asked_since;
	__u64 watchdog_events;
	__u64 watchdog_dropped; /* reserved */
	__u32 closed;  /* 1 while the gate is closed */
	__u32 storm;   /* 1 while a storm is injected */
	__u32 ignored; /* 1 while the watchdog ignores pause */
	__u32 pad;
};

enum event_kind { EVENT_XOFF = 1, EVENT_XON = 2, EVENT_PFC = 3 };

/* To the pause agent, in the ring `events`. */
struct event {
	__u64 ns; /* CLOCK_MONOTONIC */
	__u16 port;
	__u8 kind;
	__u8 priority; /* of XOFF and XON; class-enable vector of PFC */
	__u32 bytes;   /* XOFF and XON: occupancy */
	__u16 quanta[CLASSES];
};

/* What enqueue leaves in skb->cb for the other end of the link. It is in the last two words: in the first ones, qdiscs
 * of the kernel note since when a packet has waited (include/net/codel_qdisc.h, include/net/pie.h). */
#define NOTE_QUEUE 3   /* cb[3]: index of the queue, and above it the lower bits of the lab's tag */
#define NOTE_INGRESS 4 /* cb[4]: index of the ingress account, the bin, and the upper bits of the lab's tag */
#define INDEX_BITS 19
#define BIN_BITS 5
#define LOW_TAG_BITS (32 - INDEX_BITS)
#define TAG_BITS (LOW_TAG_BITS + 32 - INDEX_BITS - BIN_BITS)

/* What such a note says. */
struct queued {
	__u32 queue;
	__u32 ingress; /* index of the ingress account, 0: none */
	__u32 bin;     /* where the packet may be marked: 1 + bin of its curve, or 1 if its bin is told as it leaves */
	__u32 bytes;
};

/* What became of a packet that telemetry is told of. */
enum fate { FATE_SENT, FATE_TAIL, FATE_BUFFER, FATE_WRED, FATE_HEADROOM, FATE_CAP };

#define SAMPLE_BYTES 128

/* A packet that a switch port was about to send, or dropped: to telemetry, in the ring `samples`. */
struct sample {
	__u64 ns;      /* CLOCK_MONOTONIC */
	__u32 queue;   /* index of the egress queue; of FATE_CAP: of the port that received it */
	__u32 ingress; /* index of the ingress account, 0: it did not come in by a port */
	__u32 depth;   /* bytes that the queue had */
	__u32 length;  /* of the frame */
	__u16 captured;
	__u8 fate; /* enum fate */
	__u8 pad[5];
	__u8 header[SAMPLE_BYTES];
};

struct lab_config {
	__u32 tag; /* of TAG_BITS, never 0 */
	__u32 sample_below; /* so many of 2^32 packets that switch ports send are told of */
	__u64 lost_events; /* the ring was full */
	__u64 drop_gap_ns; /* at most one drop in so long is told of; 0: none */
	__u64 drop_due_ns;
	__u64 lost_samples; /* their ring was full */
	__u64 untold_drops; /* came too soon, or the ring was full */
	__u32 addresses; /* in the map by that name */
	__u32 egresses;  /* likewise */
};

#endif
