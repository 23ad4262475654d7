/* Has a subnet manager wait for the answer of another one before it asks for anything else.
 *
 * It is loaded into OpenSM before umad2sim, which leads all datagrams to ibsim. ibsim answers what is asked of nodes
 * itself, and at once. A question to another manager (SMInfo) it passes on, and the answer it gives to the program that
 * last sent a request of the same transaction: once the asking manager has sent another request, the answer is dropped,
 * and OpenSM waits for it for ever. So requests wait here while a question to a manager is open; responses do not, since
 * the other manager may be waiting for one. A question that is open for PATIENCE_S has failed, as the kernel would say of
 * one whose time is over: umad2sim knows no timeouts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define HEAD_BYTES 64 /* struct ib_user_mad of libibumad, before the datagram */
#define STATUS_AT 4
#define MAD_BYTES 256
#define CLASS_AT 1
#define METHOD_AT 3
#define NUMBER_AT 12 /* the lower half of the transaction's number: the upper one is the agent's */
#define NUMBER_BYTES 4
#define ATTRIBUTE_AT 16
#define RESPONSE 0x80
#define BY_LID 0x01
#define DIRECTED 0x81
#define SM_INFO 0x20
#ifndef PATIENCE_S
#define PATIENCE_S 5
#define LOOK_MS 500 /* so often a receiver looks whether the time of a question is over */
#endif

typedef int (*send_function)(int, int, void *, int, int, int);
typedef int (*receive_function)(int, void *, int *, int);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static bool is_open;
static struct timespec until; /* CLOCK_MONOTONIC */
static unsigned char question[HEAD_BYTES + MAD_BYTES];
static int asking; /* the agent */
static send_function next_send;
static receive_function next_receive;

__attribute__((constructor)) static void find_next(void)
{
	next_send = (send_function)dlsym(RTLD_NEXT, "umad_send");
	next_receive = (receive_function)dlsym(RTLD_NEXT, "umad_recv");
}

static bool is_over(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec);
}

static bool is_sm_info(const unsigned char *mad)
{
	return (mad[CLASS_AT] == BY_LID || mad[CLASS_AT] == DIRECTED) && !mad[ATTRIBUTE_AT] &&
	       mad[ATTRIBUTE_AT + 1] == SM_INFO;
}

/* With the mutex: there is no question any more. */
static void settle(void)
{
	is_open = false;
	pthread_cond_broadcast(&answered);
}

int umad_send(int port, int agent, void *umad, int length, int timeout_ms, int retries)
{
	const unsigned char *mad = (const unsigned char *)umad + HEAD_BYTES;
	int sent;

	if (!next_send)
		return -ENOSYS;
	if (length < MAD_BYTES || mad[METHOD_AT] & RESPONSE)
		return next_send(port, agent, umad, length, timeout_ms, retries);
	pthread_mutex_lock(&mutex);
	while (is_open)
		pthread_cond_wait(&answered, &mutex);
	if (is_sm_info(mad)) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += PATIENCE_S;
		memcpy(question, umad, sizeof(question));
		asking = agent;
		is_open = true;
	}
	sent = next_send(port, agent, umad, length, timeout_ms, retries);
	if (sent && is_sm_info(mad))
		settle();
	pthread_mutex_unlock(&mutex);
	return sent;
}

/* Whether a question has failed, which is what the receiver gets then. */
static bool take_failed(void *umad, int *length)
{
	bool failed;
	int status = ETIMEDOUT;

	pthread_mutex_lock(&mutex);
	failed = is_open && is_over() && *length >= MAD_BYTES;
	if (failed) {
		memcpy(umad, question, sizeof(question));
		memcpy((unsigned char *)umad + STATUS_AT, &status, sizeof(status));
		*length = MAD_BYTES;
		settle();
	}
	pthread_mutex_unlock(&mutex);
	return failed;
}

/* Whether what has come in is the answer to the question, or says that it did not get there. */
static bool is_answer(const unsigned char *umad)
{
	const unsigned char *mad = umad + HEAD_BYTES;
	int status;

	memcpy(&status, umad + STATUS_AT, sizeof(status));
	return is_open && is_sm_info(mad) && (mad[METHOD_AT] & RESPONSE || status) &&
	       !memcmp(mad + NUMBER_AT, question + HEAD_BYTES + NUMBER_AT, NUMBER_BYTES);
}

int umad_recv(int port, void *umad, int *length, int timeout_ms)
{
	int found, room = *length;

	if (!next_receive)
		return -ENOSYS;
	do {
		*length = room;
		found = next_receive(port, umad, length, timeout_ms < 0 ? LOOK_MS : timeout_ms);
		if (found == -ETIMEDOUT && (*length = room, take_failed(umad, length)))
			return asking;
	} while (found == -ETIMEDOUT && timeout_ms < 0);
	if (found >= 0) {
		pthread_mutex_lock(&mutex);
		if (is_answer(umad))
			settle();
		pthread_mutex_unlock(&mutex);
	}
	return found;
}
