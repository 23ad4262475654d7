/* One end of a scale-up link. Layouts: `testbed/protocols/scale_up/frames.py` and `ctlos.py`. */
#include "link_port.h"

#include <string.h>

#include "pfc.h"

#define O_CODE 6
#define ELIGIBLE 0x80
#define TIME_AT (ETHERNET_BYTES + CTLOS_SLOTS * CTLOS_BYTES)
#define CC_COUNTS_AT (BODY_AT + 2)
#define MOST_CREDITS CYCLE_MASK

static bool init_credits(struct link_port *port)
{
	const struct link_config *config = &port->config;
	struct credit_config credits = {
		.unit_bytes = config->unit,
		.overhead_bytes = config->overhead,
		.cf_min_ns = config->cf_min_ns,
		.cf_max_ns = config->cf_max_ns,
		.cc_period_ns = config->cc_ns ? config->cc_ns : config->cf_max_ns,
	};

	for (__u32 vc = 0; vc < config->vcs && config->flow_control == CREDITS; vc++)
		credits.limits[vc] = config->granted[vc];
	return !credit_sender_init(&port->credit_sender, &credits) && !credit_receiver_init(&port->credit_receiver, &credits);
}

bool link_init(struct link_port *port, const struct link_config *config, __u64 now)
{
	memset(port, 0, sizeof(*port));
	port->config = *config;
	port->heard_ns = now;
	port->beat_ns = config->cf_max_ns;
	port->rate_bps = config->rate_bps;
	port->own_signal = port->peer_signal = SIGNAL_FULL;
	port->dark_ns = NEVER;
	if (!config->rate_bps || config->rate_bps > 1ull << 50 || !config->vcs || config->vcs > LINK_VCS ||
	    config->flow_control > NO_FLOW_CONTROL || config->unit < 32 || config->unit > 1 << 20 ||
	    config->overhead < -16 || config->overhead > 127 || config->epoch > 255 ||
	    (config->line.packet && !(config->line.grain && config->line.wide && config->line.narrow)))
		return false;
	if (!init_credits(port) || !link_retry_init(port, now))
		return false;
	port->credit_sender.cc_due_ns = now + config->cc_ns;
	for (__u32 vc = 0; vc < config->vcs; vc++) {
		if (config->capacity[vc] > MOST_CREDITS || config->granted[vc] > config->capacity[vc] ||
		    config->granted[vc] > COUNT_MASK || config->xon[vc] > config->xoff[vc])
			return false;
	}
	return true;
}

/* ------------------------------------------------------------------ receiving: control */

static void on_control(struct link_port *port, const __u8 *data, __u32 length, __u64 came, __u64 now)
{
	struct ctlos item;

	if (length != CONTROL_FRAME_BYTES || wire_check(data, length) != CHECK_GOOD) {
		port->counters.bad_control++;
		return;
	}
	port->counters.control_rx++;
	if (!link_greet(port, data, came, now))
		return;
	for (const __u8 *set = data + ETHERNET_BYTES; set < data + TIME_AT; set += CTLOS_BYTES) {
		if (set[0] != CONTROL_CHARACTER || (set[4] & 15) != O_CODE)
			break;
		if (set[1] == CF_UPDATE && !ctlos_decode(set, &item))
			credit_on_cf_update(&port->credit_sender, &item);
		else if (set[1] != LINK_SIGNAL && port->retries)
			link_retry_on(port, set, now);
	}
	link_wait_ends(port, now);
	port->unblocked_ns = now;
}

static void on_pfc(struct link_port *port, const __u8 *data, __u32 length, __u64 now)
{
	if (length < 34 || data[14] != 1 || data[15] != 1) {
		port->counters.malformed++;
		return;
	}
	port->counters.pfc_rx++;
	if (port->config.flow_control != PFC)
		return;
	for (__u32 vc = 0; vc < port->config.vcs; vc++) {
		__u32 quanta = data[18 + 2 * vc] << 8 | data[19 + 2 * vc];
		if (data[17] >> vc & 1)
			port->paused_until_ns[vc] = quanta ? now + pfc_pause_ns(quanta, port->config.rate_bps) : 0;
	}
	link_wait_ends(port, now);
	port->unblocked_ns = now;
}

