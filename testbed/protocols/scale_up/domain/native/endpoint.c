/* A GPU's end of a scale-up domain: operations, their transactions, and what goes out of each plane. */
#include "endpoint.h"

#include <stdlib.h>
#include <string.h>


#define OUT_AT_ONCE 32
#define RETRY_NS 50000 /* after the pool had no frame */
#define NO_OPERATION (~0u)
#define LOOK_AT 64 /* operations that are not yet cut up */

/* ------------------------------------------------------------------ beginning and end */

static __u32 most_responses(const struct endpoint_config *config)
{
	return config->responses ? config->responses : RESPONSES;
}

static bool in_range(const struct endpoint_config *config)
{
	__u32 least = BODY_AT + REQUEST_BYTES + FCS_BYTES + config->coarse * REGION_BYTES;

	return config->gpus <= MOST_PEERS && config->gpu < config->gpus && config->planes && config->planes <= PLANES &&
	       config->request_vc < LINK_VCS && config->response_vc < LINK_VCS && config->coarse && config->coarse <= 64 &&
	       config->outstanding && config->outstanding <= TAGS && config->frame_bytes >= least && config->timeout_ns &&
	       config->responses <= MOST_RESPONSES && config->frames >= config->planes * (4 * most_responses(config) + 64) &&
	       config->spray <= SPRAY_PINNED;
}

struct endpoint *endpoint_new(const struct endpoint_config *config, const struct link_config *links, __u64 now)
{
	struct endpoint *endpoint;

	if (!in_range(config) || !(endpoint = calloc(1, sizeof(*endpoint))))
		return NULL;
	endpoint->config = *config;
	endpoint->planes = calloc(config->planes, sizeof(*endpoint->planes));
	endpoint->queue_first = endpoint->queue_last = NO_OPERATION;
	if (!endpoint->planes || !flows_init(endpoint) || !frame_pool_init(&endpoint->pool, config->frames, config->frame_bytes)) {
		endpoint_free(endpoint);
		return NULL;
	}
	for (__u32 plane = 0; plane < config->planes; plane++) {
		struct link_port *link = &endpoint->planes[plane].link;
		if (!link_init(link, &links[plane], now) || link->config.vcs <= config->request_vc ||
		    link->config.vcs <= config->response_vc) {
			endpoint_free(endpoint);
			return NULL;
		}
	}
	for (__u32 tag = 0; tag < config->outstanding; tag++)
		tag_append(endpoint, &endpoint->free_tags, tag, TAG_FREE);
	endpoint_spread(endpoint);
	return endpoint;
}

void endpoint_free(struct endpoint *endpoint)
{
	if (!endpoint)
		return;
	for (__u32 window = 0; window < WINDOWS; window++)
		window_forget(&endpoint->windows[window]);
	frame_pool_close(&endpoint->pool);
	for (__u32 plane = 0; endpoint->planes && plane < endpoint->config.planes; plane++)
		link_close(&endpoint->planes[plane].link);
	flows_free(endpoint);
	free(endpoint->planes);
	free(endpoint);
}

/* ------------------------------------------------------------------ windows */

int endpoint_export(struct endpoint *endpoint, __u8 *base, __u64 size, __u32 key, __u32 rights)
{
	if (!base || !size || size >> OFFSET_BITS || key >> KEY_BITS)
		return -1;
	for (int window = 0; window < WINDOWS; window++) {
		if (!endpoint->windows[window].base) {
			endpoint->windows[window] = (struct memory_window){
				.base = base, .size = size, .key = key, .rights = rights};
			return window;
		}
	}
	return -1;
}

int endpoint_export_at(struct endpoint *endpoint, __u32 window, __u8 *base, __u64 size, __u32 key, __u32 rights)
{
	if (!base || !size || size >> OFFSET_BITS || key >> KEY_BITS || window >= WINDOWS || endpoint->windows[window].base)
		return -1;
	endpoint->windows[window] = (struct memory_window){.base = base, .size = size, .key = key, .rights = rights};
	return window;
}

