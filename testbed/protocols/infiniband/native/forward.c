/* What becomes of a frame: it comes in, is stored, waits for its turn at an output, and leaves. */
#include <string.h>

#include "fabric.h"

#define LNH_LOCAL 2
#define LNH_GLOBAL 3
#define ICRC_BYTES 4
#define FECN 0x80
#define FULL_MEMBER 0x8000
#define PERMISSIVE_LID 0xFFFF
#define LATELY 8 /* frames: updates of credits are for a few at once */

static __u32 get_16(const __u8 *data)
{
	return data[0] << 8 | data[1];
}

/* Where the BTH of a frame is that has sound headers; 0: it has none. */
static __u32 find_bth(const struct ib_fabric *fabric, __u32 frame)
{
	const __u8 *data = frame_bytes(&fabric->pool, frame);
	__u32 at, bytes = fabric->pool.frames[frame].length, source = get_16(data + 6);

	if (fabric->extra[frame].known < LRH_BYTES || data[0] & 15)
		return 0;
	at = (data[1] & 3) == LNH_LOCAL ? LRH_BYTES : (data[1] & 3) == LNH_GLOBAL ? LRH_BYTES + GRH_BYTES : 0;
	if (!at || fabric->extra[frame].known < at + BTH_BYTES || bytes < at + BTH_BYTES + ICRC_BYTES + VCRC_BYTES ||
	    ((data[4] & 7) << 8 | data[5]) * 4 + VCRC_BYTES != bytes || !get_16(data + 2))
		return 0;
	if (source && source < LEAST_MULTICAST)
		return at;
	return source == PERMISSIVE_LID && data[0] >> 4 == MANAGEMENT_VL ? at : 0;
}

/* Tell of a frame at a watched port. */
static void show(struct ib_fabric *fabric, const struct fabric_port *port, __u32 frame, enum notice_kind kind)
{
	const __u8 *data = frame_bytes(&fabric->pool, frame);
	__u32 at = fabric->extra[frame].at_bth;

	fabric_notify(fabric, (struct notice){
		.token = fabric->extra[frame].token,
		.node = port->node,
		.kind = kind,
		.fecn = at && data[at + 4] & FECN,
		.port = port->number,
		.vl = data[0] >> 4,
	});
}

/* The first frame of a queue wants to leave. */
static void want(struct ib_fabric *fabric, struct input_queue *queue)
{
	__u32 frame = queue->frames.first, vl = fabric->extra[frame].out_vl;
	struct fabric_port *output = &fabric->ports[fabric->pool.frames[frame].output];
	struct waiting_queues *waiting = &output->wanted[vl];

	queue->next = NULL;
	if (output->wanting >> vl & 1)
		waiting->last->next = queue;
	else
		waiting->first = queue;
	waiting->last = queue;
	output->wanting |= 1u << vl;
	fabric_wake(fabric, output);
}

void fabric_wake(struct ib_fabric *fabric, struct fabric_port *port)
{
	struct event event = {.at_ns = port->free_ns > fabric->now ? port->free_ns : fabric->now, .kind = EVENT_FREE,
			      .port = number_of(fabric, port), .epoch = port->epoch};

	if (port->free_due)
		return;
	port->free_due = true;
	if (!event_push(&fabric->events, event))
		fabric->broken = true;
}

/* ------------------------------------------------------------------ buffers of inputs */

/* Whether there is room. */
static bool store(struct ib_fabric *fabric, struct fabric_port *port, __u32 frame)
{
	__u32 vl = fabric->pool.frames[frame].vc, blocks = blocks_of(fabric->pool.frames[frame].length);

	if (vl == MANAGEMENT_VL) {
		if (port->management_held >= fabric->config.management_frames)
			return false;
		port->management_held++;
		return true;
	}
	if (port->held_blocks[vl] + blocks > port->blocks)
		return false;
	if (!fabric->extra[frame].is_injected && !credit_stored(&port->receiver, vl, fabric->pool.frames[frame].length))
		return false;
	port->held_blocks[vl] += blocks;
	if (port->held_blocks[vl] > port->lanes[vl].deepest)
		port->lanes[vl].deepest = port->held_blocks[vl];
	return true;
}

