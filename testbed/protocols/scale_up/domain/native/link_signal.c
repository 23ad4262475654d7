/* Whether a link is there: its signal, its rate, and the epochs of its ends. */
#include "link_port.h"

#define GONE 1 /* in the data of LINK_SIGNAL: whoever sent it is not there any more */

void link_put_signal(const struct link_port *port, __u8 *set)
{
	struct ctlos item = {.type = LINK_SIGNAL, .sequence = port->own_signal < SIGNAL_FULL ? port->own_signal : CYCLE_MASK};

	ctlos_encode(set, &item);
}

/* When something is through that was under way at another rate. */
static __u64 at_new_rate(__u64 when, __u64 now, __u64 old_bps, __u64 new_bps)
{
	return when > now ? now + (__u64)((__uint128_t)(when - now) * old_bps / new_bps) : when;
}

/* The slower of what the two ends say is so for both. */
static void apply(struct link_port *port, __u64 now)
{
	__u32 signal = port->own_signal < port->peer_signal ? port->own_signal : port->peer_signal;

	if (!signal && port->dark_ns == NEVER) {
		port->dark_ns = now;
		retry_set_pcs(&port->retry_sender, false, now);
	} else if (signal && port->dark_ns != NEVER) {
		port->dark_ns = NEVER;
		port->unblocked_ns = now;
		retry_set_pcs(&port->retry_sender, true, now);
	}
	if (signal) {
		__u64 before = port->rate_bps;
		port->rate_bps = later(1, (__u64)((__uint128_t)port->config.rate_bps * signal / SIGNAL_FULL));
		port->free_ns = at_new_rate(port->free_ns, now, before, port->rate_bps);
		port->line_ns = at_new_rate(port->line_ns, now, before, port->rate_bps);
		for (__u32 left = port->data_line.count, frame = port->data_line.first; left; left--) {
			struct frame *it = &port->pool->frames[frame];
			it->due_ns = at_new_rate(it->due_ns, now, before, port->rate_bps);
			frame = it->next;
		}
	}
}

void link_set_signal(struct link_port *port, __u32 signal, __u64 now)
{
	if (port->own_signal == signal)
		return;
	port->own_signal = signal;
	port->said_ns = 0; /* the other end sees it at once */
	apply(port, now);
}

void link_set_peer(struct link_port *port, bool there, __u64 now)
{
	port->gone_epoch = there ? 0 : port->peer_epoch;
	if (there || !port->peer_signal)
		return;
	port->peer_signal = 0;
	apply(port, now);
	if (port->dark_ns == now)
		port->dark_ns = 0; /* nothing is waited for */
}

static void begin_anew(struct link_port *port, __u64 now)
{
	link_wait_no_more(port, port->waits, now);
	if (port->retries) {
		retry_start(&port->retry_sender, now, ~0u);
		retry_receiver_stop(&port->retry_receiver);
	}
	credit_sender_restart(&port->credit_sender);
	credit_receiver_restart(&port->credit_receiver);
	for (__u32 vc = 0; vc < LINK_VCS; vc++) {
		port->stale[vc] = port->held[vc];
		port->paused_until_ns[vc] = 0;
	}
	port->owes_cc = false;
	port->beat_ns = port->config.cf_max_ns;
}

bool link_greet(struct link_port *port, const __u8 *data, __u64 came, __u64 now)
{
	__u32 theirs = data[EPOCHS_AT], ours = data[EPOCHS_AT + 1], signal = SIGNAL_FULL;
	bool before = port->greeted;
	struct ctlos item;

	if (theirs && theirs == port->gone_epoch)
		return false;
	port->gone_epoch = 0;
	if (!ctlos_decode(data + ETHERNET_BYTES, &item) && item.type == LINK_SIGNAL)
		signal = item.sequence == CYCLE_MASK ? SIGNAL_FULL : item.sequence; /* all of it has no number */
	if (signal != port->peer_signal) {
		port->peer_signal = signal;
		apply(port, now);
		if (!signal && item.data == GONE && port->dark_ns == now)
			port->dark_ns = 0;
	}
	if (!port->config.epoch)
		return true;
	if (theirs && theirs != port->peer_epoch) {
		port->peer_epoch = theirs;
		begin_anew(port, now);
		port->epoch_came = came;
		port->epoch_ns = now;
	}
	port->greeted = ours == port->config.epoch;
	if (port->greeted != before)
		port->said_ns = 0; /* they do not wait for our answer either */
	if (port->greeted && !before) {
		port->unblocked_ns = now;
		port->epoch_came = came;
		port->epoch_ns = now;
	}
	return port->greeted;
}

static __u64 lost_after_ns(const struct link_port *port)
{
	return port->retries ? port->config.retry.pcs_lost_timeout_ns : 0;
}

bool link_watch(struct link_port *port, __u64 now)
{
	bool silent = port->config.silence_ns && now > port->heard_ns + port->config.silence_ns;
	bool down = silent || (port->dark_ns != NEVER && now >= port->dark_ns + lost_after_ns(port));

	if (down && !port->down) {
		port->counters.downs++;
		if (port->config.epoch) {
			port->config.epoch = port->config.epoch % 255 + 1;
			port->peer_epoch = 0;
			port->greeted = false;
			begin_anew(port, now);
		}
	}
	port->down = down;
	return down;
}

__u64 link_watch_timer(const struct link_port *port)
{
	__u64 next = NEVER;

	if (port->down)
		return NEVER;
	if (port->config.silence_ns)
		next = port->heard_ns + port->config.silence_ns + 1;
	if (port->dark_ns != NEVER)
		next = earlier(next, port->dark_ns + lost_after_ns(port));
	return next;
}