int endpoint_authorise(struct endpoint *endpoint, __u32 window, __u32 peer, bool may)
{
	__u64 *word;

	if (window >= WINDOWS || !endpoint->windows[window].base || (peer >= endpoint->config.gpus && peer != SWITCH_ID))
		return -1;
	word = &endpoint->windows[window].peers[peer / 64];
	*word = may ? *word | 1ull << peer % 64 : *word & ~(1ull << peer % 64);
	return 0;
}

void endpoint_withdraw(struct endpoint *endpoint, __u32 window)
{
	if (window < WINDOWS)
		window_forget(&endpoint->windows[window]);
}

/* ------------------------------------------------------------------ tags */

void tag_append(struct endpoint *endpoint, struct tag_list *list, __u32 number, enum tag_state state)
{
	struct tag *tag = &endpoint->tags[number];

	tag->state = state;
	tag->next = NO_TAG;
	tag->previous = list->count ? list->last : NO_TAG;
	if (list->count++)
		endpoint->tags[list->last].next = number;
	else
		list->first = number;
	list->last = number;
}

void tag_remove(struct endpoint *endpoint, struct tag_list *list, __u32 number)
{
	struct tag *tag = &endpoint->tags[number];

	if (tag->previous == NO_TAG)
		list->first = tag->next;
	else
		endpoint->tags[tag->previous].next = tag->next;
	if (tag->next == NO_TAG)
		list->last = tag->previous;
	else
		endpoint->tags[tag->next].previous = tag->previous;
	list->count--;
}

/* ------------------------------------------------------------------ operations */

/* An endpoint is no way of what it asks for: its own memory has no wire. */
static bool is_interleaved_soundly(const struct endpoint *endpoint, __u32 peer, __u64 ways, __u64 granule)
{
	if (ways == 1)
		return true;
	return ways && ways <= endpoint->config.gpus && peer + ways <= endpoint->config.gpus &&
	       (endpoint->config.gpu < peer || endpoint->config.gpu >= peer + ways) && granule && !(granule >> OFFSET_BITS) &&
	       granule % (endpoint->config.coarse * REGION_BYTES) == 0;
}

/* The peer that has the byte of an operation at `cut`, and the address that it has there. */
static __u32 place_of(const struct operation *operation, __u64 *remote)
{
	__u64 offset = *remote & ((1ull << OFFSET_BITS) - 1), granules;

	if (operation->ways == 1)
		return operation->peer;
	granules = offset / operation->granule;
	*remote += granules / operation->ways * operation->granule + offset % operation->granule - offset;
	return operation->peer + granules % operation->ways;
}

__u64 endpoint_begin(struct endpoint *endpoint, __u32 kind, __u32 peer, __u64 remote, __u8 *local, __u64 size,
		     __u32 element, const __u64 *operands, __u32 vc, __u64 now)
{
	struct operation *operation;
	__u32 number = endpoint->free_operation, tried = 0;
	bool is_atomic = kind == OP_ADD || kind == OP_CAS;
	bool has_ways = operands && (kind == OP_READ || kind == OP_WRITE || kind == OP_WRITE_FULL);
	__u64 ways = has_ways ? operands[0] : 1, granule = has_ways ? operands[1] : 0;

	if (vc == VC_OF_REQUESTS)
		vc = endpoint->config.request_vc;
	if (kind < OP_READ || kind > OP_JOIN || kind == OP_ARRIVED || (kind != OP_FENCE && (peer >= endpoint->config.gpus || !size)) ||
	    (is_atomic && (element != size || (size != 4 && size != 8) || remote % size)) ||
	    (kind == OP_WRITE_FULL && (size % 64 || remote % 64)) || ((peer == endpoint->config.gpu) != is_for_group(kind) && kind != OP_FENCE) ||
	    (is_for_group(kind) && (!operands || operands[0] > SWITCH_ID || size % 4 || remote % 4)) ||
	    (kind == OP_MESSAGE && size > endpoint->config.coarse * REGION_BYTES) || size >> OFFSET_BITS ||
	    vc >= endpoint->planes[0].link.config.vcs || !is_interleaved_soundly(endpoint, peer, ways, granule) ||
	    endpoint->completed - endpoint->arrived + endpoint->running + endpoint->queued >= OPERATIONS)
		return 0;
	while (endpoint->operations[number].used && tried++ < OPERATIONS)
		number = (number + 1) % OPERATIONS;
	operation = &endpoint->operations[number];
	if (operation->used)
		return 0;
	endpoint->free_operation = (number + 1) % OPERATIONS;
	*operation = (struct operation){
		.handle = ++endpoint->next_handle,
		.begun_ns = now,
		.remote = kind == OP_MESSAGE ? 0 : remote,
		.size = size,
		.local = local,
		.operand = {operands ? operands[0] : 0, operands ? operands[1] : 0},
		.kind = kind,
		.peer = peer,
		.ways = ways,
		.granule = granule,
		.element = element,
		.vc = vc,
		.next = NO_OPERATION,
		.used = true,
		.queued = true,
	};
	if (endpoint->queued++)
		endpoint->operations[endpoint->queue_last].next = number;
	else
		endpoint->queue_first = number;
	endpoint->queue_last = number;
	endpoint->wake_ns = 0;
	return operation->handle;
}