static void tell(struct ib_fabric *fabric, struct fabric_port *port)
{
	struct event event = {.at_ns = port->receiver.earliest_ns, .kind = EVENT_TELL, .port = number_of(fabric, port),
			      .epoch = port->epoch};

	if (port->tell_due || !port->receiver.changed)
		return;
	port->tell_due = true;
	if (event.at_ns < fabric->now)
		event.at_ns = fabric->now;
	if (!event_push(&fabric->events, event))
		fabric->broken = true;
}

/* A frame leaves the buffer of the input that it came in by. */
static void release(struct ib_fabric *fabric, __u32 number)
{
	const struct frame *frame = &fabric->pool.frames[number];
	const struct frame_extra *extra = &fabric->extra[number];
	struct fabric_port *port = &fabric->ports[frame->port];
	__u32 blocks = blocks_of(frame->length);

	if (extra->is_own || extra->epoch != port->epoch)
		return;
	if (frame->vc == MANAGEMENT_VL) {
		port->management_held--;
		return;
	}
	port->held_blocks[frame->vc] -= blocks;
	if (extra->is_injected)
		return;
	credit_freed(&port->receiver, frame->vc, frame->length);
	tell(fabric, port);
}

static void refuse(struct ib_fabric *fabric, struct fabric_port *port, __u32 frame, __u64 *counter)
{
	release(fabric, frame);
	fabric_lose(fabric, port, frame, counter);
}

/* ------------------------------------------------------------------ frames that come in */

static bool has_key(const struct fabric_port *port, __u32 pkey)
{
	for (__u32 at = 0; at < port->pkey_count; at++) {
		if (!((port->pkeys[at] ^ pkey) & ~FULL_MEMBER) && (port->pkeys[at] | pkey) & FULL_MEMBER)
			return true;
	}
	return !port->pkey_count;
}

/* Whether a port lets a frame of its partition pass: management is in none. */
static bool passes(const struct ib_fabric *fabric, const struct fabric_port *port, __u32 frame)
{
	const __u8 *data = frame_bytes(&fabric->pool, frame);

	return fabric->pool.frames[frame].vc == MANAGEMENT_VL ||
	       has_key(port, get_16(data + fabric->extra[frame].at_bth + 2));
}

static void deliver(struct ib_fabric *fabric, struct fabric_port *port, __u32 frame)
{
	const __u8 *data = frame_bytes(&fabric->pool, frame);
	__u32 lid = fabric->nodes[port->node].lid;

	if (fabric->pool.frames[frame].vc != MANAGEMENT_VL && lid && get_16(data + 2) != lid) {
		refuse(fabric, port, frame, &port->counters.misrouted);
		return;
	}
	if (!passes(fabric, port, frame)) {
		refuse(fabric, port, frame, &port->counters.bad_pkey);
		return;
	}
	release(fabric, frame);
	fabric_notify(fabric, (struct notice){
		.token = fabric->extra[frame].token,
		.node = port->node,
		.kind = NOTICE_DELIVERED,
		.fecn = data[fabric->extra[frame].at_bth + 4] / FECN,
	});
	fabric->in_flight--;
	frame_give(&fabric->pool, frame);
}

static __u64 load_of(const struct ib_fabric *fabric, const struct fabric_port *port)
{
	__u64 bytes = 0;

	for (__u32 vl = 0; vl < fabric->config.vls; vl++)
		bytes += port->queued_bytes[vl];
	return bytes;
}

/* The port that the table names or, where it is one of the switch's up ports, the least loaded of them. */
static struct fabric_port *choose_output(struct ib_fabric *fabric, struct fabric_port *input, __u32 destination)
{
	const struct fabric_node *node = &fabric->nodes[input->node];
	__u32 number = destination < fabric->config.lids && destination < LEAST_MULTICAST ? node->lft[destination] : NO_PORT;
	struct fabric_port *found = port_of(fabric, input->node, number), *other;

	if (!found || !(node->up_ports[number / 64] >> number % 64 & 1))
		return found;
	for (__u32 other_number = 1; other_number <= node->ports; other_number++) {
		other = port_of(fabric, input->node, other_number);
		if (node->up_ports[other_number / 64] >> other_number % 64 & 1 && other->up && other != input &&
		    (!found->up || load_of(fabric, other) < load_of(fabric, found)))
			found = other;
	}
	return found;
}

static __u32 vl_of(const struct ib_fabric *fabric, __u32 node, __u32 input, __u32 output, __u32 sl)
{
	const struct fabric_node *found = &fabric->nodes[node];

	if (!found->sl2vl)
		return found->common_sl2vl[sl];
	return found->sl2vl[(size_t)(input * (found->ports + 1) + output) * SLS + sl];
}

