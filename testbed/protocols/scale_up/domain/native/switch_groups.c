/* Multicast and reduction in the switch of a scale-up domain. */
#include "switch_groups.h"

#include <stdlib.h>
#include <string.h>

#include "switch.h"

#define NO_OPERATION (~0u)
#define READS_WAITING 8 /* half of an endpoint's RESPONSES */
#define NO_FRAME_NS 50000 /* after the pool had no frame */
#define PATIENCE_NS 1000000000ull
#define PATIENCE_DELAYS 100 /* of a link's propagation: 25 round trips */

static struct plane_groups *plane_of(struct scale_up_switch *sw, __u32 port)
{
	return &sw->groups[port / sw->config.gpus];
}

static struct copy_ring *ring_of(struct scale_up_switch *sw, __u32 port, bool of_writes)
{
	return &sw->copies[RINGS * port + of_writes];
}

static void wake(struct scale_up_switch *sw, __u32 port)
{
	sw->wake_ns[port] = 0;
}

bool groups_init(struct scale_up_switch *sw)
{
	sw->groups = calloc(sw->config.planes, sizeof(*sw->groups));
	sw->copies = calloc(RINGS * (size_t)sw->port_count, sizeof(*sw->copies));
	if (!sw->groups || !sw->copies)
		return false;
	for (__u32 plane = 0; plane < sw->config.planes; plane++) {
		struct plane_groups *groups = &sw->groups[plane];
		groups->due_ns = NEVER;
		/* Memory that is not used is not there. */
		if (!(groups->sums = calloc(OPEN_OPERATIONS, sw->config.frame_bytes)))
			return false;
		for (__u32 i = 0; i < GROUPS; i++) {
			if (!(groups->groups[i].joined = calloc(sw->config.gpus, sizeof(__u64))))
				return false;
		}
	}
	for (__u32 port = 0; port < sw->port_count; port++)
		sw->ports[port].answers_first = sw->ports[port].answers_last = NO_OPERATION;
	return true;
}

void groups_free(struct scale_up_switch *sw)
{
	for (__u32 plane = 0; sw->groups && plane < sw->config.planes; plane++) {
		free(sw->groups[plane].sums);
		for (__u32 i = 0; i < GROUPS; i++)
			free(sw->groups[plane].groups[i].joined);
	}
	free(sw->groups);
	free(sw->copies);
}

/* ------------------------------------------------------------------ the end of an operation */

static void start(struct scale_up_switch *sw, __u32 frame, __u64 ready_ns, __u64 now);

/* What an end has asked for that is gone. */
static bool is_stale(const struct scale_up_switch *sw, const struct frame *frame)
{
	const struct link_port *link = &sw->ports[frame->port].link;

	return link->config.epoch && frame->came < link->epoch_came;
}

/* A frame leaves its input buffer. */
static void drop(struct scale_up_switch *sw, __u32 number)
{
	const struct frame *frame = &sw->pool.frames[number];

	link_free(&sw->ports[frame->port].link, frame->vc, frame->length);
	wake(sw, frame->port);
	frame_give(&sw->pool, number);
}

static bool is_awaited(const struct group_operation *operation, __u32 gpu)
{
	return operation->awaited[gpu / 64] >> gpu % 64 & 1;
}

static bool was_asked(const struct group_operation *operation, __u32 gpu)
{
	return operation->asked[gpu / 64] >> gpu % 64 & 1;
}

/* Reads that a member has not answered: what is on its way, and a few that wait for its link. More would fill the queue
 * of its answers, and hold up the writes behind them. */
static __u32 most_reads(const struct scale_up_switch *sw, const struct link_port *link)
{
	return READS_WAITING + 2 * link->config.delay_ns / link_time_ns(link, sw->config.frame_bytes);
}

/* Nothing is expected of a member any more, since `at`. */
static void stop_awaiting(struct scale_up_switch *sw, struct group_operation *operation, __u32 gpu, __u64 at)
{
	__u32 port = operation->port - operation->port % sw->config.gpus + gpu;

	operation->awaited[gpu / 64] &= ~(1ull << gpu % 64);
	operation->answers--;
	if (was_asked(operation, gpu) && operation->request.command == COMMAND_REDUCE) {
		if (sw->ports[port].reads-- >= most_reads(sw, &sw->ports[port].link))
			sw->ports[port].asks_ns = at;
		wake(sw, port);
	}
}

