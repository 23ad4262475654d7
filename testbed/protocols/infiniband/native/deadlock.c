/* Deadlocks: outputs of which each waits for a buffer that only another one of them could empty.
 *
 * A channel is a VL of an output. It is held up where its first frame has no credits; then it waits for the channels by
 * which the heads of its peer's queues of that VL leave, any of which gives credits back. It is in a deadlock where all
 * of these are. One whose peer's buffer is empty waits for nobody: its credits are on their way, or have leaked.
 *
 * Source: Dally and Towles, Principles and Practices of Interconnection Networks, chapter 14. */
#include "fabric.h"

#include <stdlib.h>

#define NOWHERE (~0u)

static __u32 channel_of(__u32 port, __u32 vl)
{
	return port * ALL_VLS + vl;
}

static bool is_held_up(const struct ib_fabric *fabric, const struct fabric_port *port, __u32 vl)
{
	if (vl == MANAGEMENT_VL || !(port->wanting >> vl & 1))
		return false;
	return !credit_may_send(&port->sender, vl, fabric->pool.frames[port->wanted[vl].first->frames.first].length);
}

/* A channel that this one waits for, where all of them are in `stuck`; NOWHERE: it is not stuck itself. */
static __u32 waits_for(const struct ib_fabric *fabric, const __u8 *stuck, __u32 channel)
{
	const struct fabric_port *input = &fabric->ports[fabric->ports[channel / ALL_VLS].peer];
	const struct fabric_node *node = &fabric->nodes[input->node];
	__u32 outputs = fabric->config.voq ? node->ports : 1, found = NOWHERE;

	for (__u32 output = 1; node->is_switch && output <= outputs; output++) {
		const struct input_queue *queue = queue_of(fabric, input, channel % ALL_VLS, output);
		__u32 head = queue->frames.first, other;
		if (!queue->frames.count)
			continue;
		other = channel_of(fabric->pool.frames[head].output, fabric->extra[head].out_vl);
		if (!stuck[other])
			return NOWHERE;
		found = other;
	}
	return found;
}

/* Take out of `stuck` what can move, or will be able to. A channel that is left; NOWHERE: none is. */
static __u32 release(const struct ib_fabric *fabric, __u8 *stuck)
{
	__u32 channels = fabric->port_count * ALL_VLS, left = NOWHERE;
	bool changed = true;

	while (changed) {
		changed = false;
		left = NOWHERE;
		for (__u32 channel = 0; channel < channels; channel++) {
			if (!stuck[channel])
				continue;
			if (waits_for(fabric, stuck, channel) == NOWHERE) {
				stuck[channel] = false;
				changed = true;
			} else {
				left = channel;
			}
		}
	}
	return left;
}

static __u32 tell_circle(const struct ib_fabric *fabric, const __u8 *stuck, __u32 begin, struct channel *found, __u32 room)
{
	__u32 channel = begin, count = 0;

	do {
		const struct fabric_port *port = &fabric->ports[channel / ALL_VLS];
		if (count < room)
			found[count] = (struct channel){.node = port->node, .port = port->number, .vl = channel % ALL_VLS};
		count++;
		channel = waits_for(fabric, stuck, channel);
	} while (channel != begin);
	return count;
}

__u32 ib_fabric_deadlock(const struct ib_fabric *fabric, struct channel *found, __u32 room)
{
	__u32 channel, count = 0;
	__u8 *stuck = calloc(fabric->port_count, ALL_VLS);

	if (!stuck)
		return 0;
	for (__u32 port = 0; port < fabric->port_count; port++) {
		for (__u32 vl = 0; vl < DATA_VLS; vl++)
			stuck[channel_of(port, vl)] = is_held_up(fabric, &fabric->ports[port], vl);
	}
	channel = release(fabric, stuck);
	if (channel != NOWHERE) {
		for (__u32 step = 0; step < fabric->port_count * ALL_VLS; step++) /* into the circle */
			channel = waits_for(fabric, stuck, channel);
		count = tell_circle(fabric, stuck, channel, found, room);
	}
	free(stuck);
	return count;
}
