/* The memory of a core: all that it will ever need, by the ports it is for. */
#include <stdlib.h>

#include "core.h"
#include "pfc.h"

static int count_histograms(const struct attached_port *ports, __u32 count)
{
	int found = 0;

	for (__u32 i = 0; i < count; i++)
		found += __builtin_popcount(ports[i].lossless & 0xff);
	return found;
}

static __u64 rate_of(const struct core *core, __u32 port)
{
	return port < core->port_count && core->ports[port].known ? core->ports[port].rate_bps : 0;
}

static bool describe(struct core *core, const struct attached_port *ports, __u32 count)
{
	struct histogram *next = core->histograms;

	for (__u32 i = 0; i < count; i++) {
		struct port_state *state;
		if (!ports[i].number || ports[i].number >= core->port_count || core->ports[ports[i].number].known)
			return false;
		state = &core->ports[ports[i].number];
		state->known = true;
		state->peer = ports[i].peer;
		state->lossless = ports[i].lossless & 0xff;
		state->rate_bps = ports[i].rate_bps ? ports[i].rate_bps : 1;
		state->watchdog_detect_ns = ports[i].watchdog_detect_ns;
		state->watchdog_restore_ns = ports[i].watchdog_restore_ns;
		for (__u32 priority = 0; priority < PRIORITIES; priority++) {
			if (state->lossless >> priority & 1)
				state->reactions[priority] = next++;
		}
	}
	/* Frames are sent anew at half of the time that the peer will pause for, whichever end counts it. */
	for (__u32 i = 0; i < count; i++) {
		struct port_state *state = &core->ports[ports[i].number];
		__u64 peer_bps = rate_of(core, state->peer);
		state->refresh_ns =
			pfc_pause_ns(MAX_QUANTA, peer_bps > state->rate_bps ? peer_bps : state->rate_bps) / 2;
	}
	return true;
}

struct core *core_new(const struct attached_port *ports, __u32 count, struct ingress *accounts, struct pause *pauses,
		      __u32 queue_count)
{
	struct core *core = calloc(1, sizeof(*core));
	bool complete;

	if (!core)
		return NULL;
	core->port_count = queue_count / PRIORITIES;
	core->accounts = accounts;
	core->pauses = pauses;
	core->histogram_count = count_histograms(ports, count);
	core->ports = calloc(core->port_count + 1, sizeof(*core->ports));
	core->timers = timers_new(queue_count * TIMER_KINDS + 1);
	core->histograms = calloc(core->histogram_count + 1, sizeof(*core->histograms));
	core->notes = calloc(1, sizeof(*core->notes));
	complete = core->ports && core->timers && core->histograms && core->notes;
	for (int kind = 0; kind < OPEN_GATES; kind++) {
		core->lists[kind].ports = calloc(core->port_count + 1, sizeof(__u32));
		complete = complete && core->lists[kind].ports;
	}
	if (!complete || !describe(core, ports, count)) {
		core_free(core);
		return NULL;
	}
	return core;
}

void core_free(struct core *core)
{
	if (!core)
		return;
	for (int kind = 0; kind < OPEN_GATES; kind++)
		free(core->lists[kind].ports);
	free(core->ports);
	timers_free(core->timers);
	free(core->histograms);
	free(core->notes);
	free(core);
}