static void complete(struct endpoint *endpoint, struct operation *operation, __u64 now)
{
	__u32 place = (endpoint->completed_first + endpoint->completed++) % COMPLETIONS;

	endpoint->completions[place] = (struct completion){
		.handle = operation->handle,
		.result = operation->result,
		.begun_ns = operation->begun_ns,
		.ended_ns = now,
		.bytes = operation->size,
		.outcome = operation->outcome,
		.kind = operation->kind,
	};
	operation->used = false;
}

/* There is room for one of each window beside the operations. */
void endpoint_tell_arrival(struct endpoint *endpoint, __u32 window, __u64 now)
{
	__u32 place = (endpoint->completed_first + endpoint->completed) % COMPLETIONS;

	if (endpoint->arrived == WINDOWS)
		return;
	endpoint->arrived++;
	endpoint->completed++;
	endpoint->completions[place] = (struct completion){.handle = window, .ended_ns = now, .kind = OP_ARRIVED};
}

bool endpoint_completion(struct endpoint *endpoint, struct completion *completion)
{
	if (!endpoint->completed)
		return false;
	*completion = endpoint->completions[endpoint->completed_first];
	endpoint->completed_first = (endpoint->completed_first + 1) % COMPLETIONS;
	endpoint->completed--;
	endpoint->arrived -= completion->kind == OP_ARRIVED;
	return true;
}

static bool is_cut(const struct operation *operation)
{
	return operation->cut == operation->size || operation->outcome;
}

void endpoint_settle(struct endpoint *endpoint, __u32 number, __u32 outcome, __u64 now)
{
	struct tag *tag = &endpoint->tags[number];
	struct operation *operation = &endpoint->operations[tag->operation];

	if (outcome >= OUTCOME_TIMEOUT && tag->state == TAG_SENT) {
		/* Its answer may come yet: nobody else has the tag until then. */
		tag->until_ns = now + endpoint->config.timeout_ns;
		tag_append(endpoint, &endpoint->lost, number, TAG_LOST);
		endpoint->counters.lost_tags++;
	} else {
		tag_append(endpoint, &endpoint->free_tags, number, TAG_FREE);
	}
	if (outcome && !operation->outcome)
		operation->outcome = outcome;
	operation->open--;
	if (!operation->open && !operation->queued) {
		endpoint->running--;
		complete(endpoint, operation, now);
	}
	endpoint->wake_ns = 0;
}

enum cutting { CUT_ONE, CUT_FULL, CUT_STUCK };

/* One transaction more of an operation; it may have to wait for room, or for a plane that is down. */
static enum cutting cut(struct endpoint *endpoint, __u32 number, __u64 now)
{
	struct operation *operation = &endpoint->operations[number];
	__u64 remote = operation->remote + operation->cut, left = operation->size - operation->cut;
	__u32 peer = place_of(operation, &remote);
	__u32 span = endpoint->config.coarse * REGION_BYTES, bytes = span - remote % span, tag;
	int plane = endpoint_plane_of(endpoint, peer, remote);

