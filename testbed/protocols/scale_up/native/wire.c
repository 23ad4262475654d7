/* Frames of a scale-up link, to bytes and back. */
#include "wire.h"

#include <string.h>

#include "fcs.h"

#define CONTROL_CHARACTER 0x5C
#define O_CODE 0x6
#define PREFIX_NIBBLE 0x7
#define ELIGIBLE 0x80
#define TIME_AT (ETHERNET_BYTES + CTLOS_SLOTS * CTLOS_BYTES)
#define COUNTS_AT (ETHERNET_BYTES + PREFIX_BYTES + 2)
#define AT(offset) (-(int)(offset)-1)

static __u32 word_24(const __u8 *data)
{
	return (__u32)data[0] << 16 | (__u32)data[1] << 8 | data[2];
}

static void put_24(__u8 *data, __u32 word)
{
	data[0] = word >> 16;
	data[1] = word >> 8;
	data[2] = word;
}

static __u32 word_32(const __u8 *data)
{
	return (__u32)data[0] << 24 | word_24(data + 1);
}

static __u32 little_32(const __u8 *data)
{
	return (__u32)data[3] << 24 | (__u32)data[2] << 16 | (__u32)data[1] << 8 | data[0];
}

int ctlos_encode(__u8 *data, const struct ctlos *item)
{
	__u32 first = item->sequence, last = 0;

	switch (item->type) {
	case LLR_ACK:
	case LLR_NACK:
		break;
	case LLR_INIT:
	case LLR_INIT_ECHO:
	case LINK_SIGNAL:
		if (item->data > 0xFFFF)
			return -1;
		last = (item->data & 0xFF) << 16 | (item->data & 0xFF00);
		break;
	case CF_UPDATE:
		if (item->vc1 >= VCS || item->vc2 >= VCS || item->count1 > COUNT_MASK || item->count2 > COUNT_MASK)
			return -1;
		first = item->vc1 << 15 | item->count1;
		last = (item->vc2 << 15 | item->count2) << 4;
		break;
	default:
		return -1;
	}
	if (first > CYCLE_MASK)
		return -1;
	data[0] = CONTROL_CHARACTER;
	data[1] = item->type;
	put_24(data + 2, first << 4 | O_CODE);
	put_24(data + 5, last);
	return 0;
}

int ctlos_decode(const __u8 *data, struct ctlos *item)
{
	__u32 first = word_24(data + 2), last = word_24(data + 5);

	*item = (struct ctlos){.type = data[1]};
	if (data[0] != CONTROL_CHARACTER)
		return AT(0);
	if ((first & 15) != O_CODE)
		return AT(4);
	first >>= 4;
	switch (item->type) {
	case LLR_INIT:
	case LLR_INIT_ECHO:
	case LINK_SIGNAL:
		item->data = last >> 16 | (last & 0xFF00);
		/* fallthrough */
	case LLR_ACK:
	case LLR_NACK:
		item->sequence = first;
		return 0;
	case CF_UPDATE:
		last >>= 4;
		item->vc1 = first >> 15;
		item->count1 = first & COUNT_MASK;
		item->vc2 = last >> 15;
		item->count2 = last & COUNT_MASK;
		return 0;
	default:
		return AT(1);
	}
}

enum frame_check wire_check(const __u8 *data, __u32 length)
{
	__u32 right, found;

	if (length < FCS_BYTES)
		return CHECK_BAD;
	right = fcs_of(data, length - FCS_BYTES);
	found = little_32(data + length - FCS_BYTES);
	if (found == right)
		return CHECK_GOOD;
	return found == ~right ? CHECK_POISONED : CHECK_BAD;
}

static int decode_control(const __u8 *data, __u32 length, struct wire_frame *frame)
{
	static const __u8 nothing[CTLOS_BYTES];

	if (length != CONTROL_FRAME_BYTES)
		return AT(length < CONTROL_FRAME_BYTES ? length : CONTROL_FRAME_BYTES);
	frame->shape = SHAPE_CONTROL;
	for (__u32 at = ETHERNET_BYTES; at < TIME_AT; at += CTLOS_BYTES) {
		int wrong;

		if (!memcmp(data + at, nothing, CTLOS_BYTES))
			break;
		wrong = ctlos_decode(data + at, &frame->items[frame->count]);
		if (wrong)
			return wrong - (int)at;
		frame->count++;
	}
	frame->sent_ns = (__u64)word_32(data + TIME_AT) << 32 | word_32(data + TIME_AT + 4);
	return 0;
}

static int decode_counts(const __u8 *data, __u32 length, struct wire_frame *frame)
{
	if (length != CC_UPDATE_BYTES)
		return AT(length < CC_UPDATE_BYTES ? length : CC_UPDATE_BYTES);
	frame->shape = SHAPE_CC_UPDATE;
	frame->count = data[COUNTS_AT - 2];
	if (!frame->count || frame->count > CC_UPDATE_COUNTS)
		return AT(COUNTS_AT - 2);
	for (__u32 index = 0; index < frame->count; index++) {
		__u32 word = word_32(data + COUNTS_AT + 4 * index);

		frame->counts[index] = (struct cc_count){.vc = word >> 27, .consumed = word & CYCLE_MASK};
	}
	return 0;
}

