/* What frames of an endpoint say: its own requests and their answers, and what it does for its peers. */
#include <string.h>

#include "endpoint.h"

#define MOST_BYTES (256 * 64)

static __u32 padded(__u64 bytes)
{
	return (bytes + 3) & ~3ull;
}

/* The bytes before the first one that is meant, since addresses are of doublewords. */
static __u32 skipped(__u64 address)
{
	return address & 3;
}

static __u8 *begin_frame(struct endpoint *endpoint, const struct plane *plane, __u32 frame, __u32 kind, __u32 vc)
{
	__u8 *data = frame_bytes(&endpoint->pool, frame);

	memset(data, 0, BODY_AT + REQUEST_BYTES);
	memcpy(data, plane->link.config.peer, 6);
	memcpy(data + 6, plane->link.config.mac, 6);
	data[12] = SCALE_UP_ETHERTYPE >> 8;
	data[13] = SCALE_UP_ETHERTYPE & 0xff;
	data[14] = 0x70;
	data[17] = kind << 5 | vc;
	endpoint->pool.frames[frame].vc = vc;
	return data;
}

static void end_frame(struct endpoint *endpoint, __u32 frame, __u32 length)
{
	endpoint->pool.frames[frame].length = length + FCS_BYTES;
	wire_seal(frame_bytes(&endpoint->pool, frame), length + FCS_BYTES, false);
}

/* ------------------------------------------------------------------ requests of ours */

static __u32 payload_bytes(const struct operation *operation, const struct tag *tag)
{
	switch ((enum operation_kind)operation->kind) {
	case OP_WRITE:
	case OP_WRITE_FULL:
	case OP_MULTICAST:
		return padded(skipped(tag->remote) + tag->bytes);
	case OP_MESSAGE:
		return padded(tag->bytes);
	case OP_ADD:
		return operation->element;
	case OP_CAS:
		return 2 * operation->element;
	case OP_READ:
	case OP_REDUCE:
	case OP_JOIN:
	case OP_FENCE:
	case OP_ARRIVED:
		break;
	}
	return 0;
}

__u32 endpoint_request_bytes(const struct endpoint *endpoint, __u32 number)
{
	const struct tag *tag = &endpoint->tags[number];

	return BODY_AT + REQUEST_BYTES + payload_bytes(&endpoint->operations[tag->operation], tag) + FCS_BYTES;
}

static __u32 command_of(const struct operation *operation)
{
	static const __u8 commands[] = {
		[OP_READ] = COMMAND_READ,	    [OP_WRITE] = COMMAND_WRITE, [OP_WRITE_FULL] = COMMAND_WRITE_FULL,
		[OP_ADD] = COMMAND_ATOMIC,	    [OP_CAS] = COMMAND_ATOMIC,	[OP_MESSAGE] = COMMAND_MESSAGE,
		[OP_MULTICAST] = COMMAND_MULTICAST, [OP_REDUCE] = COMMAND_REDUCE, [OP_JOIN] = COMMAND_JOIN,
	};

	return commands[operation->kind];
}

__u32 endpoint_make_request(struct endpoint *endpoint, __u32 number)
{
	const struct tag *tag = &endpoint->tags[number];
	const struct operation *operation = &endpoint->operations[tag->operation];
	__u32 skip = operation->kind == OP_MESSAGE ? 0 : skipped(tag->remote), payload = payload_bytes(operation, tag);
	__u32 size = operation->kind == OP_ADD || operation->kind == OP_CAS ? operation->element :
									      padded(skip + tag->bytes);
	__u32 frame = frame_take(&endpoint->pool);
	struct request request = {
		.command = command_of(operation),
		.vc = operation->vc & 3,
		.tag = number,
		.metadata = (size - 1) / REGION_BYTES,
		.length = (size - 1) % REGION_BYTES / 4,
		.address = tag->remote & ~3ull,
		.source = endpoint->config.gpu,
		.destination = tag->peer,
	};
	__u8 *data;

	if (frame == NO_FRAME)
		return NO_FRAME;
	if (is_for_group(operation->kind))
		request.destination = operation->operand[0];
	if (operation->kind == OP_JOIN)
		request.address = operation->operand[1] * 4;
	data = begin_frame(endpoint, &endpoint->planes[tag->plane], frame, UALINK_REQUEST, operation->vc);
	if (operation->kind == OP_CAS)
		request.attributes = 1;
	else if (operation->kind != OP_ADD)
		request.attributes = skip | (size - skip - tag->bytes) << 2;
	if (operation->kind == OP_REDUCE)
		request.attributes |= (operation->operand[1] & 0xf) << 4;
	put_request(data + BODY_AT, &request);
	data += BODY_AT + REQUEST_BYTES;
	if (operation->kind == OP_ADD || operation->kind == OP_CAS) {
		memcpy(data, &operation->operand[0], operation->element);
		if (operation->kind == OP_CAS)
			memcpy(data + operation->element, &operation->operand[1], operation->element);
	} else if (payload) {
		memset(data, 0, skip);
		memcpy(data + skip, tag->local, tag->bytes);
		memset(data + skip + tag->bytes, 0, payload - skip - tag->bytes);
	}
	end_frame(endpoint, frame, BODY_AT + REQUEST_BYTES + payload);
	endpoint->counters.requests++;
	return frame;
}

