/* Progressive filling of some flows into what all others leave of their links.
 *
 * The links are in a heap, the one first that is full at the lowest rate: each link of each flow is touched once. Levels
 * of links only rise while flows at lower ones are taken out, so that a link which is found first is looked at again,
 * and put back where it has risen. */
#ifndef TESTBED_FLOW_FILLING_H
#define TESTBED_FLOW_FILLING_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE 1e-9
#define BLOCK 64 /* flows whose earliest end is kept together */
#define FASTEST 1e300
#define NOBODY (-1)

struct entry { /* the use that a flow makes of a link */
	double weight;
	int32_t link;
	int32_t place; /* in the link's `on` */
};

struct user {
	int32_t flow;
	int32_t entry; /* of the flow */
};

struct flow {
	struct entry *entries; /* NULL: it is not there */
	int32_t count;
	int32_t bottleneck;
	int32_t held_before, held_after; /* in the list of its bottleneck */
	int32_t is_open; /* its rate is still to be found in this filling */
	uint32_t joined; /* the turn of `settle` in which it has been looked at */
	uint32_t filled; /* the filling that it was last in */
	double rate, rate_before;
	double left, since; /* bits that were left at that time (s) */
	long long step;
};

struct link {
	double capacity, load;
	struct user *on;
	int32_t count, room;
	int32_t held; /* the first of the flows whose bottleneck it is */
	int32_t here; /* its place among the links of a filling */
	uint32_t filled; /* the filling that it was last in */
};

struct part { /* a link in a filling */
	double residual, demand, others, used, fastest;
	int32_t link, open, all, first;
};

struct level {
	double rate;
	int32_t part;
};

struct numbers {
	int32_t *at;
	int32_t count, room;
};

struct shares {
	struct link *links;
	struct flow *flows;
	double *due; /* when each flow ends, by its number */
	double *block_due;
	char *block_stale;
	struct part *parts;
	struct level *heap;
	int32_t *cells; /* the flows at each part, one part after another */
	int32_t links_count, flows_count, flows_room, there, parts_room, cells_room;
	uint32_t turn, filling;
	struct numbers free, new, changed, work, more, edge, near;
};

static int push(struct numbers *numbers, int32_t number)
{
	if (numbers->count == numbers->room) {
		int32_t room = numbers->room ? 2 * numbers->room : 64;
		int32_t *at = realloc(numbers->at, room * sizeof(*at));

		if (!at)
			return -1;
		numbers->at = at;
		numbers->room = room;
	}
	numbers->at[numbers->count++] = number;
	return 0;
}

/* --- links and the flows that they hold back ---------------------------------------------------------------------- */

static void release(struct shares *self, int32_t number)
{
	struct flow *flow = &self->flows[number];

	if (flow->bottleneck == NOBODY)
		return;
	if (flow->held_before == NOBODY)
		self->links[flow->bottleneck].held = flow->held_after;
	else
		self->flows[flow->held_before].held_after = flow->held_after;
	if (flow->held_after != NOBODY)
		self->flows[flow->held_after].held_before = flow->held_before;
	flow->bottleneck = NOBODY;
}

static void hold(struct shares *self, int32_t number, int32_t link)
{
	struct flow *flow = &self->flows[number];
	int32_t first = self->links[link].held;

	if (flow->bottleneck == link)
		return;
	release(self, number);
	flow->bottleneck = link;
	flow->held_before = NOBODY;
	flow->held_after = first;
	if (first != NOBODY)
		self->flows[first].held_before = number;
	self->links[link].held = number;
}

static int use(struct shares *self, int32_t number, int32_t index)
{
	struct entry *entry = &self->flows[number].entries[index];
	struct link *link = &self->links[entry->link];

	if (link->count == link->room) {
		int32_t room = link->room ? 2 * link->room : 4;
		struct user *on = realloc(link->on, room * sizeof(*on));

		if (!on)
			return -1;
		link->on = on;
		link->room = room;
	}
	entry->place = link->count;
	link->on[link->count++] = (struct user){number, index};
	return 0;
}

static void leave(struct shares *self, const struct entry *entry)
{
	struct link *link = &self->links[entry->link];
	struct user last = link->on[--link->count];

	link->on[entry->place] = last;
	self->flows[last.flow].entries[last.entry].place = entry->place;
}

static void set_due(struct shares *self, int32_t number, double due)
{
	self->due[number] = due;
	self->block_stale[number / BLOCK] = 1;
}

/* --- filling ------------------------------------------------------------------------------------------------------ */

static int join(struct shares *self, int32_t number)
{
	struct flow *flow = &self->flows[number];

	if (flow->joined == self->turn)
		return 0;
	flow->joined = self->turn;
	flow->rate_before = flow->rate;
	return push(&self->work, number);
}

static int join_held(struct shares *self, int32_t link)
{
	for (int32_t number = self->links[link].held; number != NOBODY; number = self->flows[number].held_after)
		if (join(self, number))
			return -1;
	return 0;
}