/* Its place is free when nothing has it any more; what waits for one is begun. */
static void release(struct scale_up_switch *sw, struct plane_groups *plane, struct group_operation *operation, __u64 now)
{
	__u32 first = (__u32)(plane - sw->groups) * sw->config.gpus, gpu = operation->port - first;

	if (!operation->answered || operation->copies || (operation->answers && operation->until_ns > now))
		return;
	for (__u32 member = 0; operation->answers && member < sw->config.gpus; member++) {
		if (is_awaited(operation, member))
			stop_awaiting(sw, operation, member, now);
	}
	operation->used = false;
	operation->round = (operation->round + 1) % TAG_ROUNDS;
	plane->open--;
	for (__u32 i = 1; i <= sw->config.gpus && plane->open < OPEN_OPERATIONS; i++) {
		struct switch_port *port = &sw->ports[first + (gpu + i) % sw->config.gpus];
		__u32 frame = frame_shift(&sw->pool, &port->held_back);
		if (frame == NO_FRAME)
			continue;
		if (is_stale(sw, &sw->pool.frames[frame])) {
			port->link.counters.stale++;
			drop(sw, frame);
		} else {
			start(sw, frame, now, now);
		}
	}
}

/* Let who asked know. */
static void finish(struct scale_up_switch *sw, struct plane_groups *plane, struct group_operation *operation, __u64 now)
{
	struct switch_port *port = &sw->ports[operation->port];
	__u32 number = operation - plane->operations;

	if (operation->over)
		return;
	operation->over = true;
	operation->ready_ns = now;
	operation->next = NO_OPERATION;
	if (port->answers_last == NO_OPERATION)
		port->answers_first = number;
	else
		plane->operations[port->answers_last].next = number;
	port->answers_last = number;
	wake(sw, operation->port);
}

static void fail(struct scale_up_switch *sw, struct plane_groups *plane, struct group_operation *operation, enum status status, __u64 now)
{
	if (operation->status == STATUS_OK)
		operation->status = status;
	finish(sw, plane, operation, now);
}

/* A copy has begun to leave, or never will. */
static void copy_done(struct scale_up_switch *sw, struct plane_groups *plane, struct group_operation *operation, __u64 now)
{
	if (--operation->copies)
		return;
	if (operation->frame != NO_FRAME)
		drop(sw, operation->frame);
	operation->frame = NO_FRAME;
	release(sw, plane, operation, now);
}


/* ------------------------------------------------------------------ its begin */

static __u32 size_of(const struct request *request)
{
	return request->metadata * REGION_BYTES + (request->length + 1) * 4;
}

/* Whether what is asked for makes sense. */
static enum status examine(const struct scale_up_switch *sw, const struct request *request, __u32 payload)
{
	__u32 size = size_of(request), skipped = request->attributes & 0xf, type = request->attributes >> 4;

	if (request->destination >= GROUPS)
		return STATUS_REFUSED;
	if (size + BODY_AT + REQUEST_BYTES + FCS_BYTES > sw->config.frame_bytes)
		return STATUS_MALFORMED;
	if (request->command == COMMAND_MULTICAST)
		return payload == size ? STATUS_OK : STATUS_MALFORMED;
	if (payload || skipped || (type != ELEMENT_INT32 && type != ELEMENT_FLOAT32))
		return STATUS_MALFORMED;
	return STATUS_OK;
}

static bool is_member(const struct scale_up_switch *sw, const struct group *group, __u32 port)
{
	return group->joined[port % sw->config.gpus] == sw->ports[port].link.epoch_came + 1;
}

static enum status join(struct scale_up_switch *sw, struct plane_groups *plane, const struct request *request, __u32 port)
{
	struct group *group;

	if (request->destination >= GROUPS || sw->config.gpus > SWITCH_ID)
		return STATUS_REFUSED;
	group = &plane->groups[request->destination];
	group->joined[port % sw->config.gpus] = sw->ports[port].link.epoch_came + 1;
	group->expected = request->address >> 2;
	return STATUS_OK;
}