	if (operation->kind == OP_JOIN)
		plane = operation->cut / span % endpoint->config.planes;
	if (plane < 0) {
		operation->outcome = OUTCOME_LINK_DOWN;
		return CUT_ONE;
	}
	if (endpoint->planes[plane].down)
		return CUT_STUCK;
	if (!endpoint->free_tags.count)
		return CUT_FULL;
	if (flow_is_full(endpoint, operation, peer, plane))
		return CUT_STUCK;
	if (bytes > left)
		bytes = left;
	tag = endpoint->free_tags.first;
	tag_remove(endpoint, &endpoint->free_tags, tag);
	endpoint->tags[tag] = (struct tag){
		.remote = remote,
		.ready_ns = now,
		.local = operation->local + operation->cut,
		.bytes = bytes,
		.operation = number,
		.plane = plane,
		.peer = peer,
	};
	flow_append(endpoint, tag);
	operation->cut += bytes;
	operation->open++;
	return CUT_ONE;
}

/* Take an operation that is cut up out of the queue; `before` is the one before it. */
static void leave_queue(struct endpoint *endpoint, __u32 number, __u32 before, __u64 now)
{
	struct operation *operation = &endpoint->operations[number];

	if (before == NO_OPERATION)
		endpoint->queue_first = operation->next;
	else
		endpoint->operations[before].next = operation->next;
	if (endpoint->queue_last == number)
		endpoint->queue_last = before;
	endpoint->queued--;
	operation->queued = false;
	if (operation->open)
		endpoint->running++;
	else
		complete(endpoint, operation, now);
}

/* Whether there was something to cut up. What holds an operation up holds up those behind it for the same peer and VC,
 * lest they overtake it, and a fence. */
static bool cut_operations(struct endpoint *endpoint, __u64 now)
{
	__u32 before = NO_OPERATION, number = endpoint->queue_first, next;
	__u32 left = endpoint->queued < LOOK_AT ? endpoint->queued : LOOK_AT;
	bool some = false;

	if (left)
		flows_unstick(endpoint);
	for (; left; left--, number = next) {
		struct operation *operation = &endpoint->operations[number];
		enum cutting result = CUT_ONE;
		next = operation->next;
		if (operation->kind == OP_FENCE && (endpoint->running || before != NO_OPERATION))
			break;
		if (!flow_is_stuck(endpoint, operation)) {
			while (!is_cut(operation) && (result = cut(endpoint, number, now)) == CUT_ONE)
				some = true;
		}
		if (is_cut(operation)) {
			leave_queue(endpoint, number, before, now);
			continue;
		}
		if (result == CUT_FULL)
			break;
		flow_set_stuck(endpoint, operation);
		before = number;
	}
	return some;
}

void endpoint_cancel(struct endpoint *endpoint, __u64 now)
{
	for (__u32 number = endpoint->queue_first, left = endpoint->queued; left; left--) {
		struct operation *operation = &endpoint->operations[number];
		operation->outcome = operation->outcome ? operation->outcome : OUTCOME_CANCELLED;
		number = operation->next;
	}
	endpoint_give_up(endpoint, OUTCOME_CANCELLED, now);
	cut_operations(endpoint, now);
}

static void expire(struct endpoint *endpoint, __u64 now)
{
	while (endpoint->sent.count && endpoint->tags[endpoint->sent.first].until_ns <= now) {
		__u32 tag = endpoint->sent.first;
		flow_unsend(endpoint, tag, now);
		endpoint_settle(endpoint, tag, OUTCOME_TIMEOUT, now);
	}
	while (endpoint->lost.count && endpoint->tags[endpoint->lost.first].until_ns <= now) {
		__u32 tag = endpoint->lost.first;
		tag_remove(endpoint, &endpoint->lost, tag);
		tag_append(endpoint, &endpoint->free_tags, tag, TAG_FREE);
	}
}

/* ------------------------------------------------------------------ what arrives */

void endpoint_arrive(struct endpoint *endpoint, __u32 plane, __u32 frame, __u64 now)
{
	link_arrive(&endpoint->planes[plane].link, &endpoint->pool, frame, now);
	endpoint->wake_ns = earlier(endpoint->wake_ns, link_next_timer(&endpoint->planes[plane].link, &endpoint->pool));
}

/* The time of the answers of full frames that an end without a limit of its memory would have waiting. */
static __u64 memory_ahead_ns(const struct endpoint *endpoint)
{
	return (__u64)(RESPONSES * REGION_BYTES * 8e9 * endpoint->config.coarse / endpoint->config.media_bps);
}

