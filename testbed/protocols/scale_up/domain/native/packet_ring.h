/* Frames that the kernel puts into memory shared with it: packet(7), PACKET_RX_RING in version 2.
 *
 * No system call is needed for a frame, and the kernel frees its own memory of it at once, where it was allocated: that
 * is a third of what a frame costs by recvmmsg(2). All memory is there from the start, so what finds no free slot is
 * lost, and counted by the socket (PACKET_STATISTICS). Source: Documentation/networking/packet_mmap.rst.
 */
#ifndef TESTBED_SCALE_UP_PACKET_RING_H
#define TESTBED_SCALE_UP_PACKET_RING_H

#include "frame_pool.h"

struct packet_ring;

/* At least `frames` slots for frames of at most `frame_bytes`, from now on instead of the queue of a socket; what waits
 * in that is lost. The socket stays the caller's. NULL: the kernel has no memory for them, or no such rings; the socket
 * is as before. It takes the kernel some milliseconds. */
API struct packet_ring *packet_ring_new(int socket, __u32 frames, __u32 frame_bytes);
API void packet_ring_free(struct packet_ring *ring);

/* The next frame: copied, with its length in the pool (0: too long), and the index of the interface it came in by; false:
 * none has come. */
bool packet_ring_take(struct packet_ring *ring, struct frame_pool *pool, __u32 frame, int *interface);

#endif
