/* The switch of a scale-up domain. */
#include "switch.h"

#include <stdlib.h>
#include <string.h>

#include "transactions.h"

#define OUT_AT_ONCE 32 /* frames of an output in one round */
#define WRONG_BIT 0x10

struct scale_up_switch *switch_new(const struct switch_config *config, const struct link_config *links, __u64 now)
{
	struct scale_up_switch *sw = calloc(1, sizeof(*sw));
	__u32 queues;

	if (!sw)
		return NULL;
	sw->config = *config;
	sw->port_count = config->gpus * config->planes;
	sw->words = (config->gpus + 63) / 64;
	queues = config->voq ? LINK_VCS * config->gpus : LINK_VCS;
	if (!config->gpus || config->gpus > MOST_GPUS || !config->planes || config->planes > 256 ||
	    config->frame_bytes < CC_UPDATE_BYTES || config->frames < 4 * sw->port_count) {
		free(sw);
		return NULL;
	}
	sw->ports = calloc(sw->port_count, sizeof(*sw->ports));
	sw->wake_ns = calloc(sw->port_count, sizeof(*sw->wake_ns));
	sw->ready = calloc(sw->port_count, sizeof(*sw->ready));
	sw->queue_memory = calloc((size_t)sw->port_count * queues, sizeof(*sw->queue_memory));
	sw->request_memory = calloc((size_t)sw->port_count * LINK_VCS * sw->words, sizeof(*sw->request_memory));
	if (!sw->ports || !sw->wake_ns || !sw->ready || !sw->queue_memory || !sw->request_memory ||
	    !groups_init(sw) || !frame_pool_init(&sw->pool, config->frames, config->frame_bytes)) {
		switch_free(sw);
		return NULL;
	}
	for (__u32 number = 0; number < sw->port_count; number++) {
		struct switch_port *port = &sw->ports[number];
		if (!link_init(&port->link, &links[number], now)) {
			switch_free(sw);
			return NULL;
		}
		port->queues = sw->queue_memory + (size_t)number * queues;
		for (__u32 vc = 0; vc < LINK_VCS; vc++)
			port->requests[vc].inputs = sw->request_memory + ((size_t)number * LINK_VCS + vc) * sw->words;
	}
	return sw;
}

void switch_free(struct scale_up_switch *sw)
{
	if (!sw)
		return;
	frame_pool_close(&sw->pool);
	groups_free(sw);
	for (__u32 port = 0; sw->ports && port < sw->port_count; port++)
		link_close(&sw->ports[port].link);
	free(sw->ports);
	free(sw->wake_ns);
	free(sw->ready);
	free(sw->queue_memory);
	free(sw->request_memory);
	free(sw);
}

/* ------------------------------------------------------------------ inputs */

static struct frame_list *queue_of(struct scale_up_switch *sw, __u32 port, __u32 vc, __u32 output)
{
	if (!sw->config.voq)
		return &sw->ports[port].queues[vc];
	return &sw->ports[port].queues[vc * sw->config.gpus + output % sw->config.gpus];
}

/* The first frame of an input's queue wants to leave. */
static void request(struct scale_up_switch *sw, __u32 frame, __u64 now)
{
	const struct frame *first = &sw->pool.frames[frame];
	__u32 input = first->port % sw->config.gpus;
	struct switch_port *output = &sw->ports[first->output];

	output->requests[first->vc].inputs[input / 64] |= 1ull << input % 64;
	sw->wake_ns[first->output] = earlier(sw->wake_ns[first->output], later(now, output->link.free_ns));
}

/* Where a frame goes; false: nowhere. */
static bool route(const struct scale_up_switch *sw, struct frame *frame, const __u8 *data)
{
	__u32 source, destination, own = frame->port % sw->config.gpus;

	if (!transaction_ends(data, frame->length, &source, &destination) || destination >= sw->config.gpus ||
	    destination == own || (source != own && source != ~0u))
		return false;
	frame->output = frame->port - own + destination;
	return true;
}

static void store(struct scale_up_switch *sw, __u32 number, __u64 now)
{
	struct frame *frame = &sw->pool.frames[number];
	struct link_port *link = &sw->ports[frame->port].link;
	struct frame_list *queue;

	if (groups_take(sw, number, now))
		return;
	if (!route(sw, frame, frame_bytes(&sw->pool, number))) {
		link->counters.refused++;
		link_free(link, frame->vc, frame->length);
		frame_give(&sw->pool, number);
		return;
	}
	queue = queue_of(sw, frame->port, frame->vc, frame->output);
	frame_append(&sw->pool, queue, number);
	frame->head_ns = frame->due_ns;
	if (queue->count == 1)
		request(sw, number, now);
}

