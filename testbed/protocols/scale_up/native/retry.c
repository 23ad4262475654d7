/* Link layer retry: the end that sends frames and keeps them for a replay. */
#include "retry.h"

#include <string.h>

static struct retry_slot *slot_at(const struct retry_sender *sender, __u32 position)
{
	return &sender->slots[position & sender->slots_mask];
}

static bool is_running(const struct retry_sender *sender)
{
	return sender->state == SENDER_ADVANCE || sender->state == SENDER_REPLAY;
}

__u32 retry_outstanding(const struct retry_sender *sender)
{
	return sender->end - sender->oldest;
}

static void give_up(struct retry_sender *sender)
{
	sender->counters.tx_flushed += retry_outstanding(sender);
	for (; sender->oldest != sender->end; sender->oldest++)
		slot_at(sender, sender->oldest)->acknowledged = false;
	sender->outstanding_bytes = 0;
	sender->replays_in_a_row = 0;
	sender->cursor = sender->end;
	sender->timer_ns = sender->init_due_ns = NEVER;
}

static void flush(struct retry_sender *sender, __u64 now)
{
	give_up(sender);
	sender->state = SENDER_FLUSH;
	if (sender->config.re_init_on_flush)
		retry_start(sender, now, ~0u);
}

static void begin_replay(struct retry_sender *sender, __u64 now)
{
	const struct retry_config *config = &sender->config;

	sender->replays_in_a_row++;
	if (config->replay_count_max != UNLIMITED_REPLAYS && sender->replays_in_a_row > config->replay_count_max) {
		flush(sender, now);
		return;
	}
	sender->state = SENDER_REPLAY;
	sender->cursor = sender->oldest;
	sender->timer_ns = NEVER;
}

static void end_replay(struct retry_sender *sender)
{
	sender->state = SENDER_ADVANCE;
	sender->cursor = sender->oldest;
	sender->counters.tx_replay++;
}

static void count_sent(struct retry_sender *sender, bool poisoned)
{
	if (poisoned)
		sender->counters.tx_poisoned++;
	else
		sender->counters.tx_ok++;
}

int retry_sender_init(struct retry_sender *sender, const struct retry_config *config, struct retry_slot *slots,
		      __u32 count)
{
	memset(sender, 0, sizeof(*sender));
	sender->config = *config;
	sender->slots = slots;
	sender->slots_mask = count - 1;
	sender->timer_ns = sender->init_due_ns = NEVER;
	if (!config->outstanding_frames_max || config->outstanding_frames_max > MOST_OUTSTANDING)
		return -1;
	if (!config->outstanding_bytes_max || !config->replay_timer_ns || config->replay_timer_ns == NEVER)
		return -1;
	if (config->replay_count_max > UNLIMITED_REPLAYS || config->init_action > ACTION_BEST_EFFORT ||
	    config->flush_action > ACTION_BEST_EFFORT)
		return -1;
	return count & (count - 1) || count < config->outstanding_frames_max ? -1 : 0;
}

void retry_start(struct retry_sender *sender, __u64 now, __u32 sequence)
{
	give_up(sender);
	sender->state = SENDER_INIT;
	if (sequence <= CYCLE_MASK)
		sender->next = sequence;
	sender->init_data = (sender->init_data + 1) & 0xFFFF;
	sender->init_due_ns = now;
}

void retry_stop(struct retry_sender *sender)
{
	give_up(sender);
	sender->state = SENDER_OFF;
}

void retry_set_pcs(struct retry_sender *sender, bool up, __u64 now)
{
	if (up && sender->pcs_down) {
		sender->pcs_down = false;
		if (sender->state == SENDER_ADVANCE && retry_outstanding(sender))
			sender->timer_ns = now + sender->config.replay_timer_ns;
	} else if (!up && !sender->pcs_down) {
		sender->pcs_down = true;
		sender->pcs_down_ns = now;
	}
}

static bool fits(const struct retry_sender *sender, __u32 frame_bytes)
{
	__u32 outstanding = retry_outstanding(sender);

	if (outstanding >= sender->config.outstanding_frames_max)
		return false;
	if (sender->end - sender->collected > sender->slots_mask)
		return false; /* the caller has not collected */
	return !outstanding || sender->outstanding_bytes + frame_bytes <= sender->config.outstanding_bytes_max;
}

enum verdict retry_verdict(const struct retry_sender *sender, __u32 frame_bytes)
{
	static const enum verdict verdicts[] = {
		[ACTION_DISCARD] = VERDICT_DISCARDED,
		[ACTION_BLOCK] = VERDICT_BLOCKED,
		[ACTION_BEST_EFFORT] = VERDICT_BEST_EFFORT,
	};
	enum verdict verdict;

	switch (sender->state) {
	case SENDER_OFF:
		verdict = VERDICT_BEST_EFFORT;
		break;
	case SENDER_ADVANCE:
		verdict = fits(sender, frame_bytes) ? VERDICT_SENT : VERDICT_BLOCKED;
		break;
	case SENDER_REPLAY:
		verdict = VERDICT_BLOCKED;
		break;
	case SENDER_INIT:
		verdict = verdicts[sender->config.init_action];
		break;
	default:
		verdict = verdicts[sender->config.flush_action];
	}
	return sender->pcs_down && verdict != VERDICT_DISCARDED ? VERDICT_BLOCKED : verdict;
}

