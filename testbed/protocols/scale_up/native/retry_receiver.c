/* Link layer retry: the end that takes frames in their order. */
#include "retry.h"

#include <string.h>

void retry_receiver_init(struct retry_receiver *receiver, const struct retry_config *config)
{
	memset(receiver, 0, sizeof(*receiver));
	receiver->config = *config;
	receiver->acked = receiver->seen = CYCLE_MASK;
}

void retry_receiver_stop(struct retry_receiver *receiver)
{
	receiver->state = RECEIVER_OFF;
	receiver->owes_echo = false;
}

void retry_on_init(struct retry_receiver *receiver, __u32 sequence, __u32 data)
{
	receiver->counters.rx_init_ctl_os++;
	receiver->state = RECEIVER_SEND_ACKS;
	receiver->expected = sequence & CYCLE_MASK;
	receiver->acked = receiver->seen = advance(sequence, -1);
	receiver->ack_again = false;
	receiver->owes_echo = true;
	receiver->echo_sequence = sequence & CYCLE_MASK;
	receiver->echo_data = data & 0xFFFF;
}

static bool on_expected(struct retry_receiver *receiver, __u32 check)
{
	if (check == CHECK_BAD) {
		receiver->counters.rx_expected_seq_bad++;
		if (receiver->state == RECEIVER_SEND_ACKS)
			receiver->state = RECEIVER_SEND_NACK;
		return false;
	}
	if (check == CHECK_POISONED)
		receiver->counters.rx_expected_seq_poisoned++;
	else
		receiver->counters.rx_expected_seq_good++;
	receiver->expected = advance(receiver->expected, 1);
	receiver->state = RECEIVER_SEND_ACKS;
	return true;
}

bool retry_on_frame(struct retry_receiver *receiver, __u32 sequence, __u32 check)
{
	bool numbered = sequence <= CYCLE_MASK, misses;
	__u32 ahead;

	if (check == CHECK_GOOD)
		receiver->counters.rx_ok++;
	else if (check == CHECK_POISONED)
		receiver->counters.rx_poisoned++;
	else
		receiver->counters.rx_bad++;
	if (receiver->state == RECEIVER_OFF)
		return false;
	if (numbered && check != CHECK_BAD) {
		__u32 step = distance(receiver->seen, sequence);

		receiver->counters.rx_replay += !step || step >= HALF_CYCLE;
		receiver->seen = sequence;
	}
	ahead = distance(receiver->expected, sequence);
	if (numbered && !ahead)
		return on_expected(receiver, check);
	misses = numbered && ahead < HALF_CYCLE;
	if (misses)
		receiver->counters.rx_missing_seq++;
	else if (numbered)
		receiver->counters.rx_duplicate_seq++;
	if (receiver->state == RECEIVER_SEND_ACKS) {
		if (check == CHECK_BAD || misses)
			receiver->state = RECEIVER_SEND_NACK;
		else
			receiver->ack_again = true;
	}
	return false;
}

static bool owes_ack(const struct retry_receiver *receiver)
{
	if (receiver->state != RECEIVER_SEND_ACKS)
		return false;
	return receiver->ack_again || receiver->acked != advance(receiver->expected, -1);
}

static void say(struct retry_receiver *receiver, __u64 now, enum ctlos_type type, struct ctlos *item)
{
	receiver->acked = advance(receiver->expected, -1);
	receiver->ack_again = false;
	receiver->earliest_ns = now + receiver->config.ack_spacing_ns;
	*item = (struct ctlos){.type = type, .sequence = receiver->acked};
}

bool retry_receiver_poll(struct retry_receiver *receiver, __u64 now, struct ctlos *item)
{
	if (receiver->owes_echo) {
		receiver->owes_echo = false;
		receiver->counters.tx_init_echo_ctl_os++;
		*item = (struct ctlos){
			.type = LLR_INIT_ECHO,
			.sequence = receiver->echo_sequence,
			.data = receiver->echo_data,
		};
		return true;
	}
	if (receiver->state == RECEIVER_SEND_NACK) {
		receiver->state = RECEIVER_NACK_SENT;
		receiver->counters.tx_nack_ctl_os++;
		say(receiver, now, LLR_NACK, item);
		return true;
	}
	if (!owes_ack(receiver) || now < receiver->earliest_ns)
		return false;
	receiver->counters.tx_ack_ctl_os++;
	say(receiver, now, LLR_ACK, item);
	return true;
}

__u64 retry_receiver_timer(const struct retry_receiver *receiver)
{
	if (receiver->owes_echo || receiver->state == RECEIVER_SEND_NACK)
		return 0;
	return owes_ack(receiver) ? receiver->earliest_ns : NEVER;
}