/* Whether all members are there, whose bits are set then. */
static enum status gather(struct scale_up_switch *sw, struct plane_groups *plane, struct group_operation *operation)
{
	const struct group *group = &plane->groups[operation->request.destination];
	__u32 first = (__u32)(plane - sw->groups) * sw->config.gpus, members = 0;

	if (!is_member(sw, group, operation->port)) /* one that was has to join again, by this plane */
		return group->joined[operation->port % sw->config.gpus] ? STATUS_UNREACHABLE : STATUS_REFUSED;
	for (__u32 gpu = 0; gpu < sw->config.gpus; gpu++) {
		if (!is_member(sw, group, first + gpu))
			continue;
		if (sw->ports[first + gpu].link.down)
			return STATUS_UNREACHABLE;
		operation->awaited[gpu / 64] |= 1ull << gpu % 64;
		members++;
	}
	if (members != group->expected)
		return STATUS_UNREACHABLE;
	operation->copies = operation->answers = members;
	return STATUS_OK;
}

static void ask_members(struct scale_up_switch *sw, struct plane_groups *plane, const struct group_operation *operation)
{
	__u32 first = (__u32)(plane - sw->groups) * sw->config.gpus;

	for (__u32 gpu = 0; gpu < sw->config.gpus; gpu++) {
		struct copy_ring *ring = ring_of(sw, first + gpu, operation->request.command == COMMAND_MULTICAST);
		if (!is_awaited(operation, gpu))
			continue;
		ring->operation[(ring->first + ring->count++) % OPEN_OPERATIONS] = operation - plane->operations;
		wake(sw, first + gpu);
	}
}

static void start(struct scale_up_switch *sw, __u32 number, __u64 ready_ns, __u64 now)
{
	struct frame *frame = &sw->pool.frames[number];
	struct plane_groups *plane = plane_of(sw, frame->port);
	struct link_port *link = &sw->ports[frame->port].link;
	const __u8 *data = frame_bytes(&sw->pool, number);
	struct group_operation *operation;

	do {
		plane->last = (plane->last + 1) % OPEN_OPERATIONS;
		operation = &plane->operations[plane->last];
	} while (operation->used);
	*operation = (struct group_operation){
		.until_ns = now + PATIENCE_NS + PATIENCE_DELAYS * link->config.delay_ns,
		.ready_ns = ready_ns,
		.epoch = link->epoch_came,
		.request = get_request(data + BODY_AT),
		.port = frame->port,
		.frame = NO_FRAME,
		.bytes = frame->length - BODY_AT - REQUEST_BYTES - FCS_BYTES,
		.round = operation->round,
		.vc = frame->vc,
		.answer_vc = frame->vc,
		.used = true,
	};
	plane->open++;
	plane->due_ns = earlier(plane->due_ns, operation->until_ns);
	if (operation->request.command == COMMAND_JOIN) {
		operation->status = join(sw, plane, &operation->request, frame->port);
	} else {
		operation->status = examine(sw, &operation->request, operation->bytes);
		operation->bytes = size_of(&operation->request);
		if (operation->status == STATUS_OK)
			operation->status = gather(sw, plane, operation);
	}
	if (operation->status == STATUS_OK && operation->request.command == COMMAND_MULTICAST) {
		operation->frame = number;
	} else {
		drop(sw, number);
	}
	if (operation->copies)
		ask_members(sw, plane, operation);
	else
		finish(sw, plane, operation, now);
}

/* ------------------------------------------------------------------ answers of members */

static void add(const struct group_operation *operation, __u8 *sums, const __u8 *data)
{
	if (operation->request.attributes >> 4 == ELEMENT_FLOAT32) {
		for (__u32 i = 0; i < operation->bytes; i += 4) {
			float a, b;
			memcpy(&a, sums + i, 4);
			memcpy(&b, data + i, 4);
			a += b;
			memcpy(sums + i, &a, 4);
		}
		return;
	}
	for (__u32 i = 0; i < operation->bytes; i += 4) {
		__u32 a, b;
		memcpy(&a, sums + i, 4);
		memcpy(&b, data + i, 4);
		a += b;
		memcpy(sums + i, &a, 4);
	}
}