static __u32 type_of(const __u8 *data)
{
	return data[12] << 8 | data[13];
}

void link_arrive(struct link_port *port, struct frame_pool *pool, __u32 number, __u64 now)
{
	struct frame *frame = &pool->frames[number];
	const __u8 *data = frame_bytes(pool, number);

	port->heard_ns = now;
	frame->came = ++port->came;
	port->pool = pool;
	frame->due_ns = now + port->config.delay_ns;
	if (frame->length < LEAST_FRAME_BYTES) {
		port->counters.malformed++;
		frame_give(pool, number);
	} else if (type_of(data) == PFC_ETHERTYPE || data[ETHERNET_BYTES] == CONTROL_CHARACTER) {
		frame_append(pool, &port->control_line, number);
	} else {
		/* It began to arrive when it was sent, and one after the other: its last bit comes this much later. */
		frame->due_ns = later(frame->due_ns + link_time_ns(port, link_line_bytes(port, frame->length)), port->line_ns);
		port->line_ns = frame->due_ns;
		frame_append(pool, &port->data_line, number);
	}
}

static void take_control(struct link_port *port, struct frame_pool *pool, __u64 now)
{
	while (port->control_line.count && pool->frames[port->control_line.first].due_ns <= now) {
		__u32 number = frame_shift(pool, &port->control_line);
		struct frame *frame = &pool->frames[number];
		const __u8 *data = frame_bytes(pool, number);
		if (type_of(data) == PFC_ETHERTYPE)
			on_pfc(port, data, frame->length, frame->due_ns);
		else
			on_control(port, data, frame->length, frame->came, frame->due_ns);
		frame_give(pool, number);
	}
}

/* ------------------------------------------------------------------ receiving: data */

static void on_cc_update(struct link_port *port, const __u8 *data, __u32 length)
{
	struct cc_count counts[CC_UPDATE_COUNTS];
	__u32 count = data[BODY_AT];

	if (length != CC_UPDATE_BYTES || !count || count > CC_UPDATE_COUNTS) {
		port->counters.malformed++;
		return;
	}
	for (__u32 i = 0; i < count; i++) {
		const __u8 *at = data + CC_COUNTS_AT + 4 * i;
		__u32 word = (__u32)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
		counts[i] = (struct cc_count){.vc = word >> 27, .consumed = word & CYCLE_MASK};
	}
	credit_on_cc_update(&port->credit_receiver, counts, count);
}

static void watch_thresholds(struct link_port *port, __u32 vc)
{
	__u32 bit = 1u << vc;

	if (port->config.flow_control != PFC || !port->config.xoff[vc])
		return;
	if (!(port->asked & bit) && port->held[vc] > port->config.xoff[vc]) {
		port->asked |= bit;
		port->answer |= bit;
	} else if ((port->asked & bit) && port->held[vc] <= port->config.xon[vc]) {
		port->asked &= ~bit;
		port->answer |= bit;
	}
}

/* Whether there is room. */
static bool store(struct link_port *port, struct frame *frame)
{
	__u32 vc = frame->vc, needed = link_credits(port, frame->length);
	struct vc_counters *counters = &port->vc[vc];

	if (port->held[vc] + needed > port->config.capacity[vc] ||
	    !credit_stored(&port->credit_receiver, vc, frame->length)) {
		counters->dropped_frames++;
		counters->dropped_bytes += frame->length;
		return false;
	}
	port->held[vc] += needed;
	counters->rx_frames++;
	counters->rx_bytes += frame->length;
	counters->deepest = later(counters->deepest, port->held[vc]);
	watch_thresholds(port, vc);
	return true;
}

