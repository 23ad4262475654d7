/* Max-min fair rates of flows that come and go, of which only those are computed anew that a change reaches.
 *
 * It is `testbed.workload.oracles.fair_shares` in C, where the theory and the names stand: a change of one of 24,576
 * flows reaches some hundred, each of a dozen links, and a training step has a hundred thousand changes. */
#ifndef TESTBED_FLOW_SHARES_H
#define TESTBED_FLOW_SHARES_H

#include "filling.h"

#define MOST_OF_ALL 0.5
#define PATIENCE 3
#define GROWTH 2
#define LEAST_GROWN 64

/* --- who else is reached ------------------------------------------------------------------------------------------ */

static int is_full(const struct link *link)
{
	return link->load >= link->capacity * (1 - CLOSE);
}

static int add_more(struct shares *self, int32_t number)
{
	struct flow *flow = &self->flows[number];

	if (flow->joined == self->turn)
		return 0;
	flow->joined = self->turn; /* it will be at work */
	flow->rate_before = flow->rate;
	return push(&self->more, number);
}

/* Find the flows beside those at work that have no bottleneck any longer, or are faster at one of a flow at work. */
static int find_unfair(struct shares *self, int32_t parts)
{
	self->more.count = 0;
	for (int32_t index = 0; index < parts; index++) {
		const struct part *part = &self->parts[index];
		const struct link *link = &self->links[part->link];
		double slowest = INFINITY;

		if (part->all == link->count)
			continue;
		for (int32_t number = link->held; number != NOBODY; number = self->flows[number].held_after) {
			const struct flow *flow = &self->flows[number];

			if (flow->filled == self->filling)
				slowest = flow->rate < slowest ? flow->rate : slowest;
			else if (!is_full(link) || part->fastest > flow->rate * (1 + CLOSE))
				if (add_more(self, number))
					return -1;
		}
		if (isinf(slowest))
			continue;
		for (int32_t place = 0; place < link->count; place++) {
			const struct flow *flow = &self->flows[link->on[place].flow];

			if (flow->filled != self->filling && flow->rate > slowest * (1 + CLOSE) + 1e-30)
				if (add_more(self, link->on[place].flow))
					return -1;
		}
	}
	return 0;
}

static int join_more(struct shares *self)
{
	for (int32_t index = 0; index < self->more.count; index++)
		if (push(&self->work, self->more.at[index]))
			return -1;
	return 0;
}

/* Have the flows join that are found and, where these are few, the faster ones that share a full link with them, and so
 * on: a change may go from flow to flow along a chain. */
static int widen(struct shares *self)
{
	int32_t most = GROWTH * self->work.count > LEAST_GROWN ? GROWTH * self->work.count : LEAST_GROWN;
	struct numbers swapped;

	if (join_more(self))
		return -1;
	self->edge.count = 0;
	for (int32_t index = 0; index < self->more.count; index++)
		if (push(&self->edge, self->more.at[index]))
			return -1;
	while (self->edge.count && self->work.count < most) {
		self->near.count = 0;
		for (int32_t index = 0; index < self->edge.count; index++) {
			const struct flow *flow = &self->flows[self->edge.at[index]];
			double least = flow->rate * (1 - CLOSE);

			for (int32_t place = 0; place < flow->count; place++) {
				const struct link *link = &self->links[flow->entries[place].link];

				if (!is_full(link) || link->count > most)
					continue;
				for (int32_t user = 0; user < link->count; user++) {
					int32_t number = link->on[user].flow, before = self->work.count;

					if (self->flows[number].rate < least)
						continue;
					if (join(self, number))
						return -1;
					if (self->work.count > before && push(&self->near, number))
						return -1;
				}
				if (self->work.count >= most)
					return 0;
			}
		}
		swapped = self->edge;
		self->edge = self->near;
		self->near = swapped;
	}
	return 0;
}

static int join_all(struct shares *self)
{
	for (int32_t number = 0; number < self->flows_count; number++)
		if (self->flows[number].entries && join(self, number))
			return -1;
	return 0;
}

/* Give a flow that shares no link with another all that its links have; whether it is one. */
static int give_alone(struct shares *self, int32_t number)
{
	struct flow *flow = &self->flows[number];
	double rate = INFINITY;
	int32_t slowest = 0;

	for (int32_t place = 0; place < flow->count; place++) {
		const struct link *link = &self->links[flow->entries[place].link];
		double allowed = link->capacity / flow->entries[place].weight;

		if (link->count > 1)
			return 0;
		if (allowed < rate) {
			rate = allowed;
			slowest = place;
		}
	}
	flow->joined = self->turn;
	flow->rate_before = flow->rate;
	flow->rate = rate > FASTEST ? FASTEST : rate;
	for (int32_t place = 0; place < flow->count; place++)
		self->links[flow->entries[place].link].load = flow->entries[place].weight * flow->rate;
	hold(self, number, flow->entries[slowest].link);
	return 1;
}