/* False: nobody waits for it. */
static bool take_answer(struct scale_up_switch *sw, __u32 number, __u64 now)
{
	const struct frame *frame = &sw->pool.frames[number];
	const __u8 *data = frame_bytes(&sw->pool, number);
	struct plane_groups *plane = plane_of(sw, frame->port);
	struct response response = get_response(data + BODY_AT);
	__u32 place = response.tag % OPEN_OPERATIONS, gpu = frame->port % sw->config.gpus;
	__u32 bytes = frame->length - BODY_AT - RESPONSE_BYTES - FCS_BYTES;
	struct group_operation *operation = &plane->operations[place];
	bool reduces = operation->request.command == COMMAND_REDUCE;
	__u8 *sums = plane->sums + (size_t)place * sw->config.frame_bytes;

	if (!operation->used || operation->round != response.tag / OPEN_OPERATIONS || response.source != gpu || !is_awaited(operation, gpu) ||
	    !was_asked(operation, gpu))
		return false;
	stop_awaiting(sw, operation, gpu, frame->due_ns);
	operation->answer_vc = frame->vc;
	if (frame->poisoned || (response.status == STATUS_OK && reduces && bytes != operation->bytes))
		response.status = STATUS_MALFORMED;
	if (response.status != STATUS_OK) {
		if (operation->status == STATUS_OK)
			operation->status = response.status;
	} else if (reduces && !operation->over) {
		if (operation->summed)
			add(operation, sums, data + BODY_AT + RESPONSE_BYTES);
		else
			memcpy(sums, data + BODY_AT + RESPONSE_BYTES, bytes);
		operation->summed = true;
	}
	if (!operation->answers) {
		finish(sw, plane, operation, now);
		release(sw, plane, operation, now);
	}
	return true;
}

bool groups_take(struct scale_up_switch *sw, __u32 number, __u64 now)
{
	struct frame *frame = &sw->pool.frames[number];
	struct switch_port *port = &sw->ports[frame->port];
	const __u8 *data = frame_bytes(&sw->pool, number);
	__u32 source, destination, kind = data[17] >> 5 & 3;
	struct request request;

	if (!transaction_ends(data, frame->length, &source, &destination) || source != frame->port % sw->config.gpus)
		return false;
	if (kind == UALINK_RESPONSE && destination == SWITCH_ID && sw->config.gpus <= SWITCH_ID) {
		if (!take_answer(sw, number, now))
			port->link.counters.refused++;
		drop(sw, number);
		return true;
	}
	if (kind != UALINK_REQUEST || frame->poisoned)
		return false;
	request = get_request(data + BODY_AT);
	if (request.command != COMMAND_MULTICAST && request.command != COMMAND_REDUCE && request.command != COMMAND_JOIN)
		return false;
	if (port->held_back.count || plane_of(sw, frame->port)->open == OPEN_OPERATIONS)
		frame_append(&sw->pool, &port->held_back, number);
	else
		start(sw, number, frame->due_ns, now);
	return true;
}

/* ------------------------------------------------------------------ what goes out */

/* A frame of the switch's own, which is due to leave since `ready_ns`. */
static void send(struct scale_up_switch *sw, __u32 number, __u32 frame, __u32 vc, __u32 length, __u64 ready_ns, __u64 now)
{
	struct switch_port *port = &sw->ports[number];

	sw->pool.frames[frame].length = length;
	sw->pool.frames[frame].vc = vc;
	sw->pool.frames[frame].due_ns = ready_ns;
	wire_seal(frame_bytes(&sw->pool, frame), length, false);
	histogram_record(&sw->lateness, now - link_sent(&port->link, vc, length, ready_ns));
	link_number(&port->link, &sw->pool, frame, now);
	switch_send_out(sw, number, frame);
}

