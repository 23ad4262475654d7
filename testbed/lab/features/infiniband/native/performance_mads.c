/* Leads the performance datagrams of a tool of InfiniBand to the wires of a subnet that is up.
 *
 * It is loaded into the tool before umad2sim, which leads all datagrams to ibsim. ibsim has no frames, so that its
 * counters stand still; whoever carries frames has a socket whose path is in TESTBED_PERFORMANCE_SOCKET. A question to
 * the performance agent (class 4) goes there: two bytes with the LID and 256 with the datagram; the answer, 256 bytes
 * or none, is what the tool receives next. All other datagrams go on to ibsim. Where nobody answers, the tool finds a
 * timeout, as it would before an agent that is silent: ibsim's counters would be no answer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HEAD_BYTES 64 /* struct ib_user_mad of libibumad, before the datagram */
#define STATUS_AT 4
#define LID_AT 28
#define MAD_BYTES 256
#define LID_BYTES 2
#define CLASS_AT 1
#define METHOD_AT 3
#define GET 1
#define SET 2
#define PERFORMANCE_CLASS 4
#define PATIENCE_S 5

typedef int (*send_function)(int, int, void *, int, int, int);
typedef int (*receive_function)(int, void *, int *, int);

static unsigned char pending[HEAD_BYTES + MAD_BYTES];
static enum { NOTHING, ANSWER, SILENCE } state;

static int ask(const unsigned char *question, unsigned char *answer)
{
	const char *path = getenv("TESTBED_PERFORMANCE_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = PATIENCE_S};
	int found = -1, item;

	if (!path || strlen(path) >= sizeof(address.sun_path))
		return -1;
	strcpy(address.sun_path, path);
	item = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (item < 0)
		return -1;
	setsockopt(item, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(item, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (!connect(item, (struct sockaddr *)&address, sizeof(address)) &&
	    send(item, question, LID_BYTES + MAD_BYTES, MSG_NOSIGNAL) == LID_BYTES + MAD_BYTES &&
	    recv(item, answer, MAD_BYTES, 0) == MAD_BYTES)
		found = 0;
	close(item);
	return found;
}

int umad_send(int port, int agent, void *umad, int length, int timeout_ms, int retries)
{
	const unsigned char *mad = (const unsigned char *)umad + HEAD_BYTES;
	unsigned char question[LID_BYTES + MAD_BYTES];
	send_function next;

	if (length >= MAD_BYTES && mad[CLASS_AT] == PERFORMANCE_CLASS && (mad[METHOD_AT] == GET || mad[METHOD_AT] == SET)) {
		memcpy(question, (unsigned char *)umad + LID_AT, LID_BYTES);
		memcpy(question + LID_BYTES, mad, MAD_BYTES);
		memcpy(pending, umad, HEAD_BYTES);
		memset(pending + STATUS_AT, 0, sizeof(int));
		state = ask(question, pending + HEAD_BYTES) ? SILENCE : ANSWER;
		return 0;
	}
	next = (send_function)dlsym(RTLD_NEXT, "umad_send");
	return next ? next(port, agent, umad, length, timeout_ms, retries) : -ENOSYS;
}

int umad_recv(int port, void *umad, int *length, int timeout_ms)
{
	receive_function next;

	if (state == SILENCE) {
		state = NOTHING;
		return -ETIMEDOUT;
	}
	if (state == ANSWER && *length >= MAD_BYTES) {
		state = NOTHING;
		memcpy(umad, pending, sizeof(pending));
		*length = MAD_BYTES;
		return *(int *)umad;
	}
	next = (receive_function)dlsym(RTLD_NEXT, "umad_recv");
	return next ? next(port, umad, length, timeout_ms) : -ENOSYS;
}
