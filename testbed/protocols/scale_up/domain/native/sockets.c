/* Frames in and out of packet sockets: packet(7), recvmmsg(2), sendmmsg(2). */
#define _GNU_SOURCE
#include "sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "wire.h"

struct batch {
	struct mmsghdr messages[AT_ONCE];
	struct iovec vectors[AT_ONCE];
	struct sockaddr_ll names[AT_ONCE]; /* where frames came in, or are to go out */
};

__u64 monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

void socket_forget_error(int socket)
{
	socklen_t size = sizeof(int);
	int error;

	getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
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

static void name(struct batch *batch, int which)
{
	batch->messages[which].msg_hdr.msg_name = &batch->names[which];
	batch->messages[which].msg_hdr.msg_namelen = sizeof(batch->names[which]);
}

int batch_interface(const struct batch *batch, int which)
{
	return batch->names[which].sll_ifindex;
}

static int receive_from_ring(struct batch *batch, struct packet_ring *ring, struct frame_pool *pool, __u32 reserve,
			     __u32 *frames)
{
	int count = 0;

	for (; count < AT_ONCE && pool->free.count > reserve; count++) {
		frames[count] = frame_take(pool);
		if (!packet_ring_take(ring, pool, frames[count], &batch->names[count].sll_ifindex)) {
			frame_give(pool, frames[count]);
			break;
		}
	}
	return count;
}

int batch_receive(struct batch *batch, int socket, struct packet_ring *ring, struct frame_pool *pool, __u32 reserve,
		  __u32 *frames)
{
	int room = 0, count;

	if (ring)
		return receive_from_ring(batch, ring, pool, reserve, frames);
	for (; room < AT_ONCE && pool->free.count > reserve; room++) {
		frames[room] = frame_take(pool);
		batch->vectors[room] = (struct iovec){frame_bytes(pool, frames[room]), pool->stride};
		batch->messages[room].msg_hdr.msg_flags = 0;
		name(batch, room);
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

/* `failures` has a counter for each frame. */
static int send_all(struct batch *batch, int socket, int count, __u64 *const *failures)
{
	int done = 0;

	while (done < count) {
		int sent = sendmmsg(socket, batch->messages + done, count - done, MSG_DONTWAIT);
		if (sent > 0) {
			done += sent;
		} else if (errno == EAGAIN) {
			break;
		} else if (errno != EINTR) { /* ENOBUFS, ENETDOWN, ENXIO: the wire has lost it */
			(*failures[done])++;
			done++;
		}
	}
	return done;
}

int batch_send(struct batch *batch, int socket, const struct frame_pool *pool, const __u32 *frames, int count,
	       __u64 *failures)
{
	__u64 *counters[AT_ONCE];

	for (int i = 0; i < count; i++) {
		batch->vectors[i] = (struct iovec){frame_bytes(pool, frames[i]), pool->frames[frames[i]].length};
		batch->messages[i].msg_hdr.msg_name = NULL;
		batch->messages[i].msg_hdr.msg_namelen = 0;
		counters[i] = failures;
	}
	return send_all(batch, socket, count, counters);
}

int batch_send_by(struct batch *batch, int socket, const struct frame_pool *pool, const __u32 *frames,
		  const int *interfaces, __u64 *const *failures, int count)
{
	for (int i = 0; i < count; i++) {
		batch->vectors[i] = (struct iovec){frame_bytes(pool, frames[i]), pool->frames[frames[i]].length};
		name(batch, i);
		batch->names[i] = (struct sockaddr_ll){
			.sll_family = AF_PACKET, .sll_protocol = htons(SCALE_UP_ETHERTYPE), .sll_ifindex = interfaces[i]};
	}
	return send_all(batch, socket, count, failures);
}