/* A frame for what the link takes now; NO_FRAME: it does not, or there is none, until `resumes_ns`. */
static __u32 take_to_send(struct scale_up_switch *sw, struct switch_port *port, __u32 vc, __u32 length, __u64 now, __u64 *resumes_ns)
{
	__u32 frame;

	if (!link_may_send(&port->link, vc, length, now)) {
		port->link.blocked |= 1u << vc;
		*resumes_ns = earlier(*resumes_ns, link_resumes_ns(&port->link, vc, now));
		return NO_FRAME;
	}
	frame = frame_take(&sw->pool);
	if (frame == NO_FRAME)
		*resumes_ns = earlier(*resumes_ns, now + NO_FRAME_NS);
	return frame;
}

static bool send_copy(struct scale_up_switch *sw, __u32 number, struct copy_ring *ring, __u64 now, __u64 *resumes_ns)
{
	struct switch_port *port = &sw->ports[number];
	struct plane_groups *plane = plane_of(sw, number);
	struct group_operation *operation;
	struct request request;
	__u32 frame, length, place;
	__u8 *data;

	for (; ring->count; ring->first = (ring->first + 1) % OPEN_OPERATIONS, ring->count--) {
		place = ring->operation[ring->first];
		operation = &plane->operations[place];
		if (!operation->over && is_awaited(operation, number % sw->config.gpus))
			break;
		if (is_awaited(operation, number % sw->config.gpus))
			stop_awaiting(sw, operation, number % sw->config.gpus, now);
		copy_done(sw, plane, operation, now);
	}
	if (!ring->count)
		return false;
	request = operation->request;
	if (request.command == COMMAND_REDUCE && port->reads >= most_reads(sw, &port->link))
		return false; /* an answer wakes the port */
	length = BODY_AT + REQUEST_BYTES + (request.command == COMMAND_MULTICAST ? operation->bytes : 0) + FCS_BYTES;
	if ((frame = take_to_send(sw, port, operation->vc, length, now, resumes_ns)) == NO_FRAME)
		return false;
	data = frame_bytes(&sw->pool, frame);
	wire_start(data, port->link.config.peer, port->link.config.mac, UALINK_REQUEST, operation->vc);
	memset(data + BODY_AT, 0, REQUEST_BYTES);
	if (request.command == COMMAND_MULTICAST)
		memcpy(data + BODY_AT + REQUEST_BYTES, frame_bytes(&sw->pool, operation->frame) + BODY_AT + REQUEST_BYTES, operation->bytes);
	request.command = request.command == COMMAND_MULTICAST ? COMMAND_WRITE : COMMAND_READ;
	request.attributes &= 0xf;
	request.tag = operation->round * OPEN_OPERATIONS + place;
	request.source = SWITCH_ID;
	request.destination = number % sw->config.gpus;
	put_request(data + BODY_AT, &request);
	send(sw, number, frame, operation->vc, length,
	     request.command == COMMAND_READ ? later(operation->ready_ns, port->asks_ns) : operation->ready_ns, now);
	operation->asked[request.destination / 64] |= 1ull << request.destination % 64;
	port->reads += request.command == COMMAND_READ;
	ring->first = (ring->first + 1) % OPEN_OPERATIONS;
	ring->count--;
	copy_done(sw, plane, operation, now);
	return true;
}

/* Take the next answer of a port; it is answered. */
static void shift_answer(struct scale_up_switch *sw, __u32 number, __u64 now)
{
	struct switch_port *port = &sw->ports[number];
	struct plane_groups *plane = plane_of(sw, number);
	struct group_operation *operation = &plane->operations[port->answers_first];

	port->answers_first = operation->next;
	if (port->answers_first == NO_OPERATION)
		port->answers_last = NO_OPERATION;
	operation->answered = true;
	release(sw, plane, operation, now);
}