enum verdict retry_offer(struct retry_sender *sender, __u32 handle, __u32 frame_bytes, bool poisoned, __u64 now,
			 __u32 *sequence)
{
	enum verdict verdict = retry_verdict(sender, frame_bytes);

	*sequence = 0;
	if (verdict == VERDICT_DISCARDED)
		sender->counters.tx_discard++;
	if (verdict != VERDICT_SENT)
		return verdict;
	if (!retry_outstanding(sender))
		sender->timer_ns = now + sender->config.replay_timer_ns;
	*slot_at(sender, sender->end) = (struct retry_slot){
		.sent_ns = now,
		.handle = handle,
		.size = frame_bytes,
		.poisoned = poisoned,
	};
	sender->end++;
	sender->outstanding_bytes += frame_bytes;
	*sequence = sender->next;
	sender->next = advance(sender->next, 1);
	count_sent(sender, poisoned);
	return verdict;
}

/* Release the frames up to `sequence`; false: that is none which may be acknowledged. */
static bool acknowledge(struct retry_sender *sender, __u32 sequence, __u64 now)
{
	__u32 outstanding = retry_outstanding(sender), behind, newly;

	if (!is_running(sender))
		return false;
	behind = distance(advance(sequence, 1), sender->next);
	if (behind > outstanding) {
		sender->counters.rx_ack_nack_seq_error++;
		return false;
	}
	newly = outstanding - behind;
	if (!newly)
		return true;
	for (__u32 count = newly; count; count--, sender->oldest++) {
		struct retry_slot *slot = slot_at(sender, sender->oldest);

		slot->acknowledged = true;
		sender->outstanding_bytes -= slot->size;
	}
	sender->replays_in_a_row = 0;
	if ((__s32)(sender->cursor - sender->oldest) < 0)
		sender->cursor = sender->oldest;
	if (!retry_outstanding(sender)) {
		sender->timer_ns = NEVER;
		if (sender->state == SENDER_REPLAY)
			end_replay(sender);
	} else if (sender->state == SENDER_ADVANCE) {
		sender->timer_ns = now + sender->config.replay_timer_ns;
	}
	return true;
}

void retry_on_ack(struct retry_sender *sender, __u32 sequence, __u64 now)
{
	sender->counters.rx_ack_ctl_os++;
	acknowledge(sender, sequence, now);
}

void retry_on_nack(struct retry_sender *sender, __u32 sequence, __u64 now)
{
	sender->counters.rx_nack_ctl_os++;
	if (acknowledge(sender, sequence, now) && retry_outstanding(sender))
		begin_replay(sender, now);
}

void retry_on_init_echo(struct retry_sender *sender, __u32 sequence, __u32 data)
{
	sender->counters.rx_init_echo_ctl_os++;
	if (sender->state == SENDER_INIT && sequence == sender->next && data == sender->init_data) {
		sender->state = SENDER_ADVANCE;
		sender->init_due_ns = NEVER;
	}
}

/* When everything is given up. */
static __u64 give_up_ns(const struct retry_sender *sender)
{
	__u64 when = NEVER;

	if (sender->pcs_down && sender->config.pcs_lost_timeout_ns)
		when = sender->pcs_down_ns + sender->config.pcs_lost_timeout_ns;
	if (retry_outstanding(sender) && sender->config.data_age_timeout_ns) {
		__u64 old = slot_at(sender, sender->oldest)->sent_ns + sender->config.data_age_timeout_ns;

		if (old < when)
			when = old;
	}
	return when;
}

bool retry_sender_poll(struct retry_sender *sender, __u64 now, struct ctlos *item)
{
	if (is_running(sender)) {
		if (now >= give_up_ns(sender))
			flush(sender, now);
		else if (now >= sender->timer_ns && !sender->pcs_down)
			begin_replay(sender, now);
	}
	if (sender->state != SENDER_INIT || sender->pcs_down || now < sender->init_due_ns)
		return false;
	sender->init_due_ns = now + sender->config.replay_timer_ns;
	sender->counters.tx_init_ctl_os++;
	*item = (struct ctlos){.type = LLR_INIT, .sequence = sender->next, .data = sender->init_data};
	return true;
}

bool retry_replay(struct retry_sender *sender, __u64 now, __u32 *handle, __u32 *sequence)
{
	const struct retry_slot *slot;

	if (sender->state != SENDER_REPLAY || sender->pcs_down)
		return false;
	slot = slot_at(sender, sender->cursor);
	*handle = slot->handle;
	*sequence = advance(sender->next, sender->cursor - sender->end);
	sender->cursor++;
	count_sent(sender, slot->poisoned);
	if (sender->cursor == sender->end) {
		end_replay(sender);
		sender->timer_ns = now + sender->config.replay_timer_ns;
	}
	return true;
}

__u32 retry_collect(struct retry_sender *sender, struct retry_released *released, __u32 room)
{
	__u32 count = 0;

	for (; count < room && sender->collected != sender->oldest; count++, sender->collected++) {
		const struct retry_slot *slot = slot_at(sender, sender->collected);

		released[count] = (struct retry_released){slot->handle, slot->acknowledged};
	}
	return count;
}

__u64 retry_sender_timer(const struct retry_sender *sender)
{
	__u64 when;

	if (sender->state == SENDER_INIT)
		return sender->pcs_down ? NEVER : sender->init_due_ns;
	if (!is_running(sender))
		return NEVER;
	when = give_up_ns(sender);
	return !sender->pcs_down && sender->timer_ns < when ? sender->timer_ns : when;
}