void switch_arrive(struct scale_up_switch *sw, __u32 port, __u32 number, __u64 now)
{
	struct frame *frame = &sw->pool.frames[number];
	struct link_port *link = &sw->ports[port].link;
	enum wire_fate fate = wire_decide(&sw->ports[port].wire, WIRE_IN);

	frame->port = port;
	if (fate == WIRE_LOSES) {
		link->counters.wire_lost_rx++;
		frame_give(&sw->pool, number);
		return;
	}
	if (fate == WIRE_DAMAGES && frame->length) {
		frame_bytes(&sw->pool, number)[wire_place(&sw->ports[port].wire, WIRE_IN, frame->length)] ^= WRONG_BIT;
		link->counters.wire_damaged_rx++;
	}
	link_arrive(&sw->ports[port].link, &sw->pool, number, now);
	sw->wake_ns[port] = earlier(sw->wake_ns[port], link_next_timer(&sw->ports[port].link, &sw->pool));
}

static void take_in(struct scale_up_switch *sw, __u32 port, __u64 now)
{
	__u32 frame;

	while ((frame = link_take(&sw->ports[port].link, &sw->pool, now)) != NO_FRAME)
		store(sw, frame, now);
}

/* ------------------------------------------------------------------ outputs */

/* Whether a frame stands for the missing signal of a link that is down. */
static bool says_so(const struct scale_up_switch *sw, __u32 frame)
{
	const __u8 *data = frame_bytes(&sw->pool, frame);

	return data[ETHERNET_BYTES] == CONTROL_CHARACTER && data[ETHERNET_BYTES + 1] == LINK_SIGNAL && sw->pool.frames[frame].length == CONTROL_FRAME_BYTES;
}

void switch_send_out(struct scale_up_switch *sw, __u32 number, __u32 frame)
{
	struct switch_port *port = &sw->ports[number];
	enum wire_fate fate = wire_decide(&port->wire, WIRE_OUT);

	if (fate == WIRE_LOSES && !(port->wire.errors.down && says_so(sw, frame))) {
		port->link.counters.wire_lost_tx++;
		link_gone(&sw->pool, frame);
		return;
	}
	if (fate == WIRE_DAMAGES) {
		sw->pool.frames[frame].damaged = wire_place(&port->wire, WIRE_OUT, sw->pool.frames[frame].length);
		frame_bytes(&sw->pool, frame)[sw->pool.frames[frame].damaged] ^= WRONG_BIT;
		port->link.counters.wire_damaged_tx++;
	}
	sw->pool.frames[frame].going = true;
	frame_append(&sw->pool, &port->out, frame);
	if (!port->listed) {
		port->listed = true;
		sw->ready[sw->ready_count++] = number;
	}
}

/* The next input in turn that has a frame; -1: none. */
static int next_input(const struct scale_up_switch *sw, const struct requests *requests)
{
	__u32 from = (requests->last + 1) % sw->config.gpus;

	for (__u32 i = 0; i <= sw->words; i++) {
		__u32 word = (from / 64 + i) % sw->words;
		__u64 bits = requests->inputs[word];
		if (i == 0)
			bits &= ~0ull << from % 64;
		if (bits)
			return word * 64 + __builtin_ctzll(bits);
	}
	return -1;
}

/* Take the first frame out of a queue, and out of the input's buffer, which it should have left at `due`. */
static __u32 unqueue(struct scale_up_switch *sw, __u32 output, __u32 vc, __u32 input, __u64 due)
{
	__u32 source = output / sw->config.gpus * sw->config.gpus + input;
	struct requests *requests = &sw->ports[output].requests[vc];
	struct frame_list *queue = queue_of(sw, source, vc, output);
	__u32 number = frame_shift(&sw->pool, queue);

	requests->inputs[input / 64] &= ~(1ull << input % 64);
	requests->last = input;
	link_free(&sw->ports[source].link, vc, sw->pool.frames[number].length);
	sw->wake_ns[source] = earlier(sw->wake_ns[source], link_next_timer(&sw->ports[source].link, &sw->pool));
	if (queue->count) {
		struct frame *next = &sw->pool.frames[queue->first];
		if (next->output != output) /* its own output has been free meanwhile, and no time of that is made up for */
			next->head_ns = later(next->due_ns, due);
		request(sw, queue->first, due);
	}
	return number;
}

