/* The connection of a domain to the process that has the UET endpoints: requests go out from any thread, and a thread of
 * its own takes the replies. */
#include "provider.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define OPERATIONS (WIRE_TRANSMITS + WIRE_RECEIVES)
#define REPLIES 512 /* taken by one system call */

static bool take_bytes(int fd, void *buffer, size_t length)
{
	while (length) {
		ssize_t got = recv(fd, buffer, length, MSG_WAITALL);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		buffer = (char *)buffer + got;
		length -= got;
	}
	return true;
}

static int give_bytes(int fd, struct iovec *iov, size_t count)
{
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};

	while (message.msg_iovlen) {
		ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return -errno;
		while (message.msg_iovlen && (size_t)sent >= message.msg_iov->iov_len) {
			sent -= message.msg_iov->iov_len;
			message.msg_iov++;
			message.msg_iovlen--;
		}
		if (message.msg_iovlen) {
			message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
			message.msg_iov->iov_len -= sent;
		}
	}
	return 0;
}

/* The path of the socket. LAB_UET_SOCKET is it, or the directory of those of all hosts, so that ranks of several hosts may
 * have the same environment: a host's is called by its name. */
static bool find_socket(char *path, size_t room)
{
	const char *given = getenv("LAB_UET_SOCKET");
	char host[HOST_NAME_MAX + 1] = "";
	struct stat found;
	int length;

	if (!given || !*given || stat(given, &found))
		return false;
	if (S_ISDIR(found.st_mode)) {
		gethostname(host, HOST_NAME_MAX);
		length = snprintf(path, room, "%s/%s.sock", given, host);
	} else {
		length = snprintf(path, room, "%s", given);
	}
	return length > 0 && (size_t)length < room;
}

int connection_dial(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd, error;

	if (!find_socket(name.sun_path, sizeof name.sun_path))
		return -FI_ENODATA;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&name, sizeof name)) {
		error = -errno;
		close(fd);
		return error;
	}
	return fd;
}

/* A question before the thread runs. */
int dial_ask(int fd, struct wire_request *request, const void *body, struct wire_reply *answer)
{
	struct iovec iov[2] = {{request, sizeof *request}, {(void *)body, request->body}};
	int error = give_bytes(fd, iov, request->body ? 2 : 1);

	if (error)
		return error;
	if (!take_bytes(fd, answer, sizeof *answer) || answer->kind != WIRE_ANSWER)
		return -FI_EIO;
	return -(int)answer->error;
}

/* Whether this process has opened it. A forked child asks before it takes a lock, which the thread of its parent may have
 * held; and where something is closed, no lock and no condition is destroyed: that waits for who waits (and frees nothing).
 */
bool connection_is_own(const struct connection *connection)
{
	return connection->owner == getpid();
}

/* --- operations ---------------------------------------------------------------------------------------------- */

uint64_t operation_id(struct connection *connection, const struct operation *operation)
{
	return (uint64_t)operation->life << 32 | (operation - connection->operations);
}

static struct operation *operation_of(struct connection *connection, uint64_t id)
{
	struct operation *operation;

	if ((uint32_t)id >= OPERATIONS)
		return NULL;
	operation = &connection->operations[(uint32_t)id];
	return operation->in_use && operation->life == id >> 32 ? operation : NULL;
}

/* NULL where too many are under way. */
struct operation *operation_take(struct connection *connection, bool receives)
{
	struct operation **first = receives ? &connection->free_receives : &connection->free_transmits;
	struct operation *found;

	pthread_mutex_lock(&connection->lock);
	found = connection->dead ? NULL : *first;
	if (found) {
		uint32_t life = found->life + 1;

		*first = found->next;
		*found = (struct operation){.life = life, .in_use = true, .receives = receives};
	}
	pthread_mutex_unlock(&connection->lock);
	return found;
}

static void unlink_posted(struct operation *operation)
{
	if (operation->before)
		operation->before->next = operation->next;
	else if (operation->endpoint && operation->endpoint->posted == operation)
		operation->endpoint->posted = operation->next;
	if (operation->next)
		operation->next->before = operation->before;
	operation->next = operation->before = NULL;
}

/* With the lock held. */
void operation_end(struct connection *connection, struct operation *operation)
{
	struct operation **first = operation->receives ? &connection->free_receives : &connection->free_transmits;

	unlink_posted(operation);
	operation->in_use = false;
	operation->next = *first;
	*first = operation;
}

void operation_give(struct connection *connection, struct operation *operation)
{
	pthread_mutex_lock(&connection->lock);
	operation_end(connection, operation);
	pthread_mutex_unlock(&connection->lock);
}

/* --- requests and replies ------------------------------------------------------------------------------------- */

