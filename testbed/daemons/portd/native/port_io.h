/* The agent's hands: PFC frames out of ports, gates of egress queues, and the kick that makes an opened queue run.
 *
 * Sockets live in the namespace of the port and are made when it first pauses, because most ports never do and
 * because a packet socket takes an RCU grace period to go. A gate change is one netlink message; the kernel has done
 * it when the call returns and answers only if it failed. Functions return 0 or an errno.
 */
#ifndef TESTBED_PORTD_WIRE_H
#define TESTBED_PORTD_WIRE_H

#include "core.h"

#define GATE_MESSAGE_BYTES 256

/* Netlink messages that close and open the gate of priority 0, for no interface yet. */
struct gate_messages {
	__u32 bytes[2]; /* length of each */
	__u8 message[2][GATE_MESSAGE_BYTES]; /* open, closed */
};

struct namespace {
	char *path;
	int frames, kicks, netlink; /* -1: not open */
};

struct port_io_port {
	__u32 ifindex, namespace, gates;
	__u8 mac[6];
};

struct port_io {
	struct port_io_port *ports; /* by number; those without an ifindex do not exist */
	__u32 port_count;
	struct namespace *namespaces;
	__u32 namespace_count;
	struct gate_messages *gates;
	__u32 gates_count;
};

/* NULL: no memory, or a port that names what is not there. Ports are numbered below `port_count`. */
API struct port_io *port_io_new(const struct attached_port *ports, __u32 count, __u32 port_count, const char *const *namespaces,
			  __u32 namespace_count, const struct gate_messages *gates, __u32 gates_count);
API void port_io_close(struct port_io *port_io); /* its sockets; used again, it opens them again */
API void port_io_free(struct port_io *port_io);

API int port_io_send_frame(struct port_io *port_io, __u32 port, __u32 vector, const __u16 *quanta);
API int port_io_change_gates(struct port_io *port_io, __u32 port, __u32 vector, bool closed);
API int port_io_kick(struct port_io *port_io, __u32 port);

/* A kick apart from its port I/O, as long as that is there. */
struct kick_target {
	int descriptor;
	__u32 ifindex;
	__u8 mac[6];
};

int port_io_kick_target(struct port_io *port_io, __u32 port, struct kick_target *target);
int kick_now(const struct kick_target *target);

/* What the kernel says of gate changes, to failed ones alone: one of them; false: there is none any more. */
bool port_io_failed_gate(struct port_io *port_io, __u32 *port, int *error);

#endif