/* Have a flow go on at its new rate from now, or from its own begin if that is later. */
static void go_on(struct shares *self, int32_t number, double now_s)
{
	struct flow *flow = &self->flows[number];

	if (flow->rate == flow->rate_before)
		return;
	if (flow->rate_before > 0 || flow->since < now_s) {
		flow->left -= (now_s - flow->since) * flow->rate_before;
		if (flow->left < 0)
			flow->left = 0;
		flow->since = now_s;
	}
	set_due(self, number, flow->rate > 0 ? flow->since + flow->left / flow->rate : INFINITY);
}

/* Make all rates max-min fair again; how many flows were looked at, -1 without memory. */
static long settle(struct shares *self, double now_s)
{
	long alone = 0;

	self->turn++;
	self->work.count = 0;
	for (int32_t index = 0; index < self->new.count; index++) {
		int32_t number = self->new.at[index];
		struct flow *flow = &self->flows[number];

		if (!flow->entries || flow->joined == self->turn)
			continue;
		if (give_alone(self, number)) {
			alone++;
			go_on(self, number, now_s);
			continue;
		}
		if (join(self, number))
			return -1;
		for (int32_t place = 0; place < flow->count; place++)
			if (join_held(self, flow->entries[place].link))
				return -1;
	}
	for (int32_t index = 0; index < self->changed.count; index++)
		if (join_held(self, self->changed.at[index]))
			return -1;
	self->new.count = self->changed.count = 0;
	for (int turns = 1; self->work.count; turns++) {
		int32_t parts;

		if (self->work.count > MOST_OF_ALL * self->there && join_all(self))
			return -1;
		parts = fill(self);
		if (parts < 0)
			return -1;
		if (self->work.count == self->there)
			break;
		if (find_unfair(self, parts))
			return -1;
		if (!self->more.count)
			break;
		if (turns < PATIENCE ? join_more(self) : widen(self))
			return -1;
	}
	for (int32_t index = 0; index < self->work.count; index++)
		go_on(self, self->work.at[index], now_s);
	return alone + self->work.count;
}

/* --- flows that come, end and go ------------------------------------------------------------------------------------ */

static int32_t new_number(struct shares *self)
{
	int32_t number = self->flows_count, room, blocks;
	void *found;

	if (self->free.count)
		return self->free.at[--self->free.count];
	if (number == self->flows_room) {
		room = number ? 2 * number : 4 * BLOCK;
		blocks = room / BLOCK;
		if (!(found = realloc(self->flows, room * sizeof(*self->flows))))
			return NOBODY;
		self->flows = found;
		if (!(found = realloc(self->due, room * sizeof(*self->due))))
			return NOBODY;
		self->due = found;
		if (!(found = realloc(self->block_due, blocks * sizeof(*self->block_due))))
			return NOBODY;
		self->block_due = found;
		if (!(found = realloc(self->block_stale, blocks)))
			return NOBODY;
		self->block_stale = found;
		for (int32_t index = number; index < room; index++)
			self->due[index] = INFINITY;
		for (int32_t index = number / BLOCK; index < blocks; index++) {
			self->block_due[index] = INFINITY;
			self->block_stale[index] = 0;
		}
		memset(self->flows + number, 0, (room - number) * sizeof(*self->flows));
		self->flows_room = room;
	}
	self->flows_count++;
	return number;
}

static int remove_flow(struct shares *self, int32_t number)
{
	struct flow *flow = &self->flows[number];

	for (int32_t place = 0; place < flow->count; place++) {
		struct link *link = &self->links[flow->entries[place].link];

		leave(self, &flow->entries[place]);
		link->load = link->count ? link->load - flow->entries[place].weight * flow->rate : 0.0;
		if (push(&self->changed, flow->entries[place].link))
			return -1;
	}
	release(self, number);
	free(flow->entries);
	flow->entries = NULL;
	flow->rate = 0.0;
	set_due(self, number, INFINITY);
	self->there--;
	return push(&self->free, number);
}

static int add_flow(struct shares *self, int32_t number, const int64_t *links, const double *weights, int32_t count)
{
	struct flow *flow = &self->flows[number];
	struct entry *entries = malloc(count * sizeof(*entries));

	*flow = (struct flow){.bottleneck = NOBODY};
	if (!entries)
		return -1;
	flow->entries = entries;
	for (int32_t place = 0; place < count; place++) {
		entries[place] = (struct entry){.weight = weights[place], .link = (int32_t)links[place]};
		if (use(self, number, place))
			return -1; /* the object is of no use any more, but whole enough to be freed */
		flow->count++;
	}
	return push(&self->new, number);
}

static int32_t blocks(const struct shares *self)
{
	return (self->flows_count + BLOCK - 1) / BLOCK;
}

static double due_of_block(struct shares *self, int32_t block)
{
	if (self->block_stale[block]) {
		double first = INFINITY;

		for (int32_t number = block * BLOCK; number < (block + 1) * BLOCK; number++)
			first = self->due[number] < first ? self->due[number] : first;
		self->block_due[block] = first;
		self->block_stale[block] = 0;
	}
	return self->block_due[block];
}

#endif