int connection_send(struct connection *connection, struct wire_request *request, const struct iovec *body, size_t count)
{
	struct iovec iov[2 * WIRE_PLACES + 4] = {{request, sizeof *request}};
	int error;

	if (count > sizeof iov / sizeof *iov - 1)
		return -FI_EINVAL;
	memcpy(iov + 1, body, count * sizeof *body);
	pthread_mutex_lock(&connection->writing);
	error = connection->dead ? -FI_ENODEV : give_bytes(connection->fd, iov, count + 1);
	pthread_mutex_unlock(&connection->writing);
	return error;
}

/* Wait for the answer. Its error is returned. */
int connection_ask(struct connection *connection, struct wire_request *request, const struct iovec *body, size_t count,
		   struct wire_reply *answer)
{
	struct operation *operation;
	int error;

	if (!connection_is_own(connection))
		return -FI_ENODEV;
	operation = operation_take(connection, false);
	if (!operation) /* as many sends are under way as there may be: what closes something is not to fail for that */
		operation = operation_take(connection, true);
	if (!operation)
		return connection->dead ? -FI_ENODEV : -FI_EAGAIN;
	memset(answer, 0, sizeof *answer);
	operation->answer = answer;
	request->id = operation_id(connection, operation);
	error = connection_send(connection, request, body, count);
	pthread_mutex_lock(&connection->lock);
	while (!error && !answer->kind && !connection->dead)
		pthread_cond_wait(&connection->answered, &connection->lock);
	if (!error)
		error = answer->kind ? -(int)answer->error : -FI_ENODEV;
	operation_end(connection, operation);
	pthread_mutex_unlock(&connection->lock);
	return error;
}

static void take_reply(struct domain *domain, const struct wire_reply *reply)
{
	struct connection *connection = &domain->connection;
	struct operation *operation;

	if (reply->kind == WIRE_WRITTEN) {
		endpoint_written(domain, reply);
		return;
	}
	operation = operation_of(connection, reply->id);
	if (!operation)
		return;
	if (operation->answer) {
		pthread_mutex_lock(&connection->lock);
		*operation->answer = *reply;
		pthread_cond_broadcast(&connection->answered);
		pthread_mutex_unlock(&connection->lock);
		return;
	}
	endpoint_done(domain, operation, reply);
}

/* The process at the other end is gone: all that is under way has failed. */
static void fail_all(struct domain *domain)
{
	struct connection *connection = &domain->connection;
	struct wire_reply reply = {.kind = WIRE_DONE, .flags = WIRE_LAST, .error = FI_EIO};

	pthread_mutex_lock(&connection->lock);
	connection->dead = true;
	pthread_cond_broadcast(&connection->answered);
	pthread_mutex_unlock(&connection->lock);
	for (size_t i = 0; i < OPERATIONS; i++) {
		struct operation *operation = &connection->operations[i];

		if (!operation->in_use || operation->answer)
			continue;
		endpoint_done(domain, operation, &reply);
	}
}

static void *take_replies(void *argument)
{
	struct domain *domain = argument;
	static __thread struct wire_reply replies[REPLIES];
	size_t held = 0;

	for (;;) {
		ssize_t got = recv(domain->connection.fd, (char *)replies + held, sizeof replies - held, 0);
		size_t whole;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		held += got;
		whole = held / sizeof *replies;
		for (size_t i = 0; i < whole; i++)
			take_reply(domain, &replies[i]);
		held -= whole * sizeof *replies;
		memmove(replies, &replies[whole], held);
	}
	fail_all(domain);
	return NULL;
}

int connection_open(struct connection *connection, struct domain *domain)
{
	sigset_t all, before;
	int error;

	pthread_mutex_init(&connection->writing, NULL);
	pthread_mutex_init(&connection->lock, NULL);
	pthread_cond_init(&connection->answered, NULL);
	connection->operations = calloc(OPERATIONS, sizeof *connection->operations);
	if (!connection->operations)
		return -FI_ENOMEM;
	for (size_t i = OPERATIONS; i-- > 0;) {
		connection->operations[i].receives = i >= WIRE_TRANSMITS;
		operation_end(connection, &connection->operations[i]);
	}
	sigfillset(&all); /* signals are the program's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = -pthread_create(&connection->thread, NULL, take_replies, domain);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	connection->running = !error;
	if (!error)
		pthread_setname_np(connection->thread, "uet-replies");
	return error;
}

/* In a forked child it ends for the child alone: the parent's goes on. */
void connection_close(struct connection *connection)
{
	if (connection_is_own(connection)) {
		shutdown(connection->fd, SHUT_RDWR);
		if (connection->running)
			pthread_join(connection->thread, NULL);
	}
	close(connection->fd);
	free(connection->operations);
}