static void put(struct ib_fabric *fabric, struct fabric_port *input, struct fabric_port *output, __u32 number, __u32 vl)
{
	struct frame *frame = &fabric->pool.frames[number];
	struct input_queue *queue = queue_of(fabric, input, frame->vc, output->number);

	frame->output = number_of(fabric, output);
	fabric->extra[number].out_vl = vl;
	output->queued_bytes[vl] += frame->length;
	frame_append(&fabric->pool, &queue->frames, number);
	if (queue->frames.count == 1)
		want(fabric, queue);
}

static void forward(struct ib_fabric *fabric, struct fabric_port *input, __u32 frame)
{
	const __u8 *data = frame_bytes(&fabric->pool, frame);
	struct fabric_port *output = choose_output(fabric, input, get_16(data + 2));
	__u32 vl = MANAGEMENT_VL;

	if (!output || output == input || output->peer == NOBODY) {
		refuse(fabric, input, frame, &input->counters.rcv_switch_relay_errors);
		return;
	}
	if (!passes(fabric, input, frame)) {
		refuse(fabric, input, frame, &input->counters.rcv_constraint_errors);
		return;
	}
	if (fabric->pool.frames[frame].vc != MANAGEMENT_VL) {
		vl = vl_of(fabric, input->node, input->number, output->number, fabric->extra[frame].sl);
		if (vl >= fabric->config.vls || !output->up) {
			refuse(fabric, output, frame, &output->counters.xmit_discards);
			return;
		}
	}
	if (!passes(fabric, output, frame))
		refuse(fabric, output, frame, &output->counters.xmit_constraint_errors);
	else
		put(fabric, input, output, frame, vl);
}

void fabric_arrive(struct ib_fabric *fabric, struct fabric_port *port, __u32 number)
{
	struct frame *frame = &fabric->pool.frames[number];
	struct frame_extra *extra = &fabric->extra[number];
	const __u8 *data = frame_bytes(&fabric->pool, number);

	frame->due_ns = fabric->now;
	frame->port = number_of(fabric, port);
	frame->vc = data[0] >> 4;
	extra->epoch = port->epoch;
	extra->is_own = false;
	extra->at_bth = find_bth(fabric, number);
	if (port->is_watched)
		show(fabric, port, number, NOTICE_COMES);
	if (!extra->at_bth || (frame->vc != MANAGEMENT_VL && frame->vc >= fabric->config.vls)) {
		fabric_lose(fabric, port, number, &port->counters.rcv_errors);
		return;
	}
	extra->sl = data[1] >> 4;
	port->counters.rcv_data += frame->length / 4;
	port->counters.rcv_pkts++;
	port->lanes[frame->vc].rcv_bytes += frame->length;
	port->lanes[frame->vc].rcv_pkts++;
	if (!store(fabric, port, number))
		fabric_lose(fabric, port, number,
			    frame->vc == MANAGEMENT_VL ? &port->counters.vl15_dropped : &port->counters.buffer_overruns);
	else if (fabric->nodes[port->node].is_switch)
		forward(fabric, port, number);
	else
		deliver(fabric, port, number);
}

bool ib_fabric_offer(struct ib_fabric *fabric, __u32 node, const __u8 *header, __u32 length, __u32 bytes, __u64 token,
		     bool management, __u64 now)
{
	struct fabric_port *port = port_of(fabric, node, 1);
	struct frame_extra *extra;
	__u32 number, vl = MANAGEMENT_VL;

	fabric->now = now > fabric->now ? now : fabric->now;
	if (!port || fabric->nodes[node].is_switch || port->peer == NOBODY)
		return false;
	number = fabric_frame(fabric, header, length, bytes, token);
	if (number == NO_FRAME)
		return false;
	fabric->in_flight++;
	extra = &fabric->extra[number];
	extra->is_own = true;
	extra->at_bth = find_bth(fabric, number);
	extra->sl = frame_bytes(&fabric->pool, number)[1] >> 4;
	if (!management)
		vl = vl_of(fabric, node, 0, 1, extra->sl);
	if (!extra->at_bth || !port->up || (!management && vl >= fabric->config.vls)) {
		fabric_lose(fabric, port, number, &port->counters.xmit_discards);
		return true;
	}
	fabric->pool.frames[number].port = number_of(fabric, port);
	fabric->pool.frames[number].vc = vl;
	put(fabric, port, port, number, vl);
	return true;
}

