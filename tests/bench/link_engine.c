/* What the link layer does for each frame, at both ends, and what copying that frame costs: ns, one a line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "credits.h"
#include "retry.h"

#define RING 1024 /* buffers: 8 MB of frames, more than caches near the CPU hold */
#define SLOTS 256

static __u64 now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time); /* not what others take of the CPU meanwhile */
	return (__u64)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void give_up(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

/* Both directions of control, without a wire between: what is due is handed on at once. */
static void control(struct retry_sender *sender, struct retry_receiver *receiver, struct credit_sender *credits,
		    struct credit_receiver *buffer, __u64 now)
{
	struct retry_released released[SLOTS];
	struct ctlos item;
	__u8 data[CTLOS_BYTES];

	while (retry_receiver_poll(receiver, now, &item)) {
		if (ctlos_encode(data, &item) || ctlos_decode(data, &item))
			give_up("a set");
		if (item.type == LLR_INIT_ECHO)
			retry_on_init_echo(sender, item.sequence, item.data);
		else if (item.type == LLR_NACK)
			retry_on_nack(sender, item.sequence, now);
		else
			retry_on_ack(sender, item.sequence, now);
	}
	if (credit_receiver_poll(buffer, now, &item))
		credit_on_cf_update(credits, &item);
	retry_collect(sender, released, SLOTS);
}

int main(int count, char **arguments)
{
	static struct retry_slot slots[SLOTS];
	__u32 frame_bytes = count > 1 ? atoi(arguments[1]) : 8192, rounds = count > 2 ? atoi(arguments[2]) : 200000;
	__u32 every = count > 3 ? atoi(arguments[3]) : 0; /* of so many frames one is lost; 0: none */
	struct retry_config config = {.outstanding_frames_max = SLOTS, .outstanding_bytes_max = ~0u, .replay_timer_ns = 1000000,
				      .replay_count_max = UNLIMITED_REPLAYS, .ack_spacing_ns = 400};
	struct credit_config limits = {.limits = {20000, 20000}, .unit_bytes = 128, .cf_min_ns = 1000, .cf_max_ns = 50000};
	struct retry_sender sender;
	struct retry_receiver receiver;
	struct credit_sender credits;
	struct credit_receiver buffer;
	struct wire_frame found;
	struct ctlos init;
	__u8 *frames = aligned_alloc(64, (size_t)RING * frame_bytes), *copies = aligned_alloc(64, (size_t)RING * frame_bytes);
	__u8 address[6] = {2, 0, 0, 0, 0, 1};
	__u64 begun, now = 0, taken = 0, sent = 0;
	volatile __u8 seen = 0;

	if (!frames || !copies || retry_sender_init(&sender, &config, slots, SLOTS) ||
	    credit_sender_init(&credits, &limits) || credit_receiver_init(&buffer, &limits))
		give_up("the beginning");
	retry_receiver_init(&receiver, &config);
	memset(frames, 7, (size_t)RING * frame_bytes);
	memset(copies, 1, (size_t)RING * frame_bytes);
	for (__u32 index = 0; index < RING; index++)
		wire_start(frames + (size_t)index * frame_bytes, address, address, SUE, index & 1);
	retry_start(&sender, 0, 0);
	retry_sender_poll(&sender, 0, &init);
	retry_on_init(&receiver, init.sequence, init.data);
	control(&sender, &receiver, &credits, &buffer, 0);

	begun = now_ns();
	for (__u32 round = 0; round < rounds; round++) {
		size_t at = (size_t)(round % RING) * frame_bytes;

		memcpy(copies + at, frames + at, frame_bytes);
		seen ^= copies[at + frame_bytes / 2];
	}
	printf("%.2f\n", (double)(now_ns() - begun) / rounds);

	begun = now_ns();
	while (taken < rounds) {
		__u32 sequence, handle = sent % RING;
		bool again = retry_replay(&sender, now, &handle, &sequence);
		__u8 *frame = frames + (size_t)handle * frame_bytes;

		if (!again) {
			if (!credit_may_send(&credits, handle & 1, frame_bytes) ||
			    retry_offer(&sender, handle, frame_bytes, false, now, &sequence) != VERDICT_SENT)
				give_up("a frame has to wait");
			credit_sent(&credits, handle & 1, frame_bytes);
			wire_number(frame, frame_bytes, sequence, false);
			sent++;
		}
		now += 100;
		if (again || !every || sent % every) {
			if (wire_decode(frame, frame_bytes, &found) || found.check != CHECK_GOOD)
				give_up("a frame is wrong");
			if (retry_on_frame(&receiver, found.sequence, found.check)) {
				if (!credit_stored(&buffer, found.vc, frame_bytes))
					give_up("no room");
				credit_freed(&buffer, found.vc, frame_bytes);
				taken++;
			}
		}
		control(&sender, &receiver, &credits, &buffer, now);
		if (retry_sender_poll(&sender, now, &init))
			give_up("it began again");
	}
	printf("%.2f\n", (double)(now_ns() - begun) / rounds);
	if (receiver.counters.rx_expected_seq_good != taken || credits.counters.cf_update_errors)
		give_up("the counters disagree");
	printf("%llu\n", (unsigned long long)sender.counters.tx_replay);
	return 0;
}