static void sink(struct level *heap, int32_t count, int32_t place)
{
	struct level moved = heap[place];

	for (;;) {
		int32_t child = 2 * place + 1;

		if (child >= count)
			break;
		if (child + 1 < count && heap[child + 1].rate < heap[child].rate)
			child++;
		if (heap[child].rate >= moved.rate)
			break;
		heap[place] = heap[child];
		place = child;
	}
	heap[place] = moved;
}

static double level_of(const struct part *part)
{
	return part->residual > 0 && part->demand > 0 ? part->residual / part->demand : 0.0;
}

/* Number the links of the flows at work, with what others leave of each, and list the flows of each. */
static int32_t gather(struct shares *self)
{
	int32_t count = 0, cells = 0;

	self->filling++;
	for (int32_t index = 0; index < self->work.count; index++) {
		struct flow *flow = &self->flows[self->work.at[index]];

		flow->is_open = 1;
		flow->filled = self->filling;
		cells += flow->count;
		for (int32_t place = 0; place < flow->count; place++) {
			const struct entry *entry = &flow->entries[place];
			struct link *link = &self->links[entry->link];
			struct part *part;

			if (link->filled != self->filling) {
				link->filled = self->filling;
				if (count == self->parts_room) {
					int32_t room = self->parts_room ? 2 * self->parts_room : 256;
					struct part *parts = realloc(self->parts, room * sizeof(*parts));
					struct level *heap;

					if (!parts)
						return -1;
					self->parts = parts;
					heap = realloc(self->heap, room * sizeof(*heap));
					if (!heap)
						return -1;
					self->heap = heap;
					self->parts_room = room;
				}
				link->here = count;
				self->parts[count++] = (struct part){.link = entry->link};
			}
			part = &self->parts[link->here];
			part->demand += entry->weight;
			part->used += entry->weight * flow->rate;
			part->open++;
		}
	}
	if (cells > self->cells_room) {
		int32_t *found = realloc(self->cells, 2 * (size_t)cells * sizeof(*found));

		if (!found)
			return -1;
		self->cells = found;
		self->cells_room = 2 * cells;
	}
	cells = 0;
	for (int32_t index = 0; index < count; index++) {
		struct part *part = &self->parts[index];
		const struct link *link = &self->links[part->link];

		part->others = part->open == link->count ? 0.0 : link->load - part->used;
		if (part->others < CLOSE * link->capacity)
			part->others = 0.0;
		part->residual = link->capacity > part->others ? link->capacity - part->others : 0.0;
		part->used = 0.0;
		part->first = cells;
		cells += part->open;
		part->all = part->open;
		part->open = 0;
	}
	for (int32_t index = 0; index < self->work.count; index++) {
		const struct flow *flow = &self->flows[self->work.at[index]];

		for (int32_t place = 0; place < flow->count; place++) {
			struct part *part = &self->parts[self->links[flow->entries[place].link].here];

			self->cells[part->first + part->open++] = self->work.at[index];
		}
	}
	return count;
}

/* Give a flow its rate, which the link of `held_at` does not let rise any more, and take it out of all its links. */
static void freeze(struct shares *self, int32_t number, int32_t held_at, double rate)
{
	struct flow *flow = &self->flows[number];

	flow->rate = rate;
	flow->is_open = 0;
	hold(self, number, held_at);
	for (int32_t place = 0; place < flow->count; place++) {
		struct part *part = &self->parts[self->links[flow->entries[place].link].here];
		double used = flow->entries[place].weight * rate;

		part->residual -= used;
		part->used += used;
		part->demand -= flow->entries[place].weight;
		part->open--;
		if (rate > part->fastest)
			part->fastest = rate;
	}
}

/* Fill the rates of the flows at work into what all others leave; how many links they have, -1 without memory. */
static int32_t fill(struct shares *self)
{
	int32_t count = gather(self), left = count;
	struct level *heap = self->heap;
	double lowest = 0.0;

	for (int32_t index = 0; index < count; index++)
		heap[index] = (struct level){level_of(&self->parts[index]), index};
	for (int32_t index = count / 2 - 1; index >= 0; index--)
		sink(heap, count, index);
	while (left > 0) {
		struct part *part = &self->parts[heap[0].part];
		double next = INFINITY, rate;

		if (part->open) {
			rate = level_of(part);
			if (left > 1)
				next = heap[1].rate;
			if (left > 2 && heap[2].rate < next)
				next = heap[2].rate;
			if (rate > next && rate > heap[0].rate) {
				heap[0].rate = rate;
				sink(heap, left, 0);
				continue;
			}
			lowest = rate > lowest ? rate : lowest;
			if (lowest > FASTEST)
				lowest = FASTEST;
			for (int32_t cell = part->first; cell < part->first + part->all; cell++)
				if (self->flows[self->cells[cell]].is_open)
					freeze(self, self->cells[cell], part->link, lowest);
		}
		heap[0] = heap[--left];
		if (left)
			sink(heap, left, 0);
	}
	for (int32_t index = 0; index < count; index++) {
		struct part *part = &self->parts[index];

		self->links[part->link].load = part->others + part->used;
	}
	return count;
}

#endif