/* ------------------------------------------------------------------ frames that leave */

/* Take the first frame of the first queue that waits for an output on a VL. */
static __u32 unqueue(struct ib_fabric *fabric, struct fabric_port *port, __u32 vl)
{
	struct waiting_queues *waiting = &port->wanted[vl];
	struct input_queue *queue = waiting->first;
	__u32 frame = frame_shift(&fabric->pool, &queue->frames);

	waiting->first = queue->next;
	if (!waiting->first)
		port->wanting &= ~(1u << vl);
	port->queued_bytes[vl] -= fabric->pool.frames[frame].length;
	release(fabric, frame);
	if (queue->frames.count)
		want(fabric, queue);
	return frame;
}

static void wait_for_credits(struct ib_fabric *fabric, struct fabric_port *port, __u32 vl)
{
	if (!(port->waits >> vl & 1))
		port->wait_since_ns[vl] = fabric->now;
	port->waits |= 1u << vl;
}

/* Whether a VL had waited for credits, which is over. */
static bool wait_ends(struct ib_fabric *fabric, struct fabric_port *port, __u32 vl)
{
	if (!(port->waits >> vl & 1))
		return false;
	port->lanes[vl].xmit_wait_ns += fabric->now - port->wait_since_ns[vl];
	port->waits &= ~(1u << vl);
	return true;
}

/* Nothing waits any more while the line is free. */
static void hold_ends(struct ib_fabric *fabric, struct fabric_port *port)
{
	if (port->held)
		port->counters.xmit_wait_ns += fabric->now - port->idle_since_ns;
	port->held = false;
}

void fabric_discard(struct ib_fabric *fabric, struct fabric_port *port)
{
	while (port->wanting) {
		__u32 frame = unqueue(fabric, port, __builtin_ctz(port->wanting));
		fabric_lose(fabric, port, frame, &port->counters.xmit_discards);
	}
	hold_ends(fabric, port);
	while (port->waits)
		wait_ends(fabric, port, __builtin_ctz(port->waits));
}

/* Mark a frame that leaves where congestion has its root: more waits than the threshold allows, and not for credits. A
 * lane of which a frame has lately waited for them is a victim, but at a port to an HCA (A10.2.1.1.1). */
static void mark(struct ib_fabric *fabric, struct fabric_port *port, __u32 frame, __u32 vl, bool waited)
{
	bool is_victim = waited || port->since_wait[vl] < LATELY;
	const struct fabric_node *node = &fabric->nodes[port->node];
	__u64 queued = port->queued_bytes[vl]; /* behind it */

	port->since_wait[vl] = waited ? 0 : port->since_wait[vl] + 1;
	if (!node->threshold_bytes || queued <= node->threshold_bytes || (is_victim && !port->is_edge) ||
	    fabric->pool.frames[frame].length < node->least_marked_bytes)
		return;
	if (port->unmarked[vl]++ < node->marking_rate)
		return;
	port->unmarked[vl] = 0;
	port->lanes[vl].marked++;
	frame_bytes(&fabric->pool, frame)[fabric->extra[frame].at_bth + 4] |= FECN;
}

static void transmit(struct ib_fabric *fabric, struct fabric_port *port, __u32 vl, bool waited)
{
	__u32 frame = unqueue(fabric, port, vl), bytes = fabric->pool.frames[frame].length;
	struct event event = {.kind = EVENT_ARRIVE, .port = port->peer, .frame = frame,
			      .epoch = fabric->ports[port->peer].epoch};
	__u8 *data = frame_bytes(&fabric->pool, frame);

	if (vl != MANAGEMENT_VL) {
		mark(fabric, port, frame, vl, waited);
		credit_sent(&port->sender, vl, bytes);
	}
	data[0] = vl << 4 | (data[0] & 15);
	fabric->extra[frame].is_injected = false; /* it has credits from here on */
	if (port->is_watched)
		show(fabric, port, frame, NOTICE_LEAVES);
	port->free_ns = fabric->now + (bytes * 8000000000ull + port->rate_bps - 1) / port->rate_bps;
	port->counters.xmit_data += bytes / 4;
	port->counters.xmit_pkts++;
	port->lanes[vl].xmit_bytes += bytes;
	port->lanes[vl].xmit_pkts++;
	fabric->hops++;
	if (!fabric->nodes[port->node].is_switch) {
		port->has_sent = true;
		port->sent_token = fabric->extra[frame].token;
	}
	event.at_ns = port->free_ns + port->delay_ns;
	if (!event_push(&fabric->events, event))
		fabric->broken = true;
}

