/* An InfiniBand fabric in virtual time: what it consists of, its tables, and its clock. */
#include "fabric.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_FRAMES 4096
#define MOST_FRAMES (1u << 22)
#define MOST_NODES (1u << 16)
#define MOST_LIDS (1u << 16)
#define DEFAULT_WEIGHT 64
#define THRESHOLDS 16

static bool init_port(struct ib_fabric *fabric, struct fabric_port *port)
{
	struct vl_table *low = &port->arbiter.low;
	__u32 queues = fabric->config.voq ? ALL_VLS * fabric->nodes[port->node].ports : ALL_VLS;

	port->peer = NOBODY;
	port->arbiter.limit = UNLIMITED;
	for (low->entries = 0; low->entries < fabric->config.vls; low->entries++) {
		low->vl[low->entries] = low->entries;
		low->weight[low->entries] = DEFAULT_WEIGHT;
	}
	port->queues = calloc(queues, sizeof(*port->queues));
	return port->queues;
}

static bool init_nodes(struct ib_fabric *fabric, const struct node_config *nodes)
{
	__u32 first = 0;

	for (__u32 number = 0; number < fabric->config.nodes; number++) {
		struct fabric_node *node = &fabric->nodes[number];
		*node = (struct fabric_node){.first_port = first, .ports = nodes[number].ports, .lid = nodes[number].lid,
					     .is_switch = nodes[number].is_switch};
		for (__u32 sl = 0; sl < SLS; sl++)
			node->common_sl2vl[sl] = sl % fabric->config.vls;
		if (node->is_switch) {
			node->lft = malloc(fabric->config.lids);
			if (!node->lft)
				return false;
			memset(node->lft, NO_PORT, fabric->config.lids);
		}
		for (__u32 port = 0; port < node->ports; port++) {
			fabric->ports[first + port].node = number;
			fabric->ports[first + port].number = port + 1;
			if (!init_port(fabric, &fabric->ports[first + port]))
				return false;
		}
		first += node->ports;
	}
	return true;
}

static bool init_end(struct ib_fabric *fabric, struct fabric_port *port, struct fabric_port *peer,
		     const struct fabric_link *link)
{
	struct credit_config credits = {.unit_bytes = BLOCK_BYTES, .cf_min_ns = link->spacing_ns};

	if (port->peer != NOBODY || port == peer)
		return false;
	port->peer = number_of(fabric, peer);
	port->is_edge = !fabric->nodes[peer->node].is_switch;
	port->rate_bps = link->rate_bps;
	port->delay_ns = link->delay_ns;
	port->blocks = link->blocks;
	port->up = true;
	for (__u32 vl = 0; vl < fabric->config.vls; vl++)
		credits.limits[vl] = link->blocks;
	return !credit_sender_init(&port->sender, &credits) && !credit_receiver_init(&port->receiver, &credits);
}

static bool init_links(struct ib_fabric *fabric, const struct fabric_link *links)
{
	for (__u32 number = 0; number < fabric->config.links; number++) {
		const struct fabric_link *link = &links[number];
		struct fabric_port *a = port_of(fabric, link->node_a, link->port_a);
		struct fabric_port *b = port_of(fabric, link->node_b, link->port_b);
		if (!a || !b || !link->rate_bps || link->rate_bps > 1ull << 50 || !link->blocks ||
		    link->blocks > COUNT_MASK || link->delay_ns >> 40 || !init_end(fabric, a, b, link) ||
		    !init_end(fabric, b, a, link))
			return false;
	}
	return true;
}

static bool is_sound(const struct fabric_config *config, const struct node_config *nodes, __u32 *ports)
{
	*ports = 0;
	if (!config->nodes || config->nodes > MOST_NODES || !config->vls || config->vls > DATA_VLS || !config->lids ||
	    config->lids > MOST_LIDS || config->links > 1u << 20)
		return false;
	for (__u32 node = 0; node < config->nodes; node++) {
		if (!nodes[node].ports || nodes[node].ports > MOST_PORTS || (!nodes[node].is_switch && nodes[node].ports > 1))
			return false;
		*ports += nodes[node].ports;
	}
	return *ports < 1u << 16; /* a frame has 16 bits for a port */
}