/* ------------------------------------------------------------------ their answers */

static __u32 take_data(struct endpoint *endpoint, struct operation *operation, const struct tag *tag, const __u8 *data, __u32 bytes)
{
	__u32 skip = skipped(tag->remote);

	switch ((enum operation_kind)operation->kind) {
	case OP_READ:
	case OP_REDUCE:
		if (bytes != padded(skip + tag->bytes))
			return STATUS_MALFORMED;
		memcpy(tag->local, data + skip, tag->bytes);
		endpoint->counters.payload_bytes += tag->bytes;
		break;
	case OP_ADD:
	case OP_CAS:
		if (bytes != operation->element)
			return STATUS_MALFORMED;
		memcpy(&operation->result, data, operation->element);
		break;
	default:
		break;
	}
	return STATUS_OK;
}

static __u32 answers(const struct endpoint *endpoint, const struct tag *tag)
{
	return is_for_group(endpoint->operations[tag->operation].kind) ? SWITCH_ID : tag->peer;
}

void endpoint_take_response(struct endpoint *endpoint, const struct plane *plane, __u32 frame, __u64 now)
{
	const __u8 *data = frame_bytes(&endpoint->pool, frame);
	__u32 length = endpoint->pool.frames[frame].length, outcome;
	struct response response;
	struct operation *operation;
	struct tag *tag;

	if (length < BODY_AT + RESPONSE_BYTES + FCS_BYTES || data[BODY_AT] >> 4 != 2) {
		endpoint->counters.strays++;
		return;
	}
	response = get_response(data + BODY_AT);
	tag = &endpoint->tags[response.tag];
	operation = &endpoint->operations[tag->operation];
	if (response.destination == endpoint->config.gpu && tag->state == TAG_LOST && response.source == answers(endpoint, tag)) {
		endpoint->counters.strays++; /* late */
		return;
	}
	/* By another plane it is the answer to what has gone on by this one since. */
	if (response.destination != endpoint->config.gpu || tag->state != TAG_SENT || response.source != answers(endpoint, tag) ||
	    plane != &endpoint->planes[tag->plane]) {
		endpoint->counters.strays++;
		return;
	}
	endpoint->counters.responses++;
	outcome = response.status;
	if (outcome == STATUS_UNREACHABLE) {
		flow_unsend(endpoint, response.tag, now);
		endpoint->counters.unreachable++;
		endpoint_unreachable(endpoint, response.tag, now);
		return;
	}
	if (outcome == STATUS_OK)
		outcome = take_data(endpoint, operation, tag, data + BODY_AT + RESPONSE_BYTES,
				    length - BODY_AT - RESPONSE_BYTES - FCS_BYTES);
	histogram_record(&endpoint->times, now - (tag->until_ns - endpoint->config.timeout_ns));
	flow_unsend(endpoint, response.tag, now);
	endpoint_settle(endpoint, response.tag, outcome, now);
}

/* ------------------------------------------------------------------ requests of others */

static enum status atomic(__u8 *place, const struct request *request, const __u8 *operands, __u32 payload, __u8 *old)
{
	__u32 element = (request->length + 1) * 4;

