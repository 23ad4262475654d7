/* Frames of a scale-up link, to bytes and back: the twin of ../frames.py and ../ctlos.py, which describe them. */
#ifndef TESTBED_SCALE_UP_WIRE_H
#define TESTBED_SCALE_UP_WIRE_H

#include "api.h"

#define SCALE_UP_ETHERTYPE 0x88B6
#define ETHERNET_BYTES 14
#define PREFIX_BYTES 4
#define FCS_BYTES 4
#define CTLOS_BYTES 8
#define CTLOS_SLOTS 4
#define CONTROL_FRAME_BYTES 60
#define CC_UPDATE_BYTES 64
#define CC_UPDATE_COUNTS 10
#define LEAST_FRAME_BYTES (ETHERNET_BYTES + PREFIX_BYTES + FCS_BYTES)
#define COUNT_MASK 0x7FFFu

enum ctlos_type {
	LLR_ACK = 0x01,
	LLR_NACK = 0x02,
	LLR_INIT = 0x03,
	LLR_INIT_ECHO = 0x04,
	CF_UPDATE = 0x10,
	LINK_SIGNAL = 0x7F,
};

enum header_kind {
	CC_UPDATE = 0,
	SUE = 1,
	UALINK_REQUEST = 2,
	UALINK_RESPONSE = 3,
};

enum frame_check {
	CHECK_GOOD = 0,
	CHECK_POISONED = 1,
	CHECK_BAD = 2,
};

enum frame_shape {
	SHAPE_DATA = 0,
	SHAPE_CC_UPDATE = 1,
	SHAPE_CONTROL = 2,
};

struct ctlos {
	__u32 type;     /* enum ctlos_type; what it has not of the rest is 0 */
	__u32 sequence; /* of LLR */
	__u32 data;     /* of LLR_INIT and its echo */
	__u32 vc1;
	__u32 count1;
	__u32 vc2;
	__u32 count2;
};

struct cc_count {
	__u32 vc;
	__u32 consumed; /* S_CC */
};

/* What a frame was found to be. */
struct wire_frame {
	__u32 shape;         /* enum frame_shape */
	__u32 check;         /* enum frame_check */
	__u32 kind;          /* enum header_kind, of what has a prefix */
	__u32 vc;
	__u32 eligible;      /* for LLR: it has a sequence number */
	__u32 sequence;
	__u32 destination;   /* data: the accelerator that it is for */
	__u32 payload_at;    /* data: where the payload begins */
	__u32 payload_bytes; /* data */
	__u32 count;         /* of the two arrays, as the shape is */
	__u64 sent_ns;       /* control */
	struct ctlos items[CTLOS_SLOTS];
	struct cc_count counts[CC_UPDATE_COUNTS];
};

/* 0, or -1 where a field does not fit. */
API int ctlos_encode(__u8 *data, const struct ctlos *item);

/* 0, or -(1 + the offset of the byte that is wrong). CTLOS_BYTES are read. */
API int ctlos_decode(const __u8 *data, struct ctlos *item);

/* What the frame check sequence says. */
API enum frame_check wire_check(const __u8 *data, __u32 length);

/* 0, or -(1 + the offset of what is wrong); then `frame` has what the check sequence says, and nothing else. */
API int wire_decode(const __u8 *data, __u32 length, struct wire_frame *frame);

/* Write the check sequence of a frame of `length` bytes, its own four among them. */
API void wire_seal(__u8 *data, __u32 length, bool poisoned);

/* Write the Ethernet header and the prefix of an unnumbered frame: ETHERNET_BYTES + PREFIX_BYTES. */
API void wire_start(__u8 *data, const __u8 *destination, const __u8 *source, __u32 kind, __u32 vc);

/* Give a frame with a prefix its number, and a new check sequence; -1 for a frame that is too short for that. */
API int wire_number(__u8 *data, __u32 length, __u32 sequence, bool poisoned);

/* A frame of CONTROL_FRAME_BYTES; -1 where the sets do not fit. */
API int wire_control(__u8 *data, const __u8 *destination, const __u8 *source, const struct ctlos *items, __u32 count,
		     __u64 sent_ns);

/* An unnumbered CC_Update of CC_UPDATE_BYTES; -1 where the counts do not fit. */
API int wire_cc_update(__u8 *data, const __u8 *destination, const __u8 *source, const struct cc_count *counts,
		       __u32 count);

#endif