struct ib_fabric *ib_fabric_new(const struct fabric_config *config, const struct node_config *nodes,
				const struct fabric_link *links)
{
	struct ib_fabric *fabric = calloc(1, sizeof(*fabric));
	__u32 ports;

	if (!fabric)
		return NULL;
	if (!is_sound(config, nodes, &ports)) {
		free(fabric);
		return NULL;
	}
	fabric->config = *config;
	fabric->port_count = ports;
	fabric->nodes = calloc(config->nodes, sizeof(*fabric->nodes));
	fabric->ports = calloc(ports, sizeof(*fabric->ports));
	fabric->extra = calloc(FIRST_FRAMES, sizeof(*fabric->extra));
	if (!fabric->nodes || !fabric->ports || !fabric->extra ||
	    !frame_pool_init(&fabric->pool, FIRST_FRAMES, HEADER_BYTES) || !init_nodes(fabric, nodes) ||
	    !init_links(fabric, links)) {
		ib_fabric_free(fabric);
		return NULL;
	}
	return fabric;
}

void ib_fabric_free(struct ib_fabric *fabric)
{
	if (!fabric)
		return;
	for (__u32 node = 0; fabric->nodes && node < fabric->config.nodes; node++) {
		free(fabric->nodes[node].lft);
		free(fabric->nodes[node].sl2vl);
	}
	for (__u32 port = 0; fabric->ports && port < fabric->port_count; port++) {
		free(fabric->ports[port].queues);
		free(fabric->ports[port].pkeys);
	}
	frame_pool_close(&fabric->pool);
	free(fabric->nodes);
	free(fabric->ports);
	free(fabric->extra);
	free(fabric->events.events);
	free(fabric->notices);
	free(fabric);
}

/* ------------------------------------------------------------------ tables */

static struct fabric_node *switch_of(struct ib_fabric *fabric, __u32 node)
{
	return node < fabric->config.nodes && fabric->nodes[node].is_switch ? &fabric->nodes[node] : NULL;
}

bool ib_fabric_set_lft(struct ib_fabric *fabric, __u32 number, const __u8 *ports, __u32 count)
{
	struct fabric_node *node = switch_of(fabric, number);

	if (!node || count > fabric->config.lids)
		return false;
	memcpy(node->lft, ports, count);
	memset(node->lft + count, NO_PORT, fabric->config.lids - count);
	return true;
}

/* Let a node have a table for each input and output. */
static bool spread_sl2vl(struct fabric_node *node)
{
	__u32 cells = (node->ports + 1) * (node->ports + 1);

	if (node->sl2vl)
		return true;
	node->sl2vl = malloc((size_t)cells * SLS);
	for (__u32 cell = 0; node->sl2vl && cell < cells; cell++)
		memcpy(node->sl2vl + (size_t)cell * SLS, node->common_sl2vl, SLS);
	return node->sl2vl;
}

bool ib_fabric_set_sl2vl(struct ib_fabric *fabric, __u32 number, __u32 input, __u32 output, const __u8 *vls)
{
	struct fabric_node *node = number < fabric->config.nodes ? &fabric->nodes[number] : NULL;

	if (!node || input > node->ports || output > node->ports)
		return false;
	for (__u32 sl = 0; sl < SLS; sl++) {
		if (vls[sl] >= ALL_VLS)
			return false;
	}
	if (!input && !output && !node->sl2vl) {
		memcpy(node->common_sl2vl, vls, SLS);
		return true;
	}
	if (!spread_sl2vl(node))
		return false;
	for (__u32 in = 0; in <= node->ports; in++) {
		for (__u32 out = 0; out <= node->ports; out++) {
			if ((!input || in == input) && (!output || out == output))
				memcpy(node->sl2vl + (size_t)(in * (node->ports + 1) + out) * SLS, vls, SLS);
		}
	}
	return true;
}

static bool fill_table(struct vl_table *table, const struct entry *entries, __u32 count)
{
	if (count > TABLE_ENTRIES)
		return false;
	*table = (struct vl_table){.entries = count};
	for (__u32 at = 0; at < count; at++) {
		if (entries[at].vl >= DATA_VLS)
			return false;
		table->vl[at] = entries[at].vl;
		table->weight[at] = entries[at].weight;
	}
	table->left = count ? table->weight[0] : 0;
	return true;
}

bool ib_fabric_set_arbitration(struct ib_fabric *fabric, __u32 node, __u32 port, const struct entry *high, __u32 highs,
			       const struct entry *low, __u32 lows, __u32 limit)
{
	struct vl_arbiter arbiter = {.limit = limit};

	if (node >= fabric->config.nodes || port > fabric->nodes[node].ports || limit > UNLIMITED ||
	    !fill_table(&arbiter.high, high, highs) || !fill_table(&arbiter.low, low, lows))
		return false;
	for (__u32 number = 1; number <= fabric->nodes[node].ports; number++) {
		if (!port || port == number)
			port_of(fabric, node, number)->arbiter = arbiter;
	}
	return true;
}