	if (request->attributes > 1 || payload != element * (request->attributes + 1))
		return STATUS_MALFORMED;
	if (element == 4) {
		__u32 first, second, *word = (__u32 *)place, before;
		memcpy(&first, operands, 4);
		if (request->attributes) {
			memcpy(&second, operands + 4, 4);
			before = first;
			__atomic_compare_exchange_n(word, &before, second, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		} else {
			before = __atomic_fetch_add(word, first, __ATOMIC_SEQ_CST);
		}
		memcpy(old, &before, 4);
	} else {
		__u64 first, second, *word = (__u64 *)place, before;
		memcpy(&first, operands, 8);
		if (request->attributes) {
			memcpy(&second, operands + 8, 8);
			before = first;
			__atomic_compare_exchange_n(word, &before, second, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		} else {
			before = __atomic_fetch_add(word, first, __ATOMIC_SEQ_CST);
		}
		memcpy(old, &before, 8);
	}
	return STATUS_OK;
}

/* Do what is asked; `answer` gets the data of it, `bytes` of them. */
static enum status carry_out(struct endpoint *endpoint, const struct request *request, const __u8 *data, __u32 payload,
			     __u8 *answer, __u32 *bytes, __u64 now)
{
	__u32 size = request->metadata * REGION_BYTES + (request->length + 1) * 4, first = request->attributes & 3,
	      last = request->attributes >> 2 & 3;
	const struct memory_window *windows = endpoint->windows;
	__u8 *place;

	*bytes = 0;
	if (size > MOST_BYTES)
		return STATUS_MALFORMED;
	switch (request->command) {
	case COMMAND_READ:
		/* What is asked for by whole doublewords may reach over the end of the window by the bytes nobody wants. */
		if (payload || first + last >= size || size + BODY_AT + RESPONSE_BYTES + FCS_BYTES > endpoint->pool.stride)
			return STATUS_MALFORMED;
		place = window_locate(windows, request->source, request->address + first, size - first - last, MAY_READ);
		if (!place)
			return STATUS_REFUSED;
		memset(answer, 0, first);
		memcpy(answer + first, place, size - first - last);
		memset(answer + size - last, 0, last);
		*bytes = size;
		return STATUS_OK;
	case COMMAND_WRITE_FULL:
		if (size % 64 || request->address % 64 || first || last)
			return STATUS_MALFORMED;
		/* fall through */
	case COMMAND_WRITE:
		if (payload != size || first + last >= size)
			return STATUS_MALFORMED;
		place = window_locate(windows, request->source, request->address + first, size - first - last, MAY_WRITE);
		if (!place)
			return STATUS_REFUSED;
		memcpy(place, data + first, size - first - last);
		endpoint->counters.payload_bytes += size - first - last;
		endpoint_landed(endpoint, request->address + first, now);
		return STATUS_OK;
	case COMMAND_ATOMIC:
		if ((size != 4 && size != 8) || request->address % size)
			return STATUS_MALFORMED;
		place = window_locate(windows, request->source, request->address, size, MAY_ATOMIC);
		if (!place || (size_t)place % size)
			return STATUS_REFUSED;
		*bytes = size;
		return atomic(place, request, data, payload, answer);
	}
	return STATUS_MALFORMED;
}

/* When the memory has read or written that, after all that it was asked before, and its answer may go. */
static __u64 served_ns(struct endpoint *endpoint, __u32 bytes, __u64 now)
{
	__u64 lines = (bytes + MEDIA_LINE - 1) / MEDIA_LINE;

	if (endpoint->config.media_bps)
		endpoint->media_free_ns = later(now, endpoint->media_free_ns) +
					  (__u64)((double)lines * MEDIA_LINE * 8e9 / endpoint->config.media_bps);
	return later(now, endpoint->media_free_ns) + endpoint->config.media_ns;
}

void endpoint_serve(struct endpoint *endpoint, struct plane *plane, __u32 frame, __u64 now)
{
	const __u8 *data = frame_bytes(&endpoint->pool, frame);
	__u32 length = endpoint->pool.frames[frame].length, bytes = 0, made;
	struct request request = get_request(data + BODY_AT);
	__u32 payload = length - BODY_AT - REQUEST_BYTES - FCS_BYTES;
	struct response response = {
		.vc = endpoint->config.response_vc & 3,
		.tag = request.tag,
		.is_write = request.command != COMMAND_READ && request.command != COMMAND_ATOMIC,
		.source = endpoint->config.gpu,
		.destination = request.source,
	};
	__u8 *answer;

	made = frame_take(&endpoint->pool); /* the caller has seen that there is one */
	answer = begin_frame(endpoint, plane, made, UALINK_RESPONSE, endpoint->config.response_vc);
	if (request.command == COMMAND_MESSAGE) {
		__u32 copy = endpoint->inbox.count < INBOX && endpoint->pool.free.count > RESPONSES * endpoint->config.planes ?
				     frame_take(&endpoint->pool) :
				     NO_FRAME;
		__u32 spare = request.attributes >> 2 & 3;
		response.status = copy == NO_FRAME ? STATUS_BUSY : STATUS_OK;
		if (payload > endpoint->config.coarse * REGION_BYTES || spare > payload) {
			response.status = STATUS_MALFORMED;
		} else if (copy != NO_FRAME) {
			memcpy(frame_bytes(&endpoint->pool, copy), data + BODY_AT + REQUEST_BYTES, payload - spare);
			endpoint->pool.frames[copy].length = payload - spare;
			endpoint->pool.frames[copy].port = request.source;
			frame_append(&endpoint->pool, &endpoint->inbox, copy);
			endpoint->counters.messages++;
			copy = NO_FRAME;
		}
		if (copy != NO_FRAME)
			frame_give(&endpoint->pool, copy);
		endpoint->counters.inbox_full += response.status == STATUS_BUSY;
	} else {
		response.status = carry_out(endpoint, &request, data + BODY_AT + REQUEST_BYTES, payload,
					    answer + BODY_AT + RESPONSE_BYTES, &bytes, now);
	}
	if (response.status != STATUS_OK)
		bytes = 0;
	endpoint->counters.served++;
	endpoint->counters.refused += response.status == STATUS_REFUSED;
	put_response(answer + BODY_AT, &response);
	end_frame(endpoint, made, BODY_AT + RESPONSE_BYTES + bytes);
	/* What is refused has not come to the memory. */
	endpoint->pool.frames[made].due_ns = response.status == STATUS_OK ? served_ns(endpoint, bytes + payload, now) : now;
	frame_append(&endpoint->pool, &plane->responses, made);
}
