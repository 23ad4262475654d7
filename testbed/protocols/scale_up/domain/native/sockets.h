/* Frames in and out of packet sockets, many in one system call.
 *
 * A GPU's end has a socket for each interface. A switch has one for all interfaces of its namespace, for the kernel waits
 * some milliseconds at the end of each socket, and so many system calls would be needed as ports are busy.
 */
#ifndef TESTBED_SCALE_UP_SOCKETS_H
#define TESTBED_SCALE_UP_SOCKETS_H

#include "frame_pool.h"
#include "packet_ring.h"

#define AT_ONCE 32

struct batch; /* what the system calls are told, made once */

struct batch *batch_new(void); /* NULL: no memory */
void batch_free(struct batch *batch);

/* Up to AT_ONCE frames that wait at a socket, or in its ring (NULL: it has none), leaving `reserve` in the pool; their
 * numbers in `frames`. -1: an error that will not pass, in errno. A frame that is too long for the pool comes with length
 * 0. */
int batch_receive(struct batch *batch, int socket, struct packet_ring *ring, struct frame_pool *pool, __u32 reserve,
		  __u32 *frames);

/* The index of the interface that frame number `which` of the last receipt came in by. */
int batch_interface(const struct batch *batch, int which);

/* Send `count` frames, at most AT_ONCE; how many of the first are done with. `failures` counts those the kernel did not
 * take. */
int batch_send(struct batch *batch, int socket, const struct frame_pool *pool, const __u32 *frames, int count,
	       __u64 *failures);

/* The same by a socket of many interfaces: each frame goes out by the interface of that index, and has a counter. */
int batch_send_by(struct batch *batch, int socket, const struct frame_pool *pool, const __u32 *frames,
		  const int *interfaces, __u64 *const *failures, int count);

/* An error that waits at a socket, and makes it readable, is none of ours. */
void socket_forget_error(int socket);

API __u64 monotonic_ns(void);

#endif