/* Let the first frame of a queue go. */
static void let_go(struct scale_up_switch *sw, __u32 output, __u32 vc, __u32 input, __u32 number, __u64 now)
{
	struct switch_port *port = &sw->ports[output];
	const struct frame *frame = &sw->pool.frames[number];
	__u64 due = link_sent(&port->link, vc, frame->length, frame->head_ns);

	port->last_vc = vc;
	histogram_record(&sw->lateness, now - due);
	unqueue(sw, output, vc, input, due);
	link_number(&port->link, &sw->pool, number, now);
	switch_send_out(sw, output, number);
}

/* Whether a frame is of an end that is not there any more: whoever took its place knows nothing of it, and may have
 * given the tag that an answer names to something else. */
static bool is_stale(const struct scale_up_switch *sw, __u32 source, __u32 output, __u32 number)
{
	const struct frame *frame = &sw->pool.frames[number];
	const struct link_port *in = &sw->ports[source].link, *out = &sw->ports[output].link;
	__u32 kind = frame_bytes(&sw->pool, number)[17] >> 5 & 3;

	if (!in->config.epoch)
		return false;
	return frame->came < in->epoch_came || (kind == UALINK_RESPONSE && frame->due_ns < out->epoch_ns);
}

/* One frame of an output; false: there is none that may go. `resumes_ns` is when one may that is paused. */
static bool serve(struct scale_up_switch *sw, __u32 number, __u64 now, __u64 *resumes_ns)
{
	struct switch_port *port = &sw->ports[number];

	for (__u32 i = 1; i <= port->link.config.vcs; i++) {
		__u32 vc = (port->last_vc + i) % port->link.config.vcs, source, first, length;
		int input;
		while ((input = next_input(sw, &port->requests[vc])) >= 0) {
			source = number / sw->config.gpus * sw->config.gpus + input;
			first = queue_of(sw, source, vc, number)->first;
			if (!is_stale(sw, source, number, first))
				break;
			sw->ports[source].link.counters.stale++;
			frame_give(&sw->pool, unqueue(sw, number, vc, input, now));
		}
		if (input < 0) {
			link_wait_no_more(&port->link, 1u << vc, now);
			continue;
		}
		length = sw->pool.frames[first].length;
		if (link_may_send(&port->link, vc, length, now)) {
			let_go(sw, number, vc, input, first, now);
			return true;
		}
		link_hold(&port->link, vc, length, sw->pool.frames[first].head_ns, now);
		*resumes_ns = earlier(*resumes_ns, link_resumes_ns(&port->link, vc, now));
	}
	return false;
}

/* Make a request an answer of the switch's, in place; false: it is none. */
static bool give_back(struct scale_up_switch *sw, __u32 number)
{
	struct frame *frame = &sw->pool.frames[number];
	struct switch_port *port = &sw->ports[frame->port];
	__u8 *data = frame_bytes(&sw->pool, number);
	struct response response;
	struct request request;

	if ((data[17] >> 5 & 3) != UALINK_REQUEST || port->link.down)
		return false;
	request = get_request(data + BODY_AT);
	response = (struct response){
		.vc = frame->vc & 3,
		.tag = request.tag,
		.status = STATUS_UNREACHABLE,
		.is_write = request.command != COMMAND_READ && request.command != COMMAND_ATOMIC,
		.source = request.destination,
		.destination = request.source,
	};
	frame->length = BODY_AT + RESPONSE_BYTES + FCS_BYTES;
	frame->due_ns = NEVER; /* it did not come in */
	wire_start(data, port->link.config.peer, port->link.config.mac, UALINK_RESPONSE, frame->vc);
	memset(data + BODY_AT, 0, RESPONSE_BYTES);
	put_response(data + BODY_AT, &response);
	wire_seal(data, frame->length, false);
	frame_append(&sw->pool, &port->returned, number);
	sw->wake_ns[frame->port] = 0;
	return true;
}