/* The VLs that have a frame which may go, a bit each. */
static __u32 find_able(struct ib_fabric *fabric, struct fabric_port *port)
{
	__u32 able = port->wanting & 1u << MANAGEMENT_VL;

	for (__u32 vls = port->wanting & ~able; vls; vls &= vls - 1) {
		__u32 vl = __builtin_ctz(vls), frame = port->wanted[vl].first->frames.first;
		if (credit_may_send(&port->sender, vl, fabric->pool.frames[frame].length))
			able |= 1u << vl;
		else
			wait_for_credits(fabric, port, vl);
	}
	return able;
}

static void send(struct ib_fabric *fabric, struct fabric_port *port)
{
	struct vl_table *from = NULL;
	__u32 able, bytes;
	int vl = MANAGEMENT_VL;

	if (!port->up)
		fabric_discard(fabric, port);
	if (!port->wanting)
		return;
	able = find_able(fabric, port);
	if (!(able >> MANAGEMENT_VL & 1))
		vl = vl_arbiter_pick(&port->arbiter, able, &from);
	if (vl < 0) {
		port->idle_since_ns = port->held ? port->idle_since_ns : fabric->now;
		port->held = true;
		return;
	}
	hold_ends(fabric, port);
	bytes = fabric->pool.frames[port->wanted[vl].first->frames.first].length;
	if (from)
		vl_arbiter_charge(&port->arbiter, from, bytes, blocks_of(bytes));
	transmit(fabric, port, vl, wait_ends(fabric, port, vl));
	if (port->wanting || port->has_sent)
		fabric_wake(fabric, port);
}

/* ------------------------------------------------------------------ events */

static void on_free(struct ib_fabric *fabric, struct fabric_port *port)
{
	port->free_due = false;
	if (port->has_sent && port->free_ns <= fabric->now) {
		port->has_sent = false;
		fabric_notify(fabric, (struct notice){.token = port->sent_token, .node = port->node, .kind = NOTICE_SENT});
	}
	if (port->free_ns > fabric->now)
		fabric_wake(fabric, port);
	else
		send(fabric, port);
}

static void on_tell(struct ib_fabric *fabric, struct fabric_port *port)
{
	struct event event = {.at_ns = fabric->now + port->delay_ns, .kind = EVENT_CREDITS, .port = port->peer,
			      .epoch = fabric->ports[port->peer].epoch};
	struct ctlos update;

	port->tell_due = false;
	if (credit_receiver_poll(&port->receiver, fabric->now, &update)) {
		event.argument = (__u64)update.vc1 << 48 | (__u64)update.count1 << 32 | update.vc2 << 16 | update.count2;
		if (!event_push(&fabric->events, event))
			fabric->broken = true;
	}
	tell(fabric, port);
}

static void on_credits(struct ib_fabric *fabric, struct fabric_port *port, __u64 argument)
{
	struct ctlos update = {.type = CF_UPDATE, .vc1 = argument >> 48, .count1 = argument >> 32 & 0xFFFF,
			       .vc2 = argument >> 16 & 0xFFFF, .count2 = argument & 0xFFFF};

	credit_on_cf_update(&port->sender, &update);
	for (__u32 vls = port->waits; vls; vls &= vls - 1) {
		__u32 vl = __builtin_ctz(vls);
		if (port->wanting >> vl & 1 &&
		    credit_may_send(&port->sender, vl, fabric->pool.frames[port->wanted[vl].first->frames.first].length))
			fabric_wake(fabric, port);
	}
}

void fabric_event(struct ib_fabric *fabric, const struct event *event)
{
	struct fabric_port *port = &fabric->ports[event->port];
	bool is_late = event->epoch != port->epoch; /* the link has gone down since */

	switch ((enum event_kind)event->kind) {
	case EVENT_ARRIVE:
		if (is_late)
			fabric_lose(fabric, port, event->frame, &port->counters.lost_on_link);
		else
			fabric_arrive(fabric, port, event->frame);
		break;
	case EVENT_CREDITS:
		if (!is_late)
			on_credits(fabric, port, event->argument);
		break;
	case EVENT_FREE:
		if (!is_late)
			on_free(fabric, port);
		break;
	case EVENT_TELL:
		if (!is_late)
			on_tell(fabric, port);
		break;
	}
}
