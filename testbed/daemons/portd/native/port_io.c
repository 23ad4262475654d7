/* The agent's hands. Message formats: packet(7), rtnetlink(7), linux/rtnetlink.h. */
#define _GNU_SOURCE
#include "port_io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pfc.h"

#define KICK_ETHERTYPE 0x88b5 /* local experimental (IEEE 802); port_enqueue drops it, and the qdisc runs all the same */

/* ------------------------------------------------------------------ sockets */

/* Sends alone: protocol 0 receives nothing. */
static int packet_socket(void)
{
	return socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static void close_sockets(struct namespace *namespace)
{
	int *all[] = {&namespace->frames, &namespace->kicks, &namespace->netlink};

	for (int i = 0; i < 3; i++) {
		if (*all[i] >= 0)
			close(*all[i]);
		*all[i] = -1;
	}
}

/* In the namespace that the thread is in: one socket each for frames that pass the queue by, for kicks through it, and
 * for netlink. */
static int open_sockets(struct namespace *namespace)
{
	struct sockaddr_nl address = {.nl_family = AF_NETLINK};
	int error, on = 1;

	namespace->frames = packet_socket();
	namespace->kicks = packet_socket();
	namespace->netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	if (namespace->frames >= 0 && namespace->kicks >= 0 && namespace->netlink >= 0 &&
	    !setsockopt(namespace->frames, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) &&
	    !bind(namespace->netlink, (struct sockaddr *)&address, sizeof(address)))
		return 0;
	error = errno;
	close_sockets(namespace);
	return error;
}

static int enter_and_open(struct namespace *namespace, int own)
{
	int target = open(namespace->path, O_RDONLY | O_CLOEXEC), error;

	if (target < 0)
		return errno;
	error = setns(target, CLONE_NEWNET) ? errno : 0;
	close(target);
	if (error)
		return error;
	error = open_sockets(namespace);
	if (setns(own, CLONE_NEWNET))
		error = errno;
	return error;
}

static int make_sockets(struct namespace *namespace)
{
	int own, error;

	if (namespace->netlink >= 0)
		return 0;
	own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (own < 0)
		return errno;
	error = enter_and_open(namespace, own);
	close(own);
	return error;
}

/* The port with its sockets there. */
static int find(struct port_io *port_io, __u32 number, struct port_io_port **port, struct namespace **namespace)
{
	if (number >= port_io->port_count || !port_io->ports[number].ifindex)
		return ENODEV;
	*port = &port_io->ports[number];
	*namespace = &port_io->namespaces[(*port)->namespace];
	return make_sockets(*namespace);
}

/* ------------------------------------------------------------------ frames */

static int transmit(int descriptor, __u32 ifindex, const __u8 *frame)
{
	struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = ifindex, .sll_halen = 6};

	if (sendto(descriptor, frame, PFC_FRAME_BYTES, 0, (struct sockaddr *)&address, sizeof(address)) < 0)
		return errno;
	return 0;
}

int port_io_send_frame(struct port_io *port_io, __u32 number, __u32 vector, const __u16 *quanta)
{
	struct namespace *namespace;
	struct port_io_port *port;
	__u8 frame[PFC_FRAME_BYTES];
	int error = find(port_io, number, &port, &namespace);

	if (error)
		return error;
	pfc_encode(frame, port->mac, vector, quanta);
	return transmit(namespace->frames, port->ifindex, frame);
}

int kick_now(const struct kick_target *target)
{
	/* To the LLDP group address, which no bridge forwards. */
	__u8 frame[PFC_FRAME_BYTES] = {0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e};
	int error;

	memcpy(frame + 6, target->mac, 6);
	frame[12] = KICK_ETHERTYPE >> 8;
	frame[13] = KICK_ETHERTYPE & 0xff;
	error = transmit(target->descriptor, target->ifindex, frame);
	/* ENOBUFS is how the stack says that the queue dropped the kick, as it must, having run; EAGAIN that so much
	 * waits at this port already that it runs. */
	return error == ENOBUFS || error == EAGAIN ? 0 : error;
}

int port_io_kick_target(struct port_io *port_io, __u32 number, struct kick_target *target)
{
	struct namespace *namespace;
	struct port_io_port *port;
	int error = find(port_io, number, &port, &namespace);

	if (error)
		return error;
	target->descriptor = namespace->kicks;
	target->ifindex = port->ifindex;
	memcpy(target->mac, port->mac, 6);
	return 0;
}

int port_io_kick(struct port_io *port_io, __u32 number)
{
	struct kick_target target;
	int error = port_io_kick_target(port_io, number, &target);

	return error ? error : kick_now(&target);
}

/* ------------------------------------------------------------------ gates */