bool ib_fabric_set_pkeys(struct ib_fabric *fabric, __u32 node, __u32 number, const __u16 *keys, __u32 count)
{
	struct fabric_port *port = port_of(fabric, node, number);
	__u16 *copy = NULL;

	if (!port || count > 1u << 15)
		return false;
	if (count) {
		copy = malloc(count * sizeof(*copy));
		if (!copy)
			return false;
		memcpy(copy, keys, count * sizeof(*copy));
	}
	free(port->pkeys);
	port->pkeys = copy;
	port->pkey_count = count;
	return true;
}

bool ib_fabric_set_congestion(struct ib_fabric *fabric, __u32 number, __u32 threshold, __u32 rate, __u32 least_bytes)
{
	struct fabric_node *node = switch_of(fabric, number);
	__u32 blocks = 0;

	if (!node || threshold >= THRESHOLDS)
		return false;
	for (__u32 port = 1; port <= node->ports; port++)
		blocks = blocks > port_of(fabric, number, port)->blocks ? blocks : port_of(fabric, number, port)->blocks;
	node->threshold_bytes = threshold ? blocks * BLOCK_BYTES / THRESHOLDS * (THRESHOLDS - threshold) : 0;
	node->marking_rate = rate;
	node->least_marked_bytes = least_bytes;
	return true;
}

bool ib_fabric_set_up_ports(struct ib_fabric *fabric, __u32 number, const __u64 *bits)
{
	struct fabric_node *node = switch_of(fabric, number);

	if (!node)
		return false;
	memcpy(node->up_ports, bits, sizeof(node->up_ports));
	return true;
}

/* One end of a link goes down or comes back: what it has sent and not arrived is lost, its credits begin anew. */
static void turn(struct ib_fabric *fabric, struct fabric_port *port, bool up)
{
	port->up = up;
	port->epoch++;
	credit_sender_restart(&port->sender);
	credit_receiver_restart(&port->receiver);
	for (__u32 vl = 0; vl < fabric->config.vls; vl++)
		port->sender.config.limits[vl] = port->blocks; /* none leaks any more */
	memset(port->held_blocks, 0, sizeof(port->held_blocks));
	port->management_held = 0;
	port->tell_due = false;
	port->free_ns = fabric->now;
	port->free_due = false;
	if (up)
		return;
	port->counters.link_downed++;
	fabric_discard(fabric, port);
}

bool ib_fabric_set_link(struct ib_fabric *fabric, __u32 node, __u32 number, bool up)
{
	struct fabric_port *port = port_of(fabric, node, number);

	if (!port || port->peer == NOBODY)
		return false;
	if (port->up == up)
		return true;
	turn(fabric, port, up);
	turn(fabric, &fabric->ports[port->peer], up);
	fabric_wake(fabric, port);
	fabric_wake(fabric, &fabric->ports[port->peer]);
	return true;
}

bool ib_fabric_set_leak(struct ib_fabric *fabric, __u32 node, __u32 number, __u32 vl, __u32 blocks)
{
	struct fabric_port *port = port_of(fabric, node, number);

	if (!port || port->peer == NOBODY || vl >= fabric->config.vls || blocks > port->blocks)
		return false;
	port->sender.config.limits[vl] = port->blocks - blocks;
	fabric_wake(fabric, port);
	return true;
}

bool ib_fabric_watch(struct ib_fabric *fabric, __u32 node, __u32 number, bool on)
{
	struct fabric_port *port = port_of(fabric, node, number);

	if (!port)
		return false;
	port->is_watched = on;
	return true;
}

/* ------------------------------------------------------------------ frames */

static bool grow(struct ib_fabric *fabric)
{
	struct frame_pool *pool = &fabric->pool;
	__u32 count = 2 * pool->count;
	struct frame *frames;
	struct frame_extra *extra;
	__u8 *bytes;

	if (count > MOST_FRAMES)
		return false;
	frames = realloc(pool->frames, count * sizeof(*frames));
	pool->frames = frames ? frames : pool->frames;
	bytes = realloc(pool->bytes, (size_t)count * pool->stride);
	pool->bytes = bytes ? bytes : pool->bytes;
	extra = realloc(fabric->extra, count * sizeof(*extra));
	fabric->extra = extra ? extra : fabric->extra;
	if (!frames || !bytes || !extra)
		return false;
	for (__u32 frame = count; frame-- > pool->count;) {
		pool->frames[frame] = (struct frame){0};
		frame_give(pool, frame);
	}
	pool->count = count;
	return true;
}

__u32 fabric_frame(struct ib_fabric *fabric, const __u8 *header, __u32 length, __u32 bytes, __u64 token)
{
	__u32 frame;

	if (!fabric->pool.free.count && !grow(fabric))
		return NO_FRAME;
	frame = frame_take(&fabric->pool);
	length = length < HEADER_BYTES ? length : HEADER_BYTES;
	memcpy(frame_bytes(&fabric->pool, frame), header, length);
	memset(frame_bytes(&fabric->pool, frame) + length, 0, HEADER_BYTES - length);
	fabric->pool.frames[frame].length = bytes;
	fabric->extra[frame] = (struct frame_extra){.token = token, .known = length};
	return frame;
}

