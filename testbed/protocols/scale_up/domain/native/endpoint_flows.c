/* What waits in an endpoint for a plane: a queue for each peer and VC, so that none is held up by another's first. What
 * the switch is to add up has one of its own beside what it is to copy: the one waits for the members' links to the
 * switch, the other for those from it. */
#include <stdlib.h>

#include "endpoint.h"
#include "switch_groups.h"

static __u32 words_of(const struct endpoint *endpoint)
{
	return (endpoint->flow_count + 63) / 64;
}

/* Of the queues of a VC. */
static __u32 peers_of(const struct endpoint *endpoint)
{
	return endpoint->config.gpus + 1;
}

static __u32 peer_of(const struct endpoint *endpoint, const struct tag *tag)
{
	return endpoint->operations[tag->operation].kind == OP_REDUCE ? endpoint->config.gpus : tag->peer;
}

/* How many may be without an answer, of a plane; 0: no limit. Requests to add up are short: if all went at once they
 * would wait in the switch, and take the credits that a frame to be copied needs. Half of what the switch does at a time
 * is shared out. */
static __u32 window_of(const struct endpoint *endpoint, __u32 peer)
{
	__u32 share = OPEN_OPERATIONS / 2 / endpoint->config.gpus;

	if (peer < endpoint->config.gpus)
		return endpoint->config.peer_window;
	return share < 4 ? 4 : share > 32 ? 32 : share;
}

static __u32 flow_to(const struct endpoint *endpoint, const struct operation *operation, __u32 peer)
{
	return operation->vc * peers_of(endpoint) + (operation->kind == OP_REDUCE ? endpoint->config.gpus : peer);
}

static __u32 flow_of(const struct endpoint *endpoint, const struct tag *tag)
{
	return flow_to(endpoint, &endpoint->operations[tag->operation], tag->peer);
}

bool flows_init(struct endpoint *endpoint)
{
	endpoint->flow_count = LINK_VCS * peers_of(endpoint);
	endpoint->stuck = calloc(words_of(endpoint), sizeof(__u64));
	for (__u32 number = 0; number < endpoint->config.planes; number++) {
		struct plane *plane = &endpoint->planes[number];
		plane->flows = calloc(endpoint->flow_count, sizeof(*plane->flows));
		plane->busy = calloc(words_of(endpoint), sizeof(__u64));
		plane->open = calloc(peers_of(endpoint), sizeof(*plane->open));
		if (!plane->flows || !plane->busy || !plane->open)
			return false;
	}
	return endpoint->stuck;
}

void flows_free(struct endpoint *endpoint)
{
	for (__u32 number = 0; endpoint->planes && number < endpoint->config.planes; number++) {
		free(endpoint->planes[number].flows);
		free(endpoint->planes[number].busy);
		free(endpoint->planes[number].open);
	}
	free(endpoint->stuck);
}

bool flow_is_full(const struct endpoint *endpoint, const struct operation *operation, __u32 peer, __u32 plane)
{
	return endpoint->planes[plane].flows[flow_to(endpoint, operation, peer)].count >= WAITING;
}

bool flow_is_stuck(const struct endpoint *endpoint, const struct operation *operation)
{
	for (__u32 way = 0; way < operation->ways; way++) {
		__u32 flow = flow_to(endpoint, operation, operation->peer + way);
		if (endpoint->stuck[flow / 64] >> flow % 64 & 1)
			return true;
	}
	return false;
}

void flow_set_stuck(struct endpoint *endpoint, const struct operation *operation)
{
	for (__u32 way = 0; way < operation->ways; way++) {
		__u32 flow = flow_to(endpoint, operation, operation->peer + way);
		endpoint->stuck[flow / 64] |= 1ull << flow % 64;
	}
}

void flows_unstick(struct endpoint *endpoint)
{
	for (__u32 word = 0; word < words_of(endpoint); word++)
		endpoint->stuck[word] = 0;
}

void flow_append(struct endpoint *endpoint, __u32 number)
{
	struct tag *tag = &endpoint->tags[number];
	struct plane *plane = &endpoint->planes[tag->plane];
	__u32 flow = flow_of(endpoint, tag);

	tag_append(endpoint, &plane->flows[flow], number, TAG_WAITING);
	plane->busy[flow / 64] |= 1ull << flow % 64;
	plane->waiting++;
}

static void take(struct endpoint *endpoint, struct plane *plane, __u32 flow)
{
	struct tag_list *list = &plane->flows[flow];

	tag_remove(endpoint, list, list->first);
	if (!list->count)
		plane->busy[flow / 64] &= ~(1ull << flow % 64);
	plane->waiting--;
}

/* The flow at or after `from` that has something, round; `flow_count`: none has. */
static __u32 next_busy(const struct endpoint *endpoint, const struct plane *plane, __u32 from)
{
	__u32 words = words_of(endpoint);

	for (__u32 i = 0; i <= words; i++) {
		__u32 word = (from / 64 + i) % words;
		__u64 bits = plane->busy[word];
		if (i == 0)
			bits &= ~0ull << from % 64;
		if (bits)
			return word * 64 + __builtin_ctzll(bits);
	}
	return endpoint->flow_count;
}

__u32 flows_first(struct endpoint *endpoint, struct plane *plane)
{
	__u32 flow = next_busy(endpoint, plane, 0);

	if (flow == endpoint->flow_count)
		return NO_TAG;
	flow = plane->flows[flow].first;
	take(endpoint, plane, flow_of(endpoint, &endpoint->tags[flow]));
	return flow;
}

__u32 flows_next(struct endpoint *endpoint, struct plane *plane, __u64 now, __u64 *resumes_ns)
{
	__u32 flow = (plane->last_flow + 1) % endpoint->flow_count, first = endpoint->flow_count;

	while ((flow = next_busy(endpoint, plane, flow)) != first && flow != endpoint->flow_count) {
		__u32 number = plane->flows[flow].first, vc = flow / peers_of(endpoint), peer = flow % peers_of(endpoint);
		__u32 window = window_of(endpoint, peer);
		bool has_room = !window || plane->open[peer] < window;
		if (first == endpoint->flow_count)
			first = flow;
		if (has_room && endpoint_may_send(plane, vc, endpoint_request_bytes(endpoint, number), endpoint->tags[number].ready_ns,
						  now, resumes_ns)) {
			plane->last_flow = flow;
			return number;
		}
		flow = (flow + 1) % endpoint->flow_count;
	}
	return NO_TAG;
}

void flow_sent(struct endpoint *endpoint, __u32 number)
{
	struct tag *tag = &endpoint->tags[number];
	struct plane *plane = &endpoint->planes[tag->plane];

	take(endpoint, plane, flow_of(endpoint, tag));
	plane->open[peer_of(endpoint, tag)]++;
	tag_append(endpoint, &endpoint->sent, number, TAG_SENT);
}

void flow_unsend(struct endpoint *endpoint, __u32 number, __u64 now)
{
	const struct tag *tag = &endpoint->tags[number];
	struct plane *plane = &endpoint->planes[tag->plane];
	__u32 peer = peer_of(endpoint, tag);

	tag_remove(endpoint, &endpoint->sent, number);
	if (window_of(endpoint, peer) && plane->open[peer] == window_of(endpoint, peer)) {
		/* What waited for this could not begin before. */
		for (__u32 flow = peer; flow < endpoint->flow_count; flow += peers_of(endpoint)) {
			if (plane->flows[flow].count)
				endpoint->tags[plane->flows[flow].first].ready_ns = now;
		}
		endpoint->wake_ns = 0;
	}
	plane->open[peer]--;
}
