/* What a libfabric provider in a program and the process that has the UET endpoints of its host say to each other over a
 * Unix socket. Little endian. A request may have a body; a reply never has one. testbed.endpoints.libfabric.wire is the
 * same in Python, and a contract test compares both.
 *
 * A connection is a domain: a PIDonFEP of its own at the endpoint of one rail. An endpoint of it is a resource index.
 */
#ifndef TESTBED_LIBFABRIC_WIRE_H
#define TESTBED_LIBFABRIC_WIRE_H

#include <stdint.h>

#define WIRE_VERSION 1
#define WIRE_INLINE_BYTES 4096   /* the data that a request may bring along */
#define WIRE_PLACES 8            /* places in memory that a request may name */
#define WIRE_BODY_BYTES 8448     /* two operands and the places */
#define WIRE_TRANSMITS 4096      /* operations under way in a domain that send */
#define WIRE_RECEIVES 16384      /* and receives that wait */
#define WIRE_ENDPOINTS 15        /* of a domain: port numbers in names have 4 bits for them */
#define WIRE_MESSAGE_BYTES (1ull << 28)
#define WIRE_KEY_BITS 48         /* of a memory key that a program chooses */

enum wire_request_kind {
	WIRE_RAIL = 1,       /* tag: which one, from 0 */
	WIRE_HELLO,          /* data: version; body: the rail's interface */
	WIRE_OPEN_ENDPOINT,  /* flags: ordered */
	WIRE_CLOSE_ENDPOINT, /* endpoint */
	WIRE_REGISTER,       /* tag: key; data: access; ignore: remote address of the first byte; places */
	WIRE_DEREGISTER,     /* tag: key */
	WIRE_SEND,           /* endpoint, peer, length, data; places or the data itself */
	WIRE_TAGGED_SEND,    /* and tag */
	WIRE_RECEIVE,        /* endpoint, peer, places; data: the least room that is used again */
	WIRE_TAGGED_RECEIVE, /* and tag, ignore; data: the operation that claimed the message */
	WIRE_PEEK,           /* endpoint, peer, tag, ignore */
	WIRE_CANCEL,         /* endpoint; data: the operation */
	WIRE_WRITE,          /* endpoint, peer, length, data; tag: key; ignore: remote address; places or the data */
	WIRE_READ,           /* the same with places */
	WIRE_ATOMIC,         /* length; tag: key; ignore: remote address; data: operation | datatype << 8; operands, places */
};

enum wire_reply_kind {
	WIRE_ANSWER = 1, /* of RAIL to DEREGISTER, and of what cannot be begun */
	WIRE_DONE,       /* an operation has ended, or a part of a buffer for several messages is filled */
	WIRE_WRITTEN,    /* a peer has written, with data */
};

enum wire_flag {
	WIRE_INLINE = 1,    /* request: the body begins with the data */
	WIRE_HAS_DATA = 2,  /* `data` is that of a completion */
	WIRE_DIRECTED = 4,  /* receive: of `peer` alone */
	WIRE_MULTI = 8,     /* receive: several messages */
	WIRE_CLAIM = 16,    /* peek: keep the message for later; receive: the one that was kept */
	WIRE_DISCARD = 32,  /* peek or claim: forget it */
	WIRE_FETCH = 64,    /* atomic: the old value comes back to the places */
	WIRE_COMPARE = 128, /* atomic: an operand to compare follows the first */
	WIRE_ORDERED = 256, /* endpoint: messages and operations keep their order */
	WIRE_LAST = 512,    /* reply: a buffer for several messages is given back */
	WIRE_OWN_KEY = 1024 /* register: the server chooses the key */
};

enum wire_access { WIRE_REMOTE_READ = 2, WIRE_REMOTE_WRITE = 4, WIRE_REMOTE_ATOMIC = 8 };

struct wire_name {
	uint8_t address[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
	uint16_t pid;
	uint16_t index;
} __attribute__((packed));

struct wire_place {
	uint64_t address;
	uint64_t length;
} __attribute__((packed));

struct wire_request {
	uint16_t kind;
	uint16_t flags;
	uint32_t body; /* bytes that follow */
	uint64_t id;
	uint64_t length;
	uint64_t tag;
	uint64_t ignore;
	uint64_t data;
	uint16_t endpoint;
	uint16_t places;
	struct wire_name peer;
} __attribute__((packed));

struct wire_reply {
	uint16_t kind;
	uint16_t flags;
	uint32_t error; /* of <rdma/fi_errno.h>; 0: none */
	uint64_t id;
	uint64_t length;
	uint64_t tag; /* of RAIL: the interface, with `data` */
	uint64_t data;
	uint64_t offset; /* in a buffer for several messages; of an error: the bytes that its receive was too short by */
	uint16_t endpoint;
	uint16_t code; /* of the response (UE Specification 1.0, section 3.4) */
	struct wire_name peer;
} __attribute__((packed));

#endif