static bool send_answer(struct scale_up_switch *sw, __u32 number, __u64 now, __u64 *resumes_ns)
{
	struct switch_port *port = &sw->ports[number];
	struct plane_groups *plane = plane_of(sw, number);
	const struct group_operation *operation;
	struct response response;
	__u32 frame, bytes, length;
	__u8 *data;

	while (port->answers_first != NO_OPERATION && plane->operations[port->answers_first].epoch != port->link.epoch_came)
		shift_answer(sw, number, now); /* who asked is gone */
	if (port->answers_first == NO_OPERATION)
		return false;
	operation = &plane->operations[port->answers_first];
	bytes = operation->request.command == COMMAND_REDUCE && operation->status == STATUS_OK ? operation->bytes : 0;
	length = BODY_AT + RESPONSE_BYTES + bytes + FCS_BYTES;
	if ((frame = take_to_send(sw, port, operation->answer_vc, length, now, resumes_ns)) == NO_FRAME)
		return false;
	data = frame_bytes(&sw->pool, frame);
	response = (struct response){
		.vc = operation->answer_vc & 3,
		.tag = operation->request.tag,
		.status = operation->status,
		.is_write = operation->request.command != COMMAND_REDUCE,
		.source = SWITCH_ID,
		.destination = number % sw->config.gpus,
	};
	wire_start(data, port->link.config.peer, port->link.config.mac, UALINK_RESPONSE, operation->answer_vc);
	memset(data + BODY_AT, 0, RESPONSE_BYTES);
	put_response(data + BODY_AT, &response);
	memcpy(data + BODY_AT + RESPONSE_BYTES, plane->sums + (size_t)port->answers_first * sw->config.frame_bytes, bytes);
	send(sw, number, frame, operation->answer_vc, length, operation->ready_ns, now);
	shift_answer(sw, number, now);
	return true;
}

bool groups_serve(struct scale_up_switch *sw, __u32 number, __u64 now, __u64 *resumes_ns)
{
	return send_answer(sw, number, now, resumes_ns) || send_copy(sw, number, ring_of(sw, number, false), now, resumes_ns) ||
	       send_copy(sw, number, ring_of(sw, number, true), now, resumes_ns);
}

/* ------------------------------------------------------------------ what does not come */

void groups_discard(struct scale_up_switch *sw, __u32 number, __u64 now)
{
	struct switch_port *port = &sw->ports[number];
	struct plane_groups *plane = plane_of(sw, number);
	__u32 gpu = number % sw->config.gpus;

	if (!plane->open)
		return;
	while (port->answers_first != NO_OPERATION)
		shift_answer(sw, number, now);
	for (__u32 place = 0; place < OPEN_OPERATIONS; place++) {
		struct group_operation *operation = &plane->operations[place];
		if (!operation->used || !is_awaited(operation, gpu))
			continue;
		stop_awaiting(sw, operation, gpu, now);
		fail(sw, plane, operation, STATUS_UNREACHABLE, now);
		release(sw, plane, operation, now);
	}
	for (__u32 which = 0; which < RINGS; which++) {
		struct copy_ring *ring = ring_of(sw, number, which);
		while (ring->count) {
			struct group_operation *operation = &plane->operations[ring->operation[ring->first]];
			ring->first = (ring->first + 1) % OPEN_OPERATIONS;
			ring->count--;
			copy_done(sw, plane, operation, now);
		}
	}
}

/* Ends what nobody answers. Its place is free after as long again, when no late answer comes any more. */
static void expire(struct scale_up_switch *sw, struct plane_groups *plane, __u64 now)
{
	plane->due_ns = NEVER;
	for (__u32 place = 0; place < OPEN_OPERATIONS; place++) {
		struct group_operation *operation = &plane->operations[place];
		if (operation->used && operation->until_ns <= now) {
			if (!operation->over) {
				operation->until_ns = now + PATIENCE_NS + PATIENCE_DELAYS * sw->ports[operation->port].link.config.delay_ns;
				fail(sw, plane, operation, STATUS_BUSY, now);
			} else {
				release(sw, plane, operation, now);
				if (operation->used)
					operation->until_ns = now + PATIENCE_NS; /* its answer, or a copy, waits for credits */
			}
		}
		if (operation->used)
			plane->due_ns = earlier(plane->due_ns, operation->until_ns);
	}
}

void groups_expire(struct scale_up_switch *sw, __u64 now)
{
	for (__u32 plane = 0; plane < sw->config.planes; plane++) {
		if (sw->groups[plane].due_ns <= now)
			expire(sw, &sw->groups[plane], now);
	}
}

__u64 groups_next_timer(const struct scale_up_switch *sw)
{
	__u64 next = NEVER;

	for (__u32 plane = 0; plane < sw->config.planes; plane++)
		next = earlier(next, sw->groups[plane].due_ns);
	return next;
}