void fabric_notify(struct ib_fabric *fabric, struct notice notice)
{
	if (fabric->notice_count == fabric->notice_room) {
		__u32 room = fabric->notice_room ? 2 * fabric->notice_room : 256;
		struct notice *notices = realloc(fabric->notices, room * sizeof(*notices));
		if (!notices) {
			fabric->broken = true;
			return;
		}
		fabric->notices = notices;
		fabric->notice_room = room;
	}
	notice.at_ns = fabric->now;
	fabric->notices[fabric->notice_count++] = notice;
}

void fabric_lose(struct ib_fabric *fabric, struct fabric_port *port, __u32 frame, __u64 *counter)
{
	(*counter)++;
	fabric_notify(fabric, (struct notice){
		.token = fabric->extra[frame].token,
		.node = port->node,
		.kind = NOTICE_LOST,
		.cause = counter - (__u64 *)&port->counters,
	});
	fabric->in_flight--;
	frame_give(&fabric->pool, frame);
}

bool ib_fabric_inject(struct ib_fabric *fabric, __u32 node, __u32 number, const __u8 *header, __u32 length, __u32 bytes,
		      __u64 token, __u64 now)
{
	struct fabric_port *port = port_of(fabric, node, number);
	__u32 frame;

	fabric->now = now > fabric->now ? now : fabric->now;
	frame = port && port->peer != NOBODY ? fabric_frame(fabric, header, length, bytes, token) : NO_FRAME;
	if (frame == NO_FRAME)
		return false;
	fabric->in_flight++;
	fabric->extra[frame].is_injected = true;
	fabric_arrive(fabric, port, frame);
	return true;
}

/* ------------------------------------------------------------------ the clock */

__u64 ib_fabric_run(struct ib_fabric *fabric, __u64 until, bool stops)
{
	while (fabric->events.count && event_next_ns(&fabric->events) <= until && !fabric->broken) {
		struct event event;
		if (stops && fabric->notice_count && event_next_ns(&fabric->events) > fabric->now)
			return fabric->now;
		event = event_pop(&fabric->events);
		fabric->now = event.at_ns > fabric->now ? event.at_ns : fabric->now;
		fabric_event(fabric, &event);
	}
	if (stops && fabric->notice_count)
		return fabric->now;
	return event_next_ns(&fabric->events);
}

void ib_fabric_pass(struct ib_fabric *fabric, __u64 now)
{
	if (now > fabric->now && now < event_next_ns(&fabric->events))
		fabric->now = now;
}

const struct notice *ib_fabric_notices(const struct ib_fabric *fabric)
{
	return fabric->notices;
}

__u32 ib_fabric_notice_count(const struct ib_fabric *fabric)
{
	return fabric->notice_count;
}

void ib_fabric_forget_notices(struct ib_fabric *fabric)
{
	fabric->notice_count = 0;
}

/* ------------------------------------------------------------------ counters */

const struct port_counters *ib_fabric_counters(struct ib_fabric *fabric, __u32 node, __u32 number)
{
	struct fabric_port *port = port_of(fabric, node, number);

	if (!port)
		return NULL;
	if (port->held) {
		port->counters.xmit_wait_ns += fabric->now - port->idle_since_ns;
		port->idle_since_ns = fabric->now;
	}
	return &port->counters;
}

const struct lane_counters *ib_fabric_lane(struct ib_fabric *fabric, __u32 node, __u32 number, __u32 vl)
{
	struct fabric_port *port = port_of(fabric, node, number);

	if (!port || vl >= ALL_VLS)
		return NULL;
	if (port->waits >> vl & 1) {
		port->lanes[vl].xmit_wait_ns += fabric->now - port->wait_since_ns[vl];
		port->wait_since_ns[vl] = fabric->now;
	}
	return &port->lanes[vl];
}

__u64 ib_fabric_in_flight(const struct ib_fabric *fabric)
{
	return fabric->in_flight;
}

void ib_fabric_forget_peaks(struct ib_fabric *fabric)
{
	for (__u32 port = 0; port < fabric->port_count; port++)
		for (__u32 vl = 0; vl < DATA_VLS; vl++)
			fabric->ports[port].lanes[vl].deepest = fabric->ports[port].held_blocks[vl];
}

__u64 ib_fabric_hops(const struct ib_fabric *fabric)
{
	return fabric->hops;
}

bool ib_fabric_is_broken(const struct ib_fabric *fabric)
{
	return fabric->broken;
}