static void send_returned(struct scale_up_switch *sw, __u32 number, __u64 now)
{
	struct switch_port *port = &sw->ports[number];

	while (port->returned.count && port->out.count < OUT_AT_ONCE) {
		__u32 frame = port->returned.first, vc = sw->pool.frames[frame].vc;
		if (!port->link.down && !link_may_send(&port->link, vc, sw->pool.frames[frame].length, now))
			return;
		frame_shift(&sw->pool, &port->returned);
		if (port->link.down) {
			frame_give(&sw->pool, frame);
			continue;
		}
		link_sent(&port->link, vc, sw->pool.frames[frame].length, now);
		link_number(&port->link, &sw->pool, frame, now);
		switch_send_out(sw, number, frame);
		port->link.counters.returned++;
	}
}

/* What wants to leave by a link that is down. */
static void discard(struct scale_up_switch *sw, __u32 number, __u64 now)
{
	struct switch_port *port = &sw->ports[number];
	int input;

	groups_discard(sw, number, now);
	for (__u32 vc = 0; vc < port->link.config.vcs; vc++) {
		while ((input = next_input(sw, &port->requests[vc])) >= 0) {
			__u32 frame = unqueue(sw, number, vc, input, now);
			port->link.counters.undelivered++;
			if (!give_back(sw, frame))
				frame_give(&sw->pool, frame);
		}
	}
}

static void send_own(struct scale_up_switch *sw, __u32 number, __u64 now,
		     __u32 (*make)(struct link_port *, __u64, __u8 *))
{
	__u32 frame, length;

	while ((frame = frame_take(&sw->pool)) != NO_FRAME) {
		length = make(&sw->ports[number].link, now, frame_bytes(&sw->pool, frame));
		if (!length) {
			frame_give(&sw->pool, frame);
			return;
		}
		sw->pool.frames[frame].length = length;
		sw->pool.frames[frame].due_ns = NEVER; /* it did not come in */
		switch_send_out(sw, number, frame);
	}
}

/* The same, or one of the switch's own: in turn. */
static bool serve_any(struct scale_up_switch *sw, __u32 number, __u64 now, __u64 *resumes_ns)
{
	struct switch_port *port = &sw->ports[number];
	bool groups_first = !port->groups_last;

	port->groups_last = true;
	if (groups_first && groups_serve(sw, number, now, resumes_ns))
		return true;
	if (serve(sw, number, now, resumes_ns)) {
		port->groups_last = false;
		return true;
	}
	return !groups_first && groups_serve(sw, number, now, resumes_ns);
}

static void put_out(struct scale_up_switch *sw, __u32 number, __u64 now)
{
	struct switch_port *port = &sw->ports[number];
	__u64 resumes_ns = NEVER;
	bool more = true;
	__u32 frame;

	link_catch_up(&port->link, now);
	if (link_watch(&port->link, now))
		discard(sw, number, now);
	send_own(sw, number, now, link_control);
	send_own(sw, number, now, link_cc_update);
	while (port->out.count < OUT_AT_ONCE && (frame = link_replay(&port->link, &sw->pool, now)) != NO_FRAME)
		switch_send_out(sw, number, frame);
	send_returned(sw, number, now);
	while (port->link.free_ns <= now && port->out.count < OUT_AT_ONCE && (more = serve_any(sw, number, now, &resumes_ns)))
		;
	sw->wake_ns[number] = link_next_timer(&port->link, &sw->pool);
	if (more)
		resumes_ns = later(now, port->link.free_ns);
	sw->wake_ns[number] = earlier(sw->wake_ns[number], resumes_ns);
}

void switch_work(struct scale_up_switch *sw, __u64 now)
{
	groups_expire(sw, now);
	for (__u32 port = 0; port < sw->port_count; port++) {
		if (sw->wake_ns[port] <= now)
			take_in(sw, port, now);
	}
	for (__u32 port = 0; port < sw->port_count; port++) {
		if (sw->wake_ns[port] <= now)
			put_out(sw, port, now);
	}
}

__u64 switch_next_timer(const struct scale_up_switch *sw)
{
	__u64 next = groups_next_timer(sw);

	for (__u32 port = 0; port < sw->port_count; port++)
		next = earlier(next, sw->wake_ns[port]);
	return next;
}

