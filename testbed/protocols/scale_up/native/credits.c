/* Credit-based flow control. */
#include "credits.h"

#include <string.h>

#define LEAST_OVERHEAD (-16)
#define MOST_OVERHEAD 127

static int check(const struct credit_config *config, __u32 *lossless)
{
	__u32 unit = config->unit_bytes;

	if (unit < 32 || unit > 1u << 20)
		return -1;
	if (config->overhead_bytes < LEAST_OVERHEAD || config->overhead_bytes > MOST_OVERHEAD)
		return -1;
	if (config->port_limit > CYCLE_MASK)
		return -1;
	*lossless = 0;
	for (__u32 vc = 0; vc < VCS; vc++) {
		if (config->limits[vc] > CYCLE_MASK)
			return -1;
		if (config->limits[vc])
			*lossless |= 1u << vc;
	}
	return 0;
}

static __u64 credits_of(const struct credit_config *config, __u32 frame_bytes)
{
	__s64 bytes = (__s64)frame_bytes + config->overhead_bytes;

	return bytes <= 0 ? 0 : ((__u64)bytes + config->unit_bytes - 1) / config->unit_bytes;
}

static bool has_credits(__u32 lossless, __u32 vc)
{
	return vc < VCS && lossless >> vc & 1;
}

int credit_sender_init(struct credit_sender *sender, const struct credit_config *config)
{
	memset(sender, 0, sizeof(*sender));
	sender->config = *config;
	return check(config, &sender->lossless);
}

void credit_sender_restart(struct credit_sender *sender)
{
	memset(sender->consumed, 0, sizeof(sender->consumed));
	memset(sender->freed, 0, sizeof(sender->freed));
	sender->port_in_use = 0;
}

bool credit_may_send(const struct credit_sender *sender, __u32 vc, __u32 frame_bytes)
{
	const struct credit_config *config = &sender->config;
	__u64 needed;

	if (!has_credits(sender->lossless, vc))
		return true;
	needed = credits_of(config, frame_bytes);
	if (distance(sender->freed[vc], sender->consumed[vc]) + needed > config->limits[vc])
		return false;
	return !config->port_limit || sender->port_in_use + needed <= config->port_limit;
}

void credit_sent(struct credit_sender *sender, __u32 vc, __u32 frame_bytes)
{
	__u64 needed;

	if (!has_credits(sender->lossless, vc))
		return;
	needed = credits_of(&sender->config, frame_bytes);
	sender->consumed[vc] = advance(sender->consumed[vc], (__u32)needed);
	sender->port_in_use += needed;
	if (sender->port_in_use > sender->counters.sender_credits_used_watermark)
		sender->counters.sender_credits_used_watermark = sender->port_in_use;
}

static bool free_credits(struct credit_sender *sender, __u32 vc, __u32 count)
{
	__u32 newly;

	if (!has_credits(sender->lossless, vc))
		return false;
	newly = (count - sender->freed[vc]) & COUNT_MASK;
	if (newly > distance(sender->freed[vc], sender->consumed[vc]))
		return false;
	sender->freed[vc] = advance(sender->freed[vc], newly);
	sender->port_in_use -= newly;
	return true;
}

void credit_on_cf_update(struct credit_sender *sender, const struct ctlos *update)
{
	bool first = free_credits(sender, update->vc1, update->count1);
	bool second = free_credits(sender, update->vc2, update->count2);

	sender->counters.num_cf_update_messages_rx++;
	sender->counters.cf_update_errors += !(first && second);
}

__u32 credit_sender_poll(struct credit_sender *sender, __u64 now)
{
	if (!sender->config.cc_period_ns || now < sender->cc_due_ns || !sender->lossless)
		return 0;
	sender->cc_due_ns = now + sender->config.cc_period_ns;
	sender->counters.num_cc_update_messages_tx++;
	return sender->lossless;
}

__u64 credit_sender_timer(const struct credit_sender *sender)
{
	return sender->config.cc_period_ns && sender->lossless ? sender->cc_due_ns : NEVER;
}

int credit_receiver_init(struct credit_receiver *receiver, const struct credit_config *config)
{
	memset(receiver, 0, sizeof(*receiver));
	receiver->config = *config;
	return check(config, &receiver->lossless);
}

void credit_receiver_restart(struct credit_receiver *receiver)
{
	memset(receiver->consumed, 0, sizeof(receiver->consumed));
	memset(receiver->freed, 0, sizeof(receiver->freed));
	memset(receiver->told, 0, sizeof(receiver->told));
	receiver->port_held = 0;
	receiver->changed = 0;
}

static __u32 held(const struct credit_receiver *receiver, __u32 vc)
{
	return distance(receiver->freed[vc], receiver->consumed[vc]);
}

static bool has_room(const struct credit_receiver *receiver, __u32 vc, __u64 needed)
{
	const struct credit_config *config = &receiver->config;

	if (held(receiver, vc) + needed > config->limits[vc])
		return false;
	return !config->port_limit || receiver->port_held + needed <= config->port_limit;
}

