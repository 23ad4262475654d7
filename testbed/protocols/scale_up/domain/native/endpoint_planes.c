/* Which plane a transaction takes, and what becomes of it when that plane goes down. */
#include "endpoint.h"

#define PAGE_BITS 21 /* PINNED: 2 MiB, as large pages are */
#define FORGIVEN_NS 500000000ull

static bool is_up(const struct endpoint *endpoint, __u32 peer, __u32 plane)
{
	return !endpoint->planes[plane].down && !(endpoint->unreachable[peer] >> plane & 1);
}

static __u64 weight_of(const struct endpoint *endpoint, __u32 plane)
{
	const struct plane *it = &endpoint->planes[plane];

	if (it->down)
		return 0;
	return endpoint->config.spray == SPRAY_WEIGHTED ? it->link.rate_bps : 1;
}

/* Regions take planes in turn, each as often as its weight says, and as evenly as that goes (smooth weighted round
 * robin: the plane that is most behind its share is next). */
static void spread(struct endpoint *endpoint)
{
	__s64 credit[PLANES] = {0}, total = 0;
	__u32 planes = endpoint->config.planes;

	for (__u32 plane = 0; plane < planes; plane++)
		total += endpoint->weights[plane];
	endpoint->spread = endpoint->config.spray == SPRAY_EQUAL ? planes * (SPREAD / planes) : SPREAD;
	for (__u32 place = 0; total && place < endpoint->spread; place++) {
		__u32 best = 0;
		for (__u32 plane = 0; plane < planes; plane++) {
			credit[plane] += endpoint->weights[plane];
			if (endpoint->weights[plane] && (!endpoint->weights[best] || credit[plane] > credit[best]))
				best = plane;
		}
		credit[best] -= total;
		endpoint->plane_at[place] = best;
	}
}

void endpoint_spread(struct endpoint *endpoint)
{
	bool changed = !endpoint->spread;

	for (__u32 plane = 0; plane < endpoint->config.planes; plane++) {
		__u64 weight = weight_of(endpoint, plane);
		changed |= weight != endpoint->weights[plane];
		endpoint->weights[plane] = weight;
	}
	if (changed)
		spread(endpoint);
}

/* One of those that are there, by number; -1: none is. */
static int one_of(const struct endpoint *endpoint, __u32 peer, __u64 number)
{
	__u32 up = 0;

	for (__u32 plane = 0; plane < endpoint->config.planes; plane++)
		up += is_up(endpoint, peer, plane);
	if (!up)
		return -1;
	up = number % up;
	for (__u32 plane = 0;; plane++) {
		if (is_up(endpoint, peer, plane) && !up--)
			return plane;
	}
}

int endpoint_plane_of(const struct endpoint *endpoint, __u32 peer, __u64 remote)
{
	__u64 region = remote / (endpoint->config.coarse * REGION_BYTES);
	__u32 plane;

	if (endpoint->config.spray == SPRAY_PINNED) {
		__u64 page = (remote & ((1ull << OFFSET_BITS) - 1)) >> PAGE_BITS;
		plane = (page + (remote >> (KEY_BITS + OFFSET_BITS))) % endpoint->config.planes;
		if (endpoint->unreachable[peer] >> plane & 1)
			return -1;
		return endpoint->planes[plane].down && one_of(endpoint, peer, 0) < 0 ? -1 : (int)plane;
	}
	plane = endpoint->plane_at[region % endpoint->spread];
	return is_up(endpoint, peer, plane) ? (int)plane : one_of(endpoint, peer, region / endpoint->spread + region);
}

/* Doing it twice is doing it once. */
static bool can_be_repeated(const struct operation *operation)
{
	return operation->kind == OP_READ || operation->kind == OP_WRITE || operation->kind == OP_WRITE_FULL ||
	       is_for_group(operation->kind);
}

/* A transaction that is in no list goes on by another plane, or ends. */
static void go_on(struct endpoint *endpoint, __u32 number, bool was_sent, __u64 now)
{
	struct tag *tag = &endpoint->tags[number];
	const struct operation *operation = &endpoint->operations[tag->operation];
	int plane = -1;

	if (!was_sent || can_be_repeated(operation))
		plane = endpoint_plane_of(endpoint, tag->peer, tag->remote);
	if (plane < 0) {
		endpoint_settle(endpoint, number, OUTCOME_LINK_DOWN, now);
		return;
	}
	endpoint->counters.moved += tag->plane != (__u32)plane;
	tag->plane = plane;
	tag->ready_ns = now;
	flow_append(endpoint, number);
	endpoint->wake_ns = 0;
}

void endpoint_unreachable(struct endpoint *endpoint, __u32 number, __u64 now)
{
	const struct tag *tag = &endpoint->tags[number];

	endpoint->unreachable[tag->peer] |= 1ull << tag->plane;
	if (!endpoint->forgiven_ns)
		endpoint->forgiven_ns = now + FORGIVEN_NS;
	go_on(endpoint, number, false, now); /* the switch says that it was not carried out */
}

static void leave(struct endpoint *endpoint, __u32 plane, __u64 now)
{
	__u32 left = endpoint->planes[plane].waiting, tag;
	__u16 next;

	while (left-- && (tag = flows_first(endpoint, &endpoint->planes[plane])) != NO_TAG)
		go_on(endpoint, tag, false, now);
	left = endpoint->sent.count;
	for (tag = endpoint->sent.first; left; tag = next, left--) {
		next = endpoint->tags[tag].next;
		if (endpoint->tags[tag].plane != plane)
			continue;
		flow_unsend(endpoint, tag, now);
		go_on(endpoint, tag, true, now);
	}
}

void endpoint_give_up(struct endpoint *endpoint, __u32 outcome, __u64 now)
{
	for (__u32 number = 0; number < endpoint->config.planes; number++) {
		__u32 tag;
		while ((tag = flows_first(endpoint, &endpoint->planes[number])) != NO_TAG)
			endpoint_settle(endpoint, tag, outcome, now);
	}
	while (endpoint->sent.count) {
		__u32 tag = endpoint->sent.first;
		flow_unsend(endpoint, tag, now);
		endpoint_settle(endpoint, tag, outcome, now);
	}
}

void endpoint_watch(struct endpoint *endpoint, __u64 now)
{
	__u64 gone = 0;

	if (endpoint->forgiven_ns && endpoint->forgiven_ns <= now) {
		endpoint->forgiven_ns = 0;
		for (__u32 peer = 0; peer < endpoint->config.gpus; peer++)
			endpoint->unreachable[peer] = 0;
	}
	for (__u32 number = 0; number < endpoint->config.planes; number++) {
		struct plane *plane = &endpoint->planes[number];
		bool was_down = plane->down;
		plane->down = link_watch(&plane->link, now);
		gone |= (__u64)(plane->down && !was_down) << number;
	}
	endpoint_spread(endpoint);
	for (__u32 number = 0; gone; number++, gone >>= 1) {
		if (gone & 1)
			leave(endpoint, number, now);
	}
}
