/* The switch's process: its ports' sockets, and its waiting. */
#ifndef TESTBED_SCALE_UP_SWITCH_LOOP_H
#define TESTBED_SCALE_UP_SWITCH_LOOP_H

#include "sockets.h"
#include "switch.h"

struct switch_loop {
	struct scale_up_switch *sw;
	struct batch *batch;
	int control;
	int socket, pause_socket;  /* -1: none */
	struct packet_ring *ring;  /* of `socket`; NULL: none */
	int *interfaces;           /* by port, their indexes */
	__u32 *ports, ports_mask;  /* by index, as `find_port` looks for it; 0: free, else the port's number + 1 */
	__u64 quantum_ns; /* least time between two rounds, where there is much to do */
	__u64 slot_ns;    /* when counting began */
	__u32 came, came_before; /* frames since then, and in the slot before */
	__u64 asleep_ns;  /* in all, of waiting */
};

/* The sockets are of all interfaces of the namespace, `pause_socket` of PFC's EtherType (-1: none), and stay the caller's;
 * as is the ring of the first (NULL: none); `interfaces` are the indexes of the ports'. `control` becomes readable when Python has something to do. After a round the switch sleeps for `quantum_ns` where more than one frame came in such a time
 * lately, so that they come many at a time and cost less. NULL: no memory or descriptor. */
API struct switch_loop *switch_loop_new(struct scale_up_switch *sw, int socket, struct packet_ring *ring,
					int pause_socket, const int *interfaces, int control, __u64 quantum_ns);
API void switch_loop_free(struct switch_loop *loop);

/* Switch until `control` is readable or a signal came. */
API void switch_loop_run(struct switch_loop *loop);

API __u64 switch_loop_asleep_ns(const struct switch_loop *loop);

#endif