static void note_change(struct credit_receiver *receiver, __u32 vc)
{
	__u32 bit = 1u << vc;

	if (receiver->told[vc] != receiver->freed[vc])
		receiver->changed |= bit;
	else
		receiver->changed &= ~bit;
}

bool credit_stored(struct credit_receiver *receiver, __u32 vc, __u32 frame_bytes)
{
	__u64 needed;

	if (!has_credits(receiver->lossless, vc))
		return true;
	needed = credits_of(&receiver->config, frame_bytes);
	if (!has_room(receiver, vc, needed)) {
		receiver->counters.over_limit_frames++;
		return false;
	}
	receiver->consumed[vc] = advance(receiver->consumed[vc], (__u32)needed);
	receiver->port_held += needed;
	return true;
}

void credit_freed(struct credit_receiver *receiver, __u32 vc, __u32 frame_bytes)
{
	__u64 newly;

	if (!has_credits(receiver->lossless, vc))
		return;
	newly = credits_of(&receiver->config, frame_bytes);
	if (newly > held(receiver, vc))
		newly = held(receiver, vc);
	receiver->freed[vc] = advance(receiver->freed[vc], (__u32)newly);
	receiver->port_held -= newly;
	note_change(receiver, vc);
}

void credit_on_cc_update(struct credit_receiver *receiver, const struct cc_count *counts, __u32 count)
{
	receiver->counters.num_cc_update_messages_rx++;
	for (__u32 index = 0; index < count; index++) {
		__u32 vc = counts[index].vc, lost;

		if (!has_credits(receiver->lossless, vc)) {
			receiver->counters.cc_update_errors++;
			continue;
		}
		lost = distance(receiver->consumed[vc], counts[index].consumed);
		if (!has_room(receiver, vc, lost)) {
			receiver->counters.cc_update_errors++;
			continue;
		}
		receiver->consumed[vc] = counts[index].consumed & CYCLE_MASK;
		receiver->freed[vc] = advance(receiver->freed[vc], lost);
		receiver->counters.leaked_credits += lost;
		note_change(receiver, vc);
	}
}

/* The first VC of `vcs` from `start` (0 to 32) on, round; -1 for none. */
static int first_from(__u32 vcs, __u32 start)
{
	__u32 behind = start < VCS ? vcs >> start << start : 0;

	if (!vcs)
		return -1;
	return __builtin_ctz(behind ? behind : vcs);
}

static __u32 overdue(const struct credit_receiver *receiver, __u64 now)
{
	__u32 found = 0;

	if (receiver->config.cf_max_ns)
		for (__u32 left = receiver->lossless; left; left &= left - 1) {
			__u32 vc = __builtin_ctz(left);

			if (now >= receiver->told_ns[vc] + receiver->config.cf_max_ns)
				found |= 1u << vc;
		}
	return found;
}

static int due(const struct credit_receiver *receiver, __u64 now, __u32 start, __u32 but)
{
	int vc = first_from(receiver->changed & ~but, start);

	return vc >= 0 ? vc : first_from(overdue(receiver, now) & ~but, start);
}

bool credit_receiver_poll(struct credit_receiver *receiver, __u64 now, struct ctlos *update)
{
	int first, second;

	if (now < receiver->earliest_ns)
		return false;
	first = due(receiver, now, receiver->next_vc, 0);
	if (first < 0)
		return false;
	second = due(receiver, now, first + 1, 1u << first);
	if (second < 0)
		second = first_from(receiver->lossless, first + 1);
	*update = (struct ctlos){
		.type = CF_UPDATE,
		.vc1 = first,
		.count1 = receiver->freed[first] & COUNT_MASK,
		.vc2 = second,
		.count2 = receiver->freed[second] & COUNT_MASK,
	};
	receiver->told[first] = receiver->freed[first];
	receiver->told[second] = receiver->freed[second];
	receiver->told_ns[first] = receiver->told_ns[second] = now;
	receiver->changed &= ~(1u << first | 1u << second);
	receiver->next_vc = second + 1;
	receiver->earliest_ns = now + receiver->config.cf_min_ns;
	receiver->counters.num_cf_update_messages_tx++;
	return true;
}

__u64 credit_receiver_timer(const struct credit_receiver *receiver)
{
	__u64 oldest = NEVER, when;

	if (receiver->changed)
		return receiver->earliest_ns;
	if (!receiver->lossless || !receiver->config.cf_max_ns)
		return NEVER;
	for (__u32 left = receiver->lossless; left; left &= left - 1) {
		__u32 vc = __builtin_ctz(left);

		if (receiver->told_ns[vc] < oldest)
			oldest = receiver->told_ns[vc];
	}
	when = oldest + receiver->config.cf_max_ns;
	return when > receiver->earliest_ns ? when : receiver->earliest_ns;
}