/* Whether a frame is one of data that is stored. */
static bool understand(struct link_port *port, struct frame *frame, const __u8 *data)
{
	__u32 flags = data[17], kind = flags >> 5 & 3;
	enum frame_check check;
	bool sound;

	if (port->config.epoch && frame->came < port->epoch_came) {
		port->counters.stale++;
		return false;
	}
	port->beat_ns = port->config.cf_max_ns;
	check = wire_check(data, frame->length);
	sound = type_of(data) == SCALE_UP_ETHERTYPE && data[14] >> 4 == 7;
	if (!sound && check != CHECK_BAD) {
		port->counters.malformed++;
		return false;
	}
	port->counters.bad_frames += check == CHECK_BAD;
	/* What is damaged is asked for again; the damage may have hit the prefix. */
	if (port->retries && (!sound || data[17] & ELIGIBLE)) {
		__u32 sequence = sound ? (data[14] & 15u) << 16 | data[15] << 8 | data[16] : ~0u;
		if (!retry_on_frame(&port->retry_receiver, sequence, check))
			return false;
	}
	if (check == CHECK_BAD)
		return false;
	frame->poisoned = check == CHECK_POISONED;
	port->counters.poisoned += frame->poisoned;
	if (kind == CC_UPDATE) {
		if (!frame->poisoned)
			on_cc_update(port, data, frame->length);
		return false;
	}
	frame->vc = flags & 31;
	if (frame->vc >= port->config.vcs) {
		port->counters.malformed++;
		return false;
	}
	return store(port, frame);
}

__u32 link_take(struct link_port *port, struct frame_pool *pool, __u64 now)
{
	take_control(port, pool, now);
	link_retry_release(port, pool);
	while (port->data_line.count && pool->frames[port->data_line.first].due_ns <= now) {
		__u32 number = frame_shift(pool, &port->data_line);
		if (understand(port, &pool->frames[number], frame_bytes(pool, number)))
			return number;
		frame_give(pool, number);
	}
	return NO_FRAME;
}

void link_free(struct link_port *port, __u32 vc, __u32 length)
{
	__u32 credits = link_credits(port, length);

	if (credits > port->held[vc])
		credits = port->held[vc];
	port->held[vc] -= credits;
	if (port->stale[vc])
		port->stale[vc] -= earlier(port->stale[vc], credits);
	else
		credit_freed(&port->credit_receiver, vc, length);
	watch_thresholds(port, vc);
}

/* ------------------------------------------------------------------ sending */

/* Whether the receiver gives leave. */
static bool has_leave(const struct link_port *port, __u32 vc, __u32 length, __u64 now)
{
	switch ((enum flow_control)port->config.flow_control) {
	case CREDITS:
		return credit_may_send(&port->credit_sender, vc, length);
	case PFC:
		return port->paused_until_ns[vc] <= now;
	case NO_FLOW_CONTROL:
		break;
	}
	return true;
}

bool link_may_send(const struct link_port *port, __u32 vc, __u32 length, __u64 now)
{
	if (port->dark_ns != NEVER || (port->config.epoch && !port->greeted) || (port->owes_cc && !port->cc_told) ||
	    (port->retries && retry_verdict(&port->retry_sender, length) != VERDICT_SENT))
		return false;
	return has_leave(port, vc, length, now);
}

void link_hold(struct link_port *port, __u32 vc, __u32 length, __u64 ready_ns, __u64 now)
{
	port->blocked |= 1u << vc;
	if (has_leave(port, vc, length, now))
		return;
	if (port->waits >> vc & 1)
		port->vc[vc].xmit_wait_ns += now - earlier(now, port->wait_since_ns[vc]);
	port->wait_since_ns[vc] = port->waits >> vc & 1 ? later(now, port->wait_since_ns[vc])
							 : earlier(now, later(ready_ns, port->free_ns));
	port->wait_bytes[vc] = length;
	port->waits |= 1u << vc;
}

void link_wait_no_more(struct link_port *port, __u32 vcs, __u64 now)
{
	for (vcs &= port->waits; vcs; vcs &= vcs - 1) {
		__u32 vc = __builtin_ctz(vcs);
		port->vc[vc].xmit_wait_ns += now - earlier(now, port->wait_since_ns[vc]);
		port->waits &= ~(1u << vc);
	}
}

void link_wait_ends(struct link_port *port, __u64 now)
{
	for (__u32 vcs = port->waits; vcs; vcs &= vcs - 1) {
		__u32 vc = __builtin_ctz(vcs);
		if (has_leave(port, vc, port->wait_bytes[vc], now))
			link_wait_no_more(port, 1u << vc, now);
	}
}

