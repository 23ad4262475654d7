/* The headers of transactions: the fields of UALink's uncompressed request and response (`testbed/protocols/scale_up/headers.py`),
 * as far as the lab uses them.
 *
 * A frame carries up to 64 transactions of 256 bytes that lie one after the other: `metadata` is their number less one,
 * `length` the doublewords of the last one less one. Of a write, the two lowest bits of `attributes` are the bytes of the
 * first doubleword that are not written, the two above those of the last. Where the switch is to do something, the
 * destination is a group, and the address of COMMAND_JOIN four times the number of its members. That is the lab's own. */
#ifndef TESTBED_SCALE_UP_TRANSACTIONS_H
#define TESTBED_SCALE_UP_TRANSACTIONS_H

#include "link_port.h"

#define REQUEST_BYTES 16
#define RESPONSE_BYTES 8
#define REGION_BYTES 256 /* a transaction lies in one of these, and in them order is kept */
#define TAGS 2048

enum command {
	COMMAND_READ = 0x03,
	COMMAND_REDUCE = 0x08, /* this and the next ones are of the codes that are a vendor's: `switch_groups.h` */
	COMMAND_WRITE = 0x28,
	COMMAND_WRITE_FULL = 0x29,
	COMMAND_MESSAGE = 0x2a,
	COMMAND_MULTICAST = 0x2c,
	COMMAND_JOIN = 0x2d,
	COMMAND_ATOMIC = 0x30,
};

/* Of what a switch adds up: the upper half of `attributes` of COMMAND_REDUCE. */
enum element { ELEMENT_INT32 = 1, ELEMENT_FLOAT32 };

#define SWITCH_ID 1023 /* the switch where it asks; of a domain with so many GPUs it cannot */

enum status { STATUS_OK, STATUS_REFUSED, STATUS_MALFORMED, STATUS_BUSY, STATUS_UNREACHABLE };

struct request {
	__u64 address;
	__u32 command, vc, tag, attributes, length, metadata, source, destination;
};

struct response {
	__u32 vc, tag, status, is_write, source, destination;
};

static inline __u64 get_bits(const __u8 *data, __u32 at, __u32 count)
{
	__u64 value = 0;

	for (__u32 bit = at; bit < at + count;) {
		__u32 here = 8 - bit % 8, left = at + count - bit, take = here < left ? here : left;
		value = value << take | (data[bit / 8] >> (here - take) & ((1u << take) - 1));
		bit += take;
	}
	return value;
}

static inline void put_bits(__u8 *data, __u32 at, __u32 count, __u64 value)
{
	for (__u32 bit = at + count; bit > at;) {
		__u32 place = 8 - ((bit - 1) % 8 + 1), room = 8 - place, left = bit - at, take = room < left ? room : left;
		data[(bit - 1) / 8] |= (value & ((1u << take) - 1)) << place;
		value >>= take;
		bit -= take;
	}
}

/* The GPUs that a frame with a header of such a kind is from and for; false: the header is not whole, or of another
 * kind. A frame of SUE names no source. */
static inline bool transaction_ends(const __u8 *data, __u32 length, __u32 *source, __u32 *destination)
{
	const __u8 *header = data + BODY_AT;
	__u32 bytes = length - LEAST_FRAME_BYTES;

	switch (data[17] >> 5 & 3) {
	case SUE:
		*source = ~0u;
		*destination = get_bits(header, 6, 10);
		return bytes >= 8;
	case UALINK_REQUEST:
		*source = get_bits(header, 103, 10);
		*destination = get_bits(header, 113, 10);
		return bytes >= REQUEST_BYTES && header[0] >> 4 == 1;
	case UALINK_RESPONSE:
		*source = get_bits(header, 28, 10);
		*destination = get_bits(header, 38, 10);
		return bytes >= RESPONSE_BYTES && header[0] >> 4 == 2;
	}
	return false;
}

static inline struct request get_request(const __u8 *header)
{
	return (struct request){
		.command = get_bits(header, 4, 6),
		.vc = get_bits(header, 10, 2),
		.tag = get_bits(header, 14, 11),
		.attributes = get_bits(header, 26, 8),
		.length = get_bits(header, 34, 6),
		.metadata = get_bits(header, 40, 8),
		.address = get_bits(header, 48, 55) << 2,
		.source = get_bits(header, 103, 10),
		.destination = get_bits(header, 113, 10),
	};
}

/* Into 16 bytes of zeros. */
static inline void put_request(__u8 *header, const struct request *request)
{
	put_bits(header, 0, 4, 1);
	put_bits(header, 4, 6, request->command);
	put_bits(header, 10, 2, request->vc);
	put_bits(header, 14, 11, request->tag);
	put_bits(header, 26, 8, request->attributes);
	put_bits(header, 34, 6, request->length);
	put_bits(header, 40, 8, request->metadata);
	put_bits(header, 48, 55, request->address >> 2);
	put_bits(header, 103, 10, request->source);
	put_bits(header, 113, 10, request->destination);
}

static inline struct response get_response(const __u8 *header)
{
	return (struct response){
		.vc = get_bits(header, 4, 2),
		.tag = get_bits(header, 6, 11),
		.status = get_bits(header, 22, 4),
		.is_write = get_bits(header, 26, 1),
		.source = get_bits(header, 28, 10),
		.destination = get_bits(header, 38, 10),
	};
}

/* Into 8 bytes of zeros. */
static inline void put_response(__u8 *header, const struct response *response)
{
	put_bits(header, 0, 4, 2);
	put_bits(header, 4, 2, response->vc);
	put_bits(header, 6, 11, response->tag);
	put_bits(header, 22, 4, response->status);
	put_bits(header, 26, 1, response->is_write);
	put_bits(header, 27, 1, 1);
	put_bits(header, 28, 10, response->source);
	put_bits(header, 38, 10, response->destination);
}

#endif