int port_io_change_gates(struct port_io *port_io, __u32 number, __u32 vector, bool closed)
{
	__u8 batch[PRIORITIES * GATE_MESSAGE_BYTES] __attribute__((aligned(NLMSG_ALIGNTO)));
	const struct gate_messages *gates;
	struct namespace *namespace;
	struct port_io_port *port;
	__u32 length = 0;
	int error = find(port_io, number, &port, &namespace);

	if (error)
		return error;
	gates = &port_io->gates[port->gates];
	for (__u32 priority = 0; priority < PRIORITIES; priority++) {
		struct nlmsghdr *header = (struct nlmsghdr *)(batch + length);
		struct tcmsg *message = NLMSG_DATA(header);
		if (!(vector >> priority & 1))
			continue;
		memcpy(header, gates->message[closed], gates->bytes[closed]);
		header->nlmsg_seq = number << 4 | priority << 1 | closed;
		message->tcm_ifindex = port->ifindex;
		message->tcm_handle += priority << 16; /* the qdisc 10: of priority 0, 11: of priority 1 ... */
		message->tcm_parent += priority;
		length += gates->bytes[closed];
	}
	return send(namespace->netlink, batch, length, 0) < 0 ? errno : 0;
}

static bool answer(struct namespace *namespace, __u32 *port, int *error)
{
	__u8 data[8192] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct nlmsghdr *header = (struct nlmsghdr *)data;
	struct nlmsgerr *message = NLMSG_DATA(header);

	for (;;) {
		ssize_t length = recv(namespace->netlink, data, sizeof(data), MSG_DONTWAIT);
		if (length < 0 && errno == ENOBUFS)
			continue; /* answers were lost: go on with the others */
		if (length < (ssize_t)NLMSG_LENGTH(sizeof(*message)))
			return false;
		if (header->nlmsg_type == NLMSG_ERROR && message->error) {
			*port = header->nlmsg_seq >> 4;
			*error = -message->error;
			return true;
		}
	}
}

bool port_io_failed_gate(struct port_io *port_io, __u32 *port, int *error)
{
	for (__u32 i = 0; i < port_io->namespace_count; i++) {
		if (port_io->namespaces[i].netlink >= 0 && answer(&port_io->namespaces[i], port, error))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------ beginning and end */

static bool describe(struct port_io *port_io, const struct attached_port *ports, __u32 count)
{
	for (__u32 i = 0; i < count; i++) {
		const struct attached_port *port = &ports[i];
		struct port_io_port *own;
		if (port->number >= port_io->port_count || port->namespace >= port_io->namespace_count ||
		    port->gates >= port_io->gates_count)
			return false;
		own = &port_io->ports[port->number];
		own->ifindex = port->ifindex;
		own->namespace = port->namespace;
		own->gates = port->gates;
		memcpy(own->mac, port->mac, 6);
	}
	return true;
}

static bool copy_namespaces(struct port_io *port_io, const char *const *paths)
{
	for (__u32 i = 0; i < port_io->namespace_count; i++) {
		struct namespace *namespace = &port_io->namespaces[i];
		namespace->frames = namespace->kicks = namespace->netlink = -1;
		namespace->path = strdup(paths[i]);
		if (!namespace->path) {
			port_io->namespace_count = i;
			return false;
		}
	}
	return true;
}

static bool copy_gates(struct port_io *port_io, const struct gate_messages *gates)
{
	for (__u32 i = 0; i < port_io->gates_count; i++) {
		for (int closed = 0; closed < 2; closed++) {
			__u32 bytes = gates[i].bytes[closed];
			if (bytes < NLMSG_LENGTH(sizeof(struct tcmsg)) || bytes > GATE_MESSAGE_BYTES ||
			    bytes % NLMSG_ALIGNTO)
				return false;
		}
		port_io->gates[i] = gates[i];
	}
	return true;
}

struct port_io *port_io_new(const struct attached_port *ports, __u32 count, __u32 port_count, const char *const *namespaces,
		      __u32 namespace_count, const struct gate_messages *gates, __u32 gates_count)
{
	struct port_io *port_io = calloc(1, sizeof(*port_io));

	if (!port_io)
		return NULL;
	port_io->ports = calloc(port_count + 1, sizeof(*port_io->ports));
	port_io->namespaces = calloc(namespace_count + 1, sizeof(*port_io->namespaces));
	port_io->gates = calloc(gates_count + 1, sizeof(*port_io->gates));
	if (port_io->ports && port_io->namespaces && port_io->gates) {
		port_io->port_count = port_count;
		port_io->namespace_count = namespace_count;
		port_io->gates_count = gates_count;
		if (copy_namespaces(port_io, namespaces) && copy_gates(port_io, gates) && describe(port_io, ports, count))
			return port_io;
	}
	port_io_free(port_io);
	return NULL;
}

void port_io_close(struct port_io *port_io)
{
	for (__u32 i = 0; i < port_io->namespace_count; i++)
		close_sockets(&port_io->namespaces[i]);
}

void port_io_free(struct port_io *port_io)
{
	if (!port_io)
		return;
	port_io_close(port_io);
	for (__u32 i = 0; i < port_io->namespace_count; i++)
		free(port_io->namespaces[i].path);
	free(port_io->namespaces);
	free(port_io->ports);
	free(port_io->gates);
	free(port_io);
}
