/* Link layer retry at one end of a link: what `retry.h` decides, done with frames. */
#include <stdlib.h>

#include "link_port.h"

/* New frames wait while the ends agree on a number, and after a flush until they do again. */
bool link_retry_init(struct link_port *port, __u64 now)
{
	struct retry_config *config = &port->config.retry;
	__u32 count = 1;

	if (!config->outstanding_frames_max)
		return true;
	config->init_action = config->flush_action = ACTION_BLOCK;
	config->re_init_on_flush = true;
	while (count < 2 * config->outstanding_frames_max && count < 1u << 20)
		count *= 2;
	port->slots = calloc(count, sizeof(*port->slots));
	if (!port->slots || retry_sender_init(&port->retry_sender, config, port->slots, count))
		return false;
	retry_receiver_init(&port->retry_receiver, config);
	retry_start(&port->retry_sender, now, ~0u);
	port->retries = true;
	return true;
}

void link_close(struct link_port *port)
{
	free(port->slots);
	port->slots = NULL;
}

void link_retry_on(struct link_port *port, const __u8 *set, __u64 now)
{
	struct ctlos item;

	if (ctlos_decode(set, &item))
		return;
	switch (item.type) {
	case LLR_ACK:
		retry_on_ack(&port->retry_sender, item.sequence, now);
		break;
	case LLR_NACK:
		retry_on_nack(&port->retry_sender, item.sequence, now);
		break;
	case LLR_INIT:
		retry_on_init(&port->retry_receiver, item.sequence, item.data);
		break;
	case LLR_INIT_ECHO:
		retry_on_init_echo(&port->retry_sender, item.sequence, item.data);
		break;
	}
}

/* Frames that a replay will not need any more. */
void link_retry_release(struct link_port *port, struct frame_pool *pool)
{
	struct retry_released released[16];
	__u32 count;

	while (port->retries && (count = retry_collect(&port->retry_sender, released, 16))) {
		for (__u32 i = 0; i < count; i++) {
			struct frame *frame = &pool->frames[released[i].handle];
			frame->kept = false;
			if (!frame->going)
				frame_give(pool, released[i].handle);
		}
	}
}

void link_gone(struct frame_pool *pool, __u32 number)
{
	pool->frames[number].going = false;
	if (!pool->frames[number].kept)
		frame_give(pool, number);
}

void link_number(struct link_port *port, struct frame_pool *pool, __u32 number, __u64 now)
{
	struct frame *frame = &pool->frames[number];
	__u32 sequence;

	if (!port->retries ||
	    retry_offer(&port->retry_sender, number, frame->length, frame->poisoned, now, &sequence) != VERDICT_SENT)
		return;
	wire_number(frame_bytes(pool, number), frame->length, sequence, frame->poisoned);
	frame->kept = true;
}

__u32 link_replay(struct link_port *port, struct frame_pool *pool, __u64 now)
{
	__u32 number, sequence;

	while (port->retries && port->free_ns <= now) {
		if (!retry_replay(&port->retry_sender, now, &number, &sequence)) {
			port->replay_ns = 0;
			break;
		}
		if (pool->frames[number].going) /* it has not left yet */
			continue;
		if (!port->replay_ns)
			port->replay_ns = now;
		port->free_ns = later(port->free_ns, port->replay_ns);
		port->free_ns += link_time_ns(port, link_line_bytes(port, pool->frames[number].length));
		port->free_since_ns = port->free_ns;
		return number;
	}
	return NO_FRAME;
}

bool link_retry_leaks(const struct link_port *port)
{
	return port->owes_cc && port->retry_sender.state == SENDER_ADVANCE && !retry_outstanding(&port->retry_sender);
}

/* What LLR has to say, two sets at most, behind the first `sets`; its timers expire here. */
__u32 link_retry_put(struct link_port *port, __u64 now, __u8 *frame, __u32 sets)
{
	__u64 flushed = port->retry_sender.counters.tx_flushed;
	struct ctlos item;

	if (!port->retries)
		return sets;
	if (retry_sender_poll(&port->retry_sender, now, &item))
		ctlos_encode(frame + ETHERNET_BYTES + sets++ * CTLOS_BYTES, &item);
	if (port->retry_sender.counters.tx_flushed != flushed && port->credit_sender.lossless) {
		/* Nobody will give back the credits of frames that were given up but for a CC_Update. */
		port->owes_cc = true;
		port->cc_told = false;
		port->credit_sender.cc_due_ns = now;
	}
	if (retry_receiver_poll(&port->retry_receiver, now, &item))
		ctlos_encode(frame + ETHERNET_BYTES + sets++ * CTLOS_BYTES, &item);
	return sets;
}