/* The header of a transaction: its size, its type, and whom it is for. */
static int decode_header(const __u8 *data, __u32 length, struct wire_frame *frame)
{
	static const __u8 sizes[] = {[SUE] = 8, [UALINK_REQUEST] = 16, [UALINK_RESPONSE] = 8};
	static const __u8 types[] = {[UALINK_REQUEST] = 1, [UALINK_RESPONSE] = 2};
	__u32 start = ETHERNET_BYTES + PREFIX_BYTES, end = length - FCS_BYTES;
	const __u8 *header = data + start;

	if (end - start < sizes[frame->kind])
		return AT(end);
	if (frame->kind != SUE && header[0] >> 4 != types[frame->kind])
		return AT(start);
	switch (frame->kind) {
	case SUE:
		frame->destination = (header[0] & 3u) << 8 | header[1];
		break;
	case UALINK_REQUEST:
		frame->destination = ((__u32)header[14] << 8 | header[15]) >> 5 & 0x3FF;
		break;
	default:
		frame->destination = ((__u32)header[4] << 8 | header[5]) & 0x3FF;
	}
	frame->shape = SHAPE_DATA;
	frame->payload_at = start + sizes[frame->kind];
	frame->payload_bytes = end - frame->payload_at;
	return 0;
}

int wire_decode(const __u8 *data, __u32 length, struct wire_frame *frame)
{
	__u32 word, flags;

	memset(frame, 0, offsetof(struct wire_frame, items));
	frame->check = wire_check(data, length);
	if (length < LEAST_FRAME_BYTES)
		return AT(length);
	if (data[12] != SCALE_UP_ETHERTYPE >> 8 || data[13] != (SCALE_UP_ETHERTYPE & 0xFF))
		return AT(12);
	if (data[ETHERNET_BYTES] == CONTROL_CHARACTER)
		return decode_control(data, length, frame);
	word = word_24(data + ETHERNET_BYTES);
	flags = data[ETHERNET_BYTES + 3];
	if (word >> 20 != PREFIX_NIBBLE)
		return AT(ETHERNET_BYTES);
	if (!(flags & ELIGIBLE) && (word & CYCLE_MASK))
		return AT(ETHERNET_BYTES);
	frame->kind = flags >> 5 & 3;
	frame->vc = flags & 31;
	frame->eligible = flags >> 7;
	frame->sequence = word & CYCLE_MASK;
	if (frame->kind != CC_UPDATE)
		return decode_header(data, length, frame);
	return frame->vc ? AT(ETHERNET_BYTES + 3) : decode_counts(data, length, frame);
}

void wire_seal(__u8 *data, __u32 length, bool poisoned)
{
	__u32 value;

	if (length < FCS_BYTES)
		return;
	value = fcs_of(data, length - FCS_BYTES) ^ (poisoned ? ~0u : 0);
	for (__u32 byte = 0; byte < FCS_BYTES; byte++)
		data[length - FCS_BYTES + byte] = value >> 8 * byte;
}

static void put_ethernet(__u8 *data, const __u8 *destination, const __u8 *source)
{
	memcpy(data, destination, 6);
	memcpy(data + 6, source, 6);
	data[12] = SCALE_UP_ETHERTYPE >> 8;
	data[13] = SCALE_UP_ETHERTYPE & 0xFF;
}

void wire_start(__u8 *data, const __u8 *destination, const __u8 *source, __u32 kind, __u32 vc)
{
	put_ethernet(data, destination, source);
	put_24(data + ETHERNET_BYTES, PREFIX_NIBBLE << 20);
	data[ETHERNET_BYTES + 3] = (kind & 3) << 5 | (vc & 31);
}

int wire_number(__u8 *data, __u32 length, __u32 sequence, bool poisoned)
{
	if (length < LEAST_FRAME_BYTES)
		return -1;
	put_24(data + ETHERNET_BYTES, PREFIX_NIBBLE << 20 | (sequence & CYCLE_MASK));
	data[ETHERNET_BYTES + 3] |= ELIGIBLE;
	wire_seal(data, length, poisoned);
	return 0;
}

int wire_control(__u8 *data, const __u8 *destination, const __u8 *source, const struct ctlos *items, __u32 count,
		 __u64 sent_ns)
{
	if (!count || count > CTLOS_SLOTS)
		return -1;
	memset(data, 0, CONTROL_FRAME_BYTES);
	put_ethernet(data, destination, source);
	for (__u32 index = 0; index < count; index++)
		if (ctlos_encode(data + ETHERNET_BYTES + index * CTLOS_BYTES, &items[index]))
			return -1;
	for (__u32 byte = 0; byte < 8; byte++)
		data[TIME_AT + byte] = sent_ns >> 8 * (7 - byte);
	wire_seal(data, CONTROL_FRAME_BYTES, false);
	return 0;
}

int wire_cc_update(__u8 *data, const __u8 *destination, const __u8 *source, const struct cc_count *counts, __u32 count)
{
	if (!count || count > CC_UPDATE_COUNTS)
		return -1;
	memset(data, 0, CC_UPDATE_BYTES);
	wire_start(data, destination, source, CC_UPDATE, 0);
	data[COUNTS_AT - 2] = count;
	for (__u32 index = 0; index < count; index++) {
		__u32 word = counts[index].vc << 27 | counts[index].consumed;

		if (counts[index].vc >= VCS || counts[index].consumed > CYCLE_MASK)
			return -1;
		data[COUNTS_AT + 4 * index] = word >> 24;
		put_24(data + COUNTS_AT + 4 * index + 1, word);
	}
	wire_seal(data, CC_UPDATE_BYTES, false);
	return 0;
}