void switch_sent(struct scale_up_switch *sw, __u32 frame, __u64 now)
{
	if (sw->pool.frames[frame].due_ns != NEVER) {
		histogram_record(&sw->passes, now - sw->pool.frames[frame].due_ns);
		sw->frames++;
		sw->pool.frames[frame].due_ns = NEVER; /* a replay is none */
	}
	if (sw->pool.frames[frame].damaged) {
		frame_bytes(&sw->pool, frame)[sw->pool.frames[frame].damaged] ^= WRONG_BIT;
		sw->pool.frames[frame].damaged = 0;
	}
	link_gone(&sw->pool, frame);
}

bool switch_set_errors(struct scale_up_switch *sw, __u32 number, const struct wire_errors *errors, __u64 now)
{
	struct switch_port *port;
	__u64 rate, signal = SIGNAL_FULL;

	if (number >= sw->port_count)
		return false;
	port = &sw->ports[number];
	rate = port->link.config.rate_bps;
	if (errors->rate_bps && errors->rate_bps < rate)
		signal = later(1, (__uint128_t)errors->rate_bps * SIGNAL_FULL / rate);
	if (!wire_set(&port->wire, errors, number))
		return false;
	link_set_signal(&port->link, errors->down ? 0 : signal, now);
	sw->wake_ns[number] = 0;
	return true;
}

void switch_set_peer(struct scale_up_switch *sw, __u32 gpu, bool there, __u64 now)
{
	if (gpu >= sw->config.gpus)
		return;
	for (__u32 number = gpu; number < sw->port_count; number += sw->config.gpus) {
		link_set_peer(&sw->ports[number].link, there, now);
		sw->wake_ns[number] = 0;
	}
}

/* ------------------------------------------------------------------ without sockets, and what it counts */

bool switch_put(struct scale_up_switch *sw, __u32 port, const __u8 *data, __u32 length, __u64 now)
{
	__u32 frame;

	if (port >= sw->port_count || length > sw->pool.stride || (frame = frame_take(&sw->pool)) == NO_FRAME)
		return false;
	memcpy(frame_bytes(&sw->pool, frame), data, length);
	sw->pool.frames[frame].length = length;
	switch_arrive(sw, port, frame, now);
	return true;
}

__u32 switch_get(struct scale_up_switch *sw, __u32 port, __u8 *data, __u32 size, __u64 now)
{
	__u32 frame, length;

	if (port >= sw->port_count || (frame = frame_shift(&sw->pool, &sw->ports[port].out)) == NO_FRAME)
		return 0;
	length = sw->pool.frames[frame].length;
	memcpy(data, frame_bytes(&sw->pool, frame), length < size ? length : size);
	switch_sent(sw, frame, now);
	sw->ports[port].listed = false; /* nobody but us looks at `ready` */
	sw->ready_count = 0;
	return length;
}

__u32 switch_held(const struct scale_up_switch *sw, __u32 port, __u32 vc)
{
	return port < sw->port_count && vc < LINK_VCS ? sw->ports[port].link.held[vc] : 0;
}

const struct link_counters *switch_link_counters(struct scale_up_switch *sw, __u32 port)
{
	return port < sw->port_count ? link_counters(&sw->ports[port].link) : NULL;
}

const struct vc_counters *switch_vc_counters(struct scale_up_switch *sw, __u32 port, __u32 vc)
{
	return port < sw->port_count && vc < LINK_VCS ? link_vc_counters(&sw->ports[port].link, vc) : NULL;
}

const struct retry_sender_counters *switch_retry_sender(struct scale_up_switch *sw, __u32 port)
{
	return port < sw->port_count ? &sw->ports[port].link.retry_sender.counters : NULL;
}

const struct retry_receiver_counters *switch_retry_receiver(struct scale_up_switch *sw, __u32 port)
{
	return port < sw->port_count ? &sw->ports[port].link.retry_receiver.counters : NULL;
}

const struct histogram *switch_passes(const struct scale_up_switch *sw)
{
	return &sw->passes;
}

const struct histogram *switch_lateness(const struct scale_up_switch *sw)
{
	return &sw->lateness;
}

__u64 switch_frames(const struct scale_up_switch *sw)
{
	return sw->frames;
}

void switch_forget_peaks(struct scale_up_switch *sw)
{
	memset(&sw->passes, 0, sizeof(sw->passes));
	memset(&sw->lateness, 0, sizeof(sw->lateness));
	for (__u32 port = 0; port < sw->port_count; port++) {
		for (__u32 vc = 0; vc < LINK_VCS; vc++)
			sw->ports[port].link.vc[vc].deepest = sw->ports[port].link.held[vc];
	}
}