__u64 link_resumes_ns(const struct link_port *port, __u32 vc, __u64 now)
{
	return port->config.flow_control == PFC && port->paused_until_ns[vc] > now ? port->paused_until_ns[vc] : NEVER;
}

__u64 link_sent(struct link_port *port, __u32 vc, __u32 length, __u64 ready_ns)
{
	__u64 ready = port->blocked >> vc & 1 ? later(ready_ns, port->unblocked_ns) : ready_ns; /* it waited for leave */
	__u64 due = later(port->free_since_ns, ready), begin = later(port->free_ns, ready);

	port->blocked &= ~(1u << vc);
	link_wait_no_more(port, 1u << vc, port->config.flow_control == PFC ? port->paused_until_ns[vc] : port->unblocked_ns);
	credit_sent(&port->credit_sender, vc, length);
	port->free_ns = begin + link_time_ns(port, link_line_bytes(port, length));
	port->free_since_ns = port->free_ns;
	port->beat_ns = port->config.cf_max_ns;
	port->vc[vc].tx_frames++;
	port->vc[vc].tx_bytes += length;
	port->vc[vc].tx_line_bytes += link_line_bytes(port, length);
	return due;
}

static void begin_frame(const struct link_port *port, __u8 *frame)
{
	memcpy(frame, port->config.peer, 6);
	memcpy(frame + 6, port->config.mac, 6);
	frame[12] = SCALE_UP_ETHERTYPE >> 8;
	frame[13] = SCALE_UP_ETHERTYPE & 0xff;
}

/* When what is said now counts as said: ends that are idle speak at the same times, so that they wake up together. */
static __u64 beat_begin(const struct link_port *port, __u64 now)
{
	return port->beat_ns > port->config.cf_max_ns ? now - now % port->beat_ns : now;
}

static __u32 put_cf_updates(struct link_port *port, __u64 now, __u8 *frame, __u32 sets)
{
	struct credit_receiver *receiver = &port->credit_receiver;
	struct ctlos item;

	receiver->config.cf_max_ns = port->beat_ns;
	for (; sets < CTLOS_SLOTS && credit_receiver_poll(receiver, now, &item); sets++) {
		receiver->told_ns[item.vc1] = receiver->told_ns[item.vc2] = beat_begin(port, now);
		ctlos_encode(frame + ETHERNET_BYTES + sets * CTLOS_BYTES, &item);
	}
	return sets;
}

static __u32 put_pfc(struct link_port *port, __u64 now, __u8 *frame)
{
	__u16 quanta[PRIORITIES] = {0};
	__u32 vector;

	if (port->asked && now >= port->pause_refresh_ns)
		port->answer |= port->asked;
	vector = port->answer;
	if (!vector)
		return 0;
	for (int vc = 0; vc < PRIORITIES; vc++) {
		if (vector & port->asked & 1u << vc)
			quanta[vc] = MAX_QUANTA;
	}
	port->answer = 0;
	port->counters.xoff_tx += (vector & port->asked) != 0;
	port->counters.xon_tx += (vector & ~port->asked) != 0;
	port->pause_refresh_ns = now + pfc_pause_ns(MAX_QUANTA, port->config.rate_bps) / 2;
	pfc_encode(frame, port->config.mac, vector, quanta);
	return CONTROL_FRAME_BYTES;
}

__u32 link_control(struct link_port *port, __u64 now, __u8 *frame)
{
	__u32 sets, least = 0;
	bool news;

	if (port->config.flow_control == PFC && put_pfc(port, now, frame))
		return CONTROL_FRAME_BYTES;
	memset(frame, 0, CONTROL_FRAME_BYTES);
	if (port->own_signal != SIGNAL_FULL)
		link_put_signal(port, frame + ETHERNET_BYTES + least++ * CTLOS_BYTES);
	sets = least;
	if (port->own_signal)
		sets = link_retry_put(port, now, frame, least);
	news = sets > least || port->credit_receiver.changed;
	if (port->own_signal)
		sets = put_cf_updates(port, now, frame, sets);
	if (sets == least && now < port->said_ns + port->beat_ns)
		return 0;
	if (!sets) /* all it says is that we are there */
		link_put_signal(port, frame + ETHERNET_BYTES);
	begin_frame(port, frame);
	for (int i = 0; i < 8; i++)
		frame[TIME_AT + i] = now >> 8 * (7 - i);
	frame[EPOCHS_AT] = port->config.epoch;
	frame[EPOCHS_AT + 1] = port->peer_epoch;
	if (!news)
		port->beat_ns = earlier(2 * port->beat_ns, port->config.idle_ns);
	port->said_ns = beat_begin(port, now);
	port->counters.control_tx++;
	wire_seal(frame, CONTROL_FRAME_BYTES, false);
	return CONTROL_FRAME_BYTES;
}