/* When the memory takes another request: what it has been asked for is bytes, however many frames they are. */
static __u64 memory_admits_ns(const struct endpoint *endpoint)
{
	__u64 ahead_ns = endpoint->config.media_bps ? memory_ahead_ns(endpoint) : 0;

	return endpoint->media_free_ns > ahead_ns ? endpoint->media_free_ns - ahead_ns : 0;
}

/* The first frame of a VC; false: it has to wait. */
static bool work_on(struct endpoint *endpoint, struct plane *plane, __u32 vc, __u64 now)
{
	__u32 number = plane->in[vc].first, length = endpoint->pool.frames[number].length, source, destination;
	const __u8 *data = frame_bytes(&endpoint->pool, number);
	bool sound = transaction_ends(data, length, &source, &destination) && !endpoint->pool.frames[number].poisoned &&
		     destination == endpoint->config.gpu;

	if (sound && (data[17] >> 5 & 3) == UALINK_REQUEST) {
		/* Two frames: a message is kept, too. */
		if (plane->responses.count >= most_responses(&endpoint->config) || endpoint->pool.free.count < 2 ||
		    memory_admits_ns(endpoint) > now)
			return false;
		endpoint_serve(endpoint, plane, number, now);
	} else if (sound && (data[17] >> 5 & 3) == UALINK_RESPONSE) {
		endpoint_take_response(endpoint, plane, number, now);
	} else {
		plane->link.counters.refused += !endpoint->pool.frames[number].poisoned;
	}
	frame_shift(&endpoint->pool, &plane->in[vc]);
	link_free(&plane->link, vc, length);
	frame_give(&endpoint->pool, number);
	return true;
}

/* Whether something could be worked on. */
static bool work_on_all(struct endpoint *endpoint, struct plane *plane, __u64 now)
{
	bool some = false;

	for (__u32 vc = 0; vc < plane->link.config.vcs; vc++) {
		while (plane->in[vc].count && work_on(endpoint, plane, vc, now))
			some = true;
	}
	return some;
}

static void take_in(struct endpoint *endpoint, struct plane *plane, __u64 now)
{
	__u32 frame;

	while ((frame = link_take(&plane->link, &endpoint->pool, now)) != NO_FRAME)
		frame_append(&endpoint->pool, &plane->in[endpoint->pool.frames[frame].vc], frame);
	work_on_all(endpoint, plane, now);
}

/* ------------------------------------------------------------------ what goes out */

static void send_out(struct endpoint *endpoint, struct plane *plane, __u32 frame)
{
	endpoint->pool.frames[frame].going = true;
	frame_append(&endpoint->pool, &plane->out, frame);
}

bool endpoint_may_send(struct plane *plane, __u32 vc, __u32 length, __u64 ready_ns, __u64 now, __u64 *resumes_ns)
{
	if (link_may_send(&plane->link, vc, length, now))
		return true;
	link_hold(&plane->link, vc, length, ready_ns, now);
	*resumes_ns = earlier(*resumes_ns, link_resumes_ns(&plane->link, vc, now));
	return false;
}

static bool send_response(struct endpoint *endpoint, struct plane *plane, __u64 now, __u64 *resumes_ns)
{
	__u32 number = plane->responses.first;
	const struct frame *frame;

	if (!plane->responses.count)
		return false;
	frame = &endpoint->pool.frames[number];
	if (frame->due_ns > now) {
		*resumes_ns = earlier(*resumes_ns, frame->due_ns);
		return false;
	}
	if (!endpoint_may_send(plane, frame->vc, frame->length, frame->due_ns, now, resumes_ns))
		return false;
	frame_shift(&endpoint->pool, &plane->responses);
	link_sent(&plane->link, frame->vc, frame->length, frame->due_ns);
	link_number(&plane->link, &endpoint->pool, number, now);
	send_out(endpoint, plane, number);
	plane->answered_last = true;
	return true;
}

