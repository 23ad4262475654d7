/* Frames in and out of packet sockets: packet(7), recvmmsg(2), sendmmsg(2). */
#define _GNU_SOURCE
#include "sockets.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

struct batch {
	struct mmsghdr messages[AT_ONCE];
	struct iovec vectors[AT_ONCE];
};

__u64 monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

struct batch *batch_new(void)
{
	struct batch *batch = calloc(1, sizeof(*batch));

	if (!batch)
		return NULL;
	for (int i = 0; i < AT_ONCE; i++)
		batch->messages[i].msg_hdr = (struct msghdr){.msg_iov = &batch->vectors[i], .msg_iovlen = 1};
	return batch;
}

void batch_free(struct batch *batch)
{
	free(batch);
}

int batch_receive(struct batch *batch, int socket, struct frame_pool *pool, __u32 reserve, __u32 *frames)
{
	int room = 0, count;

	for (; room < AT_ONCE && pool->free.count > reserve; room++) {
		frames[room] = frame_take(pool);
		batch->vectors[room] = (struct iovec){frame_bytes(pool, frames[room]), pool->stride};
		batch->messages[room].msg_hdr.msg_flags = 0;
	}
	count = room ? recvmmsg(socket, batch->messages, room, MSG_DONTWAIT, NULL) : 0;
	for (int i = room; i-- > (count < 0 ? 0 : count);)
		frame_give(pool, frames[i]);
	if (count < 0)
		return errno == EAGAIN || errno == EINTR || errno == ENETDOWN ? 0 : -1;
	for (int i = 0; i < count; i++) {
		bool whole = !(batch->messages[i].msg_hdr.msg_flags & MSG_TRUNC);
		pool->frames[frames[i]].length = whole ? batch->messages[i].msg_len : 0;
	}
	return count;
}

int batch_send(struct batch *batch, int socket, const struct frame_pool *pool, const __u32 *frames, int count,
	       __u64 *failures)
{
	int done = 0;

	for (int i = 0; i < count; i++)
		batch->vectors[i] = (struct iovec){frame_bytes(pool, frames[i]), pool->frames[frames[i]].length};
	while (done < count) {
		int sent = sendmmsg(socket, batch->messages + done, count - done, MSG_DONTWAIT);
		if (sent > 0) {
			done += sent;
		} else if (errno == EAGAIN) {
			break;
		} else if (errno != EINTR) { /* ENOBUFS, ENETDOWN: the wire has lost it */
			(*failures)++;
			done++;
		}
	}
	return done;
}