/* Whether credits are not back. */
static bool is_short(const struct link_port *port)
{
	const struct credit_sender *sender = &port->credit_sender;

	for (__u32 vc = 0; vc < port->config.vcs; vc++) {
		if (sender->lossless >> vc & 1 && sender->freed[vc] != sender->consumed[vc])
			return true;
	}
	return false;
}

static bool has_cc_updates(const struct link_port *port)
{
	if (port->dark_ns != NEVER || (port->config.epoch && !port->greeted))
		return false;
	return port->retries ? link_retry_leaks(port) : port->config.cc_ns;
}

__u32 link_cc_update(struct link_port *port, __u64 now, __u8 *frame)
{
	struct cc_count counts[CC_UPDATE_COUNTS];
	__u32 count = 0, vcs;

	if (!has_cc_updates(port))
		return 0;
	vcs = credit_sender_poll(&port->credit_sender, now);
	if (!vcs)
		return 0;
	port->cc_told = true;
	port->owes_cc = port->retries && is_short(port);
	for (; vcs; vcs &= vcs - 1) {
		__u32 vc = __builtin_ctz(vcs);
		counts[count++] = (struct cc_count){.vc = vc, .consumed = port->credit_sender.consumed[vc]};
	}
	return count && !wire_cc_update(frame, port->config.peer, port->config.mac, counts, count) ? CC_UPDATE_BYTES : 0;
}

__u64 link_next_timer(const struct link_port *port, const struct frame_pool *pool)
{
	__u64 next = earlier(port->said_ns + port->beat_ns, link_watch_timer(port));

	if (port->control_line.count)
		next = earlier(next, pool->frames[port->control_line.first].due_ns);
	if (port->data_line.count)
		next = earlier(next, pool->frames[port->data_line.first].due_ns);
	if (!port->own_signal)
		return next;
	if (port->retries) {
		next = earlier(next, retry_sender_timer(&port->retry_sender));
		next = earlier(next, retry_receiver_timer(&port->retry_receiver));
		if (port->retry_sender.state == SENDER_REPLAY)
			next = earlier(next, port->free_ns);
	}
	if (has_cc_updates(port))
		next = earlier(next, credit_sender_timer(&port->credit_sender));
	next = earlier(next, credit_receiver_timer(&port->credit_receiver));
	if (port->answer)
		return 0;
	return port->asked ? earlier(next, port->pause_refresh_ns) : next;
}

const struct link_counters *link_counters(struct link_port *port)
{
	const struct credit_sender_counters *sender = &port->credit_sender.counters;
	const struct credit_receiver_counters *receiver = &port->credit_receiver.counters;
	struct link_counters *counters = &port->counters;

	counters->cbfc_num_cf_update_messages_tx = receiver->num_cf_update_messages_tx;
	counters->cbfc_num_cf_update_messages_rx = sender->num_cf_update_messages_rx;
	counters->cbfc_num_cc_update_messages_tx = sender->num_cc_update_messages_tx;
	counters->cbfc_num_cc_update_messages_rx = receiver->num_cc_update_messages_rx;
	counters->cf_update_errors = sender->cf_update_errors;
	counters->cc_update_errors = receiver->cc_update_errors;
	counters->leaked_credits = receiver->leaked_credits;
	return counters;
}

const struct vc_counters *link_vc_counters(struct link_port *port, __u32 vc)
{
	struct vc_counters *counters = &port->vc[vc];

	counters->s_cc = port->credit_sender.consumed[vc];
	counters->s_cf = port->credit_sender.freed[vc];
	counters->r_cc = port->credit_receiver.consumed[vc];
	counters->r_cf = port->credit_receiver.freed[vc];
	return counters;
}