static bool send_request(struct endpoint *endpoint, struct plane *plane, __u64 now, __u64 *resumes_ns)
{
	__u32 number = plane->waiting ? flows_next(endpoint, plane, now, resumes_ns) : NO_TAG, length, frame;
	struct tag *tag;

	if (number == NO_TAG)
		return false;
	tag = &endpoint->tags[number];
	length = endpoint_request_bytes(endpoint, number);
	frame = endpoint_make_request(endpoint, number);
	if (frame == NO_FRAME) {
		*resumes_ns = earlier(*resumes_ns, now + RETRY_NS);
		return false;
	}
	link_sent(&plane->link, endpoint->operations[tag->operation].vc, length, tag->ready_ns);
	tag->until_ns = now + endpoint->config.timeout_ns;
	flow_sent(endpoint, number);
	link_number(&plane->link, &endpoint->pool, frame, now);
	send_out(endpoint, plane, frame);
	plane->answered_last = false;
	return true;
}

static bool send_one(struct endpoint *endpoint, struct plane *plane, __u64 now, __u64 *resumes_ns)
{
	if (plane->answered_last)
		return send_request(endpoint, plane, now, resumes_ns) || send_response(endpoint, plane, now, resumes_ns);
	return send_response(endpoint, plane, now, resumes_ns) || send_request(endpoint, plane, now, resumes_ns);
}

static void send_own(struct endpoint *endpoint, struct plane *plane, __u64 now,
		     __u32 (*make)(struct link_port *, __u64, __u8 *))
{
	__u32 frame, length;

	while ((frame = frame_take(&endpoint->pool)) != NO_FRAME) {
		length = make(&plane->link, now, frame_bytes(&endpoint->pool, frame));
		if (!length) {
			frame_give(&endpoint->pool, frame);
			return;
		}
		endpoint->pool.frames[frame].length = length;
		send_out(endpoint, plane, frame);
	}
}

/* When the plane is to be looked at again. */
static __u64 put_out(struct endpoint *endpoint, struct plane *plane, __u64 now)
{
	__u64 next, resumes_ns;
	bool idle;
	__u32 frame;

	link_catch_up(&plane->link, now);
	if (!plane->link.said_ns) /* data before a greeting is not known to be of its epoch */
		send_own(endpoint, plane, now, link_control);
	send_own(endpoint, plane, now, link_cc_update);
	while (plane->out.count < OUT_AT_ONCE && (frame = link_replay(&plane->link, &endpoint->pool, now)) != NO_FRAME)
		send_out(endpoint, plane, frame);
	do {
		resumes_ns = NEVER;
		while (plane->link.free_ns <= now && plane->out.count < OUT_AT_ONCE && send_one(endpoint, plane, now, &resumes_ns))
			;
		idle = plane->link.free_ns <= now && plane->out.count < OUT_AT_ONCE;
	} while (work_on_all(endpoint, plane, now)); /* there was room for answers again */
	if (!plane->waiting && !plane->responses.count)
		link_wait_no_more(&plane->link, plane->link.waits, now);
	send_own(endpoint, plane, now, link_control);
	next = link_next_timer(&plane->link, &endpoint->pool);
	if (!idle && (plane->waiting || plane->responses.count))
		resumes_ns = later(now, plane->link.free_ns);
	return earlier(next, resumes_ns);
}

void endpoint_work(struct endpoint *endpoint, __u64 now)
{
	__u64 next = NEVER;

	if (endpoint->wake_ns > now)
		return;
	for (__u32 plane = 0; plane < endpoint->config.planes; plane++)
		take_in(endpoint, &endpoint->planes[plane], now);
	endpoint_watch(endpoint, now);
	expire(endpoint, now);
	cut_operations(endpoint, now);
	for (__u32 plane = 0; plane < endpoint->config.planes; plane++)
		next = earlier(next, put_out(endpoint, &endpoint->planes[plane], now));
	if (memory_admits_ns(endpoint) > now)
		next = earlier(next, memory_admits_ns(endpoint));
	if (endpoint->sent.count)
		next = earlier(next, endpoint->tags[endpoint->sent.first].until_ns);
	if (endpoint->forgiven_ns)
		next = earlier(next, endpoint->forgiven_ns);
	if (endpoint->lost.count)
		next = earlier(next, endpoint->tags[endpoint->lost.first].until_ns);
	if (cut_operations(endpoint, now)) /* places were made in the queues of planes */
		next = now;
	endpoint->wake_ns = next;
}

__u64 endpoint_next_timer(const struct endpoint *endpoint)
{
	return endpoint->wake_ns;
}
