/* Endpoints: messages and tagged messages, and what becomes of the operations of all kinds. Source: fi_endpoint(3),
 * fi_msg(3), fi_tagged(3). */
#include "provider.h"

size_t total(const struct iovec *iov, size_t count)
{
	size_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* Copy the places of an iovec. Returns how many bytes they take in a body. */
static size_t put_places(struct wire_place *places, const struct iovec *iov, size_t count)
{
	for (size_t i = 0; i < count; i++)
		places[i] = (struct wire_place){(uint64_t)(uintptr_t)iov[i].iov_base, iov[i].iov_len};
	return count * sizeof *places;
}

/* --- transmits ------------------------------------------------------------------------------------------------- */

static struct counter *counter_of(struct endpoint *endpoint, uint64_t flags)
{
	if (flags & FI_SEND)
		return endpoint->sends;
	return flags & FI_READ ? endpoint->reads : endpoint->writes;
}

static uint64_t completion_flags(uint16_t kind)
{
	switch (kind) {
	case WIRE_TAGGED_SEND:
		return FI_TAGGED | FI_SEND;
	case WIRE_WRITE:
		return FI_RMA | FI_WRITE;
	case WIRE_READ:
		return FI_RMA | FI_READ;
	default:
		return FI_MSG | FI_SEND;
	}
}

/* Begin what sends: `request` says what, `data` where its bytes are, or are to go to. With FI_INJECT in `flags` they are
 * copied before this returns. */
ssize_t begin(struct endpoint *endpoint, struct wire_request *request, const struct iovec *data, size_t count,
	      fi_addr_t to, void *context, uint64_t flags)
{
	struct connection *connection = &endpoint->domain->connection;
	size_t length = total(data, count);
	uint64_t kind = completion_flags(request->kind);
	bool fetches = request->kind == WIRE_READ;
	struct wire_place places[WIRE_PLACES];
	struct iovec body[WIRE_PLACES + 1];
	struct operation *operation;
	size_t parts = 0;
	int error;

	if (!connection_is_own(connection))
		return -FI_ENODEV;
	if (count > WIRE_PLACES || length > WIRE_MESSAGE_BYTES || (flags & FI_INJECT && !fetches && length > INJECT_BYTES))
		return -FI_EINVAL;
	if (!endpoint->enabled)
		return -FI_EOPBADSTATE;
	if (!vector_name(endpoint->vector, to, &request->peer))
		return -FI_EINVAL;
	request->endpoint = endpoint->name.index;
	request->length = length;
	if (flags & FI_REMOTE_CQ_DATA)
		request->flags |= WIRE_HAS_DATA;
	if (length <= WIRE_INLINE_BYTES && !fetches) {
		request->flags |= WIRE_INLINE;
		request->body = length;
		for (size_t i = 0; i < count; i++)
			if (data[i].iov_len)
				body[parts++] = data[i];
	} else {
		request->places = count;
		request->body = put_places(places, data, count);
		body[parts++] = (struct iovec){places, request->body};
	}
	operation = operation_take(connection, false);
	if (!operation)
		return connection->dead ? -FI_ENODEV : -FI_EAGAIN;
	operation->context = context;
	operation->endpoint = endpoint;
	operation->flags = kind;
	operation->silent = flags & UNTOLD || (endpoint->transmits_selective && !(flags & FI_COMPLETION));
	operation->counter = counter_of(endpoint, kind);
	request->id = operation_id(connection, operation);
	error = connection_send(connection, request, body, parts);
	if (error)
		operation_give(connection, operation);
	return error;
}

/* Begin what is copied at once, and told only if it fails. */
ssize_t inject(struct endpoint *endpoint, struct wire_request *request, const struct iovec *data, fi_addr_t to,
	       uint64_t flags)
{
	return begin(endpoint, request, data, 1, to, NULL, flags | FI_INJECT | UNTOLD);
}

/* --- receives -------------------------------------------------------------------------------------------------- */

static ssize_t post(struct endpoint *endpoint, struct wire_request *request, const struct iovec *iov, size_t count,
		    fi_addr_t from, void *context, uint64_t flags)
{
	struct connection *connection = &endpoint->domain->connection;
	struct wire_place places[WIRE_PLACES];
	struct iovec body = {places, 0};
	struct operation *operation;
	bool peeks = request->kind == WIRE_PEEK;
	int error;

	if (!connection_is_own(connection))
		return -FI_ENODEV;
	if (count > WIRE_PLACES)
		return -FI_EINVAL;
	if (!endpoint->enabled)
		return -FI_EOPBADSTATE;
	if (from != FI_ADDR_UNSPEC && endpoint->caps & FI_DIRECTED_RECV) {
		if (!vector_name(endpoint->vector, from, &request->peer))
			return -FI_EINVAL;
		request->flags |= WIRE_DIRECTED;
	}
	if (!peeks) {
		request->places = count;
		request->length = total(iov, count);
		request->body = body.iov_len = put_places(places, iov, count);
	}
	request->endpoint = endpoint->name.index;
	operation = operation_take(connection, true);
	if (!operation)
		return connection->dead ? -FI_ENODEV : -FI_EAGAIN;
	operation->context = context;
	operation->endpoint = endpoint;
	operation->buffer = count ? iov[0].iov_base : NULL;
	operation->flags = FI_RECV | (request->kind == WIRE_RECEIVE ? FI_MSG : FI_TAGGED);
	operation->silent = !peeks && endpoint->receives_selective && !(flags & FI_COMPLETION);
	operation->multi = request->flags & WIRE_MULTI;
	operation->peeks = peeks;
	operation->counter = peeks ? NULL : endpoint->receptions;
	request->id = operation_id(connection, operation);
	pthread_mutex_lock(&connection->lock);
	operation->next = endpoint->posted;
	if (operation->next)
		operation->next->before = operation;
	endpoint->posted = operation;
	pthread_mutex_unlock(&connection->lock);
	error = connection_send(connection, request, &body, body.iov_len ? 1 : 0);
	if (error)
		operation_give(connection, operation);
	return error;
}

/* --- ends ------------------------------------------------------------------------------------------------------- */

/* An operation has ended, or a message is in a buffer for several. Its counter counts it in any case; a queue has it if it
 * has failed, or was asked to tell. The lock is let go once it is no operation under way any more: who has read from the
 * queue that it ended cannot cancel it, and has room for another one. */
void endpoint_done(struct domain *domain, struct operation *operation, const struct wire_reply *reply)
{
	struct endpoint *endpoint;
	struct queue *queue;
	struct completion one = {
		.entry = {.op_context = operation->context, .flags = operation->flags, .len = reply->length},
		.source = FI_ADDR_NOTAVAIL,
		.error = reply->error,
		.code = reply->code,
	};

	pthread_mutex_lock(&domain->connection.lock);
	endpoint = operation->endpoint;
	if (endpoint) { /* else it was closed meanwhile */
		queue = operation->receives ? endpoint->receives : endpoint->transmits;
		if (operation->receives) {
			one.entry.buf = operation->buffer;
			if (reply->error)
				one.excess = reply->offset;
			else if (operation->buffer)
				one.entry.buf = (char *)operation->buffer + reply->offset;
			one.entry.tag = reply->tag;
			if (!reply->error && endpoint->caps & FI_SOURCE)
				one.source = vector_find(endpoint->vector, &reply->peer);
			if (reply->flags & WIRE_HAS_DATA) {
				one.entry.flags |= FI_REMOTE_CQ_DATA;
				one.entry.data = reply->data;
			}
			if (operation->multi && reply->flags & WIRE_LAST)
				one.entry.flags |= FI_MULTI_RECV;
		} else {
			one.entry.len = 0;
		}
		if (operation->counter)
			counter_count(operation->counter, reply->error);
		if (queue && (reply->error || !operation->silent))
			queue_put(queue, &one);
	}
	if (!operation->multi || reply->flags & WIRE_LAST)
		operation_end(&domain->connection, operation);
	pthread_mutex_unlock(&domain->connection.lock);
}

/* A peer has written with data: the receiving queue tells of it, without a context. */
void endpoint_written(struct domain *domain, const struct wire_reply *reply)
{
	struct completion one = {
		.entry = {.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, .len = reply->length, .data = reply->data},
		.source = FI_ADDR_NOTAVAIL,
	};
	struct endpoint *endpoint;

	pthread_mutex_lock(&domain->connection.lock);
	endpoint = reply->endpoint <= WIRE_ENDPOINTS ? domain->endpoints[reply->endpoint] : NULL;
	if (endpoint && endpoint->receives) {
		if (endpoint->caps & FI_SOURCE)
			one.source = vector_find(endpoint->vector, &reply->peer);
		queue_put(endpoint->receives, &one);
	}
	pthread_mutex_unlock(&domain->connection.lock);
}

/* --- messages --------------------------------------------------------------------------------------------------- */

#define EP(fid) ((struct endpoint *)(fid))
#define ONE(buffer, length)                                                                                            \
	(struct iovec) { (void *)(buffer), length }

static ssize_t send_message(struct fid_ep *fid, const struct fi_msg *message, uint64_t flags)
{
	struct wire_request request = {.kind = WIRE_SEND, .data = message->data};

	return begin(EP(fid), &request, message->msg_iov, message->iov_count, message->addr, message->context, flags);
}

static ssize_t send_one(struct fid_ep *fid, const void *buffer, size_t length, uint64_t data, fi_addr_t to,
			void *context, uint64_t flags)
{
	struct iovec iov = ONE(buffer, length);
	struct fi_msg message = {.msg_iov = &iov, .iov_count = 1, .addr = to, .context = context, .data = data};

	return send_message(fid, &message, flags);
}

static ssize_t message_send(struct fid_ep *fid, const void *buffer, size_t length, void *desc, fi_addr_t to,
			    void *context)
{
	(void)desc;
	return send_one(fid, buffer, length, 0, to, context, EP(fid)->transmit_flags);
}

static ssize_t message_send_vector(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t to,
				   void *context)
{
	struct fi_msg message = {.msg_iov = iov, .iov_count = count, .addr = to, .context = context};

	(void)desc;
	return send_message(fid, &message, EP(fid)->transmit_flags);
}

static ssize_t message_inject(struct fid_ep *fid, const void *buffer, size_t length, fi_addr_t to)
{
	struct wire_request request = {.kind = WIRE_SEND};
	struct iovec iov = ONE(buffer, length);

	return inject(EP(fid), &request, &iov, to, 0);
}

static ssize_t message_send_data(struct fid_ep *fid, const void *buffer, size_t length, void *desc, uint64_t data,
				 fi_addr_t to, void *context)
{
	(void)desc;
	return send_one(fid, buffer, length, data, to, context, EP(fid)->transmit_flags | FI_REMOTE_CQ_DATA);
}

static ssize_t message_inject_data(struct fid_ep *fid, const void *buffer, size_t length, uint64_t data, fi_addr_t to)
{
	struct wire_request request = {.kind = WIRE_SEND, .data = data};
	struct iovec iov = ONE(buffer, length);

	return inject(EP(fid), &request, &iov, to, FI_REMOTE_CQ_DATA);
}

static ssize_t message_receive_message(struct fid_ep *fid, const struct fi_msg *message, uint64_t flags)
{
	struct wire_request request = {.kind = WIRE_RECEIVE};

	if (flags & (FI_PEEK | FI_CLAIM | FI_DISCARD))
		return -FI_ENOSYS;
	if (flags & FI_MULTI_RECV) {
		if (message->iov_count != 1)
			return -FI_EINVAL;
		request.flags |= WIRE_MULTI;
		request.data = EP(fid)->least_room;
	}
	return post(EP(fid), &request, message->msg_iov, message->iov_count, message->addr, message->context, flags);
}

static ssize_t message_receive_vector(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
				      fi_addr_t from, void *context)
{
	struct fi_msg message = {.msg_iov = iov, .iov_count = count, .addr = from, .context = context};

	(void)desc;
	return message_receive_message(fid, &message, EP(fid)->receive_flags);
}

static ssize_t message_receive(struct fid_ep *fid, void *buffer, size_t length, void *desc, fi_addr_t from,
			       void *context)
{
	struct iovec iov = ONE(buffer, length);

	return message_receive_vector(fid, &iov, desc, 1, from, context);
}

struct fi_ops_msg message_operations = {
	.size = sizeof message_operations,
	.recv = message_receive,
	.recvv = message_receive_vector,
	.recvmsg = message_receive_message,
	.send = message_send,
	.sendv = message_send_vector,
	.sendmsg = send_message,
	.inject = message_inject,
	.senddata = message_send_data,
	.injectdata = message_inject_data,
};

/* --- tagged messages --------------------------------------------------------------------------------------------- */

static ssize_t tagged_send_message(struct fid_ep *fid, const struct fi_msg_tagged *message, uint64_t flags)
{
	struct wire_request request = {.kind = WIRE_TAGGED_SEND, .tag = message->tag, .data = message->data};

	return begin(EP(fid), &request, message->msg_iov, message->iov_count, message->addr, message->context, flags);
}

static ssize_t tagged_send_vector(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t to,
				  uint64_t tag, void *context)
{
	struct wire_request request = {.kind = WIRE_TAGGED_SEND, .tag = tag};

	(void)desc;
	return begin(EP(fid), &request, iov, count, to, context, EP(fid)->transmit_flags);
}

static ssize_t tagged_send(struct fid_ep *fid, const void *buffer, size_t length, void *desc, fi_addr_t to,
			   uint64_t tag, void *context)
{
	struct iovec iov = ONE(buffer, length);

	return tagged_send_vector(fid, &iov, desc, 1, to, tag, context);
}

static ssize_t tagged_inject(struct fid_ep *fid, const void *buffer, size_t length, fi_addr_t to, uint64_t tag)
{
	struct wire_request request = {.kind = WIRE_TAGGED_SEND, .tag = tag};
	struct iovec iov = ONE(buffer, length);

	return inject(EP(fid), &request, &iov, to, 0);
}

static ssize_t tagged_send_data(struct fid_ep *fid, const void *buffer, size_t length, void *desc, uint64_t data,
				fi_addr_t to, uint64_t tag, void *context)
{
	struct wire_request request = {.kind = WIRE_TAGGED_SEND, .tag = tag, .data = data};
	struct iovec iov = ONE(buffer, length);

	(void)desc;
	return begin(EP(fid), &request, &iov, 1, to, context, EP(fid)->transmit_flags | FI_REMOTE_CQ_DATA);
}

static ssize_t tagged_inject_data(struct fid_ep *fid, const void *buffer, size_t length, uint64_t data, fi_addr_t to,
				  uint64_t tag)
{
	struct wire_request request = {.kind = WIRE_TAGGED_SEND, .tag = tag, .data = data};
	struct iovec iov = ONE(buffer, length);

	return inject(EP(fid), &request, &iov, to, FI_REMOTE_CQ_DATA);
}

static ssize_t tagged_receive_message(struct fid_ep *fid, const struct fi_msg_tagged *message, uint64_t flags)
{
	struct wire_request request = {.kind = WIRE_TAGGED_RECEIVE, .tag = message->tag, .ignore = message->ignore};

	if (flags & FI_PEEK)
		request.kind = WIRE_PEEK;
	if (flags & FI_CLAIM) { /* it is known by the context of who claimed it */
		request.flags |= WIRE_CLAIM;
		request.data = (uint64_t)(uintptr_t)message->context;
	}
	if (flags & FI_DISCARD)
		request.flags |= WIRE_DISCARD;
	return post(EP(fid), &request, message->msg_iov, flags & FI_PEEK ? 0 : message->iov_count, message->addr,
		    message->context, flags);
}

static ssize_t tagged_receive_vector(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
				     fi_addr_t from, uint64_t tag, uint64_t ignore, void *context)
{
	struct wire_request request = {.kind = WIRE_TAGGED_RECEIVE, .tag = tag, .ignore = ignore};

	(void)desc;
	return post(EP(fid), &request, iov, count, from, context, EP(fid)->receive_flags);
}

static ssize_t tagged_receive(struct fid_ep *fid, void *buffer, size_t length, void *desc, fi_addr_t from,
			      uint64_t tag, uint64_t ignore, void *context)
{
	struct iovec iov = ONE(buffer, length);

	return tagged_receive_vector(fid, &iov, desc, 1, from, tag, ignore, context);
}

struct fi_ops_tagged tagged_operations = {
	.size = sizeof tagged_operations,
	.recv = tagged_receive,
	.recvv = tagged_receive_vector,
	.recvmsg = tagged_receive_message,
	.send = tagged_send,
	.sendv = tagged_send_vector,
	.sendmsg = tagged_send_message,
	.inject = tagged_inject,
	.senddata = tagged_send_data,
	.injectdata = tagged_inject_data,
};

/* --- the endpoint itself ------------------------------------------------------------------------------------------ */

static ssize_t endpoint_cancel(fid_t fid, void *context)
{
	struct endpoint *endpoint = EP(fid);
	struct connection *connection = &endpoint->domain->connection;
	struct wire_request request = {.kind = WIRE_CANCEL, .endpoint = endpoint->name.index};

	if (!connection_is_own(connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&connection->lock);
	for (struct operation *one = endpoint->posted; one; one = one->next)
		if (one->context == context && !one->peeks) { /* the oldest is the last */
			request.id = 1;
			request.data = operation_id(connection, one);
		}
	pthread_mutex_unlock(&connection->lock);
	return request.id ? connection_send(connection, &request, NULL, 0) : -FI_ENOENT;
}

static int endpoint_get_option(fid_t fid, int level, int name, void *value, size_t *length)
{
	if (level != FI_OPT_ENDPOINT)
		return -FI_ENOPROTOOPT;
	if (*length < sizeof(size_t))
		return -FI_ETOOSMALL;
	if (name == FI_OPT_MIN_MULTI_RECV)
		*(size_t *)value = EP(fid)->least_room;
	else if (name == FI_OPT_CM_DATA_SIZE)
		*(size_t *)value = 0;
	else
		return -FI_ENOPROTOOPT;
	*length = sizeof(size_t);
	return 0;
}

static int endpoint_set_option(fid_t fid, int level, int name, const void *value, size_t length)
{
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (length < sizeof(size_t))
		return -FI_EINVAL;
	EP(fid)->least_room = *(const size_t *)value;
	return 0;
}

static ssize_t room_for(struct fid_ep *fid, bool receives)
{
	struct connection *connection = &EP(fid)->domain->connection;
	size_t found = 0, most = receives ? RECEIVE_DEPTH : TRANSMIT_DEPTH;

	if (!connection_is_own(connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&connection->lock);
	for (struct operation *one = receives ? connection->free_receives : connection->free_transmits; one && found < most;
	     one = one->next)
		found++;
	pthread_mutex_unlock(&connection->lock);
	return found;
}

static ssize_t receives_left(struct fid_ep *fid)
{
	return room_for(fid, true);
}

static ssize_t transmits_left(struct fid_ep *fid)
{
	return room_for(fid, false);
}

static struct fi_ops_ep endpoint_operations = {
	.size = sizeof endpoint_operations,
	.cancel = endpoint_cancel,
	.getopt = endpoint_get_option,
	.setopt = endpoint_set_option,
	.tx_ctx = NOT_THERE,
	.rx_ctx = NOT_THERE,
	.rx_size_left = receives_left,
	.tx_size_left = transmits_left,
};

static int endpoint_name(fid_t fid, void *out, size_t *length)
{
	size_t room = *length;

	*length = name_to_socket(&EP(fid)->name, EP(fid)->domain->family, out, room);
	return room < *length ? -FI_ETOOSMALL : 0;
}

static struct fi_ops_cm name_operations = {
	.size = sizeof name_operations,
	.setname = NOT_THERE,
	.getname = endpoint_name,
	.getpeer = NOT_THERE,
	.connect = NOT_THERE,
	.listen = NOT_THERE,
	.accept = NOT_THERE,
	.reject = NOT_THERE,
	.shutdown = NOT_THERE,
	.join = NOT_THERE,
};

/* Bind an object in the place of another: an endpoint holds what is bound to it. */
#define REBIND(place, object)                                                                                          \
	do {                                                                                                           \
		if (object)                                                                                            \
			hold(&(object)->users);                                                                        \
		if (place)                                                                                             \
			let_go(&(place)->users);                                                                       \
		(place) = (object);                                                                                    \
	} while (0)

static int bind_queue(struct endpoint *endpoint, struct queue *queue, uint64_t flags)
{
	bool selective = flags & FI_SELECTIVE_COMPLETION;

	if (!(flags & (FI_TRANSMIT | FI_RECV)))
		return -FI_EINVAL;
	if (flags & FI_TRANSMIT) {
		REBIND(endpoint->transmits, queue);
		endpoint->transmits_selective = selective;
	}
	if (flags & FI_RECV) {
		REBIND(endpoint->receives, queue);
		endpoint->receives_selective = selective;
	}
	return 0;
}

static int bind_counter(struct endpoint *endpoint, struct counter *counter, uint64_t flags)
{
	if (flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)) /* nobody tells of these (FI_RMA_EVENT) */
		return -FI_ENOSYS;
	if (flags & FI_SEND)
		REBIND(endpoint->sends, counter);
	if (flags & FI_RECV)
		REBIND(endpoint->receptions, counter);
	if (flags & FI_READ)
		REBIND(endpoint->reads, counter);
	if (flags & FI_WRITE)
		REBIND(endpoint->writes, counter);
	return 0;
}

static int endpoint_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct endpoint *endpoint = EP(fid);
	struct vector *vector;

	switch (other->fclass) {
	case FI_CLASS_AV:
		vector = (struct vector *)other;
		REBIND(endpoint->vector, vector);
		return 0;
	case FI_CLASS_CQ:
		return bind_queue(endpoint, (struct queue *)other, flags);
	case FI_CLASS_CNTR:
		return bind_counter(endpoint, (struct counter *)other, flags);
	case FI_CLASS_EQ:
		return 0;
	default:
		return -FI_EINVAL;
	}
}

static int endpoint_enable(struct endpoint *endpoint)
{
	if (!endpoint->vector)
		return -FI_ENOAV;
	if (!endpoint->transmits && !endpoint->sends && !endpoint->writes && !endpoint->reads &&
	    endpoint->caps & (FI_SEND | FI_READ | FI_WRITE))
		return -FI_ENOCQ;
	if (!endpoint->receives && !endpoint->receptions && endpoint->caps & FI_RECV)
		return -FI_ENOCQ;
	endpoint->enabled = true;
	return 0;
}

static int endpoint_control(struct fid *fid, int command, void *argument)
{
	struct endpoint *endpoint = EP(fid);
	uint64_t *flags = argument;

	switch (command) {
	case FI_ENABLE:
		return endpoint_enable(endpoint);
	case FI_GETOPSFLAG:
		*flags = *flags & FI_RECV ? endpoint->receive_flags : endpoint->transmit_flags;
		return 0;
	case FI_SETOPSFLAG:
		if (*flags & FI_TRANSMIT)
			endpoint->transmit_flags = *flags & ~FI_TRANSMIT;
		else if (*flags & FI_RECV)
			endpoint->receive_flags = *flags & ~FI_RECV;
		else
			return -FI_EINVAL;
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

static void unbind_all(struct endpoint *endpoint)
{
	struct counter *no_counter = NULL;
	struct queue *no_queue = NULL;
	struct vector *no_vector = NULL;

	REBIND(endpoint->transmits, no_queue);
	REBIND(endpoint->receives, no_queue);
	REBIND(endpoint->sends, no_counter);
	REBIND(endpoint->receptions, no_counter);
	REBIND(endpoint->reads, no_counter);
	REBIND(endpoint->writes, no_counter);
	REBIND(endpoint->vector, no_vector);
}

static int endpoint_close(struct fid *fid)
{
	struct endpoint *endpoint = EP(fid);
	struct domain *domain = endpoint->domain;
	struct connection *connection = &domain->connection;
	struct wire_request request = {.kind = WIRE_CLOSE_ENDPOINT, .endpoint = endpoint->name.index};
	struct wire_reply answer;

	if (!connection_is_own(connection)) { /* whose lock somebody may have held when this process was forked */
		unbind_all(endpoint);
		let_go(&domain->users);
		free(endpoint);
		return 0;
	}
	pthread_mutex_lock(&connection->lock);
	domain->endpoints[endpoint->name.index] = NULL;
	for (size_t i = 0; i < WIRE_TRANSMITS + WIRE_RECEIVES; i++) {
		struct operation *one = &connection->operations[i];

		if (one->in_use && one->endpoint == endpoint) { /* what ends from now on is told to nobody */
			one->endpoint = NULL;
			if (one->receives)
				one->next = one->before = NULL;
		}
	}
	endpoint->posted = NULL;
	pthread_mutex_unlock(&connection->lock);
	connection_ask(connection, &request, NULL, 0, &answer);
	unbind_all(endpoint);
	let_go(&domain->users);
	free(endpoint);
	return 0;
}

static struct fi_ops endpoint_fid = {
	.size = sizeof endpoint_fid,
	.close = endpoint_close,
	.bind = endpoint_bind,
	.control = endpoint_control,
	.ops_open = NOT_THERE,
};

int endpoint_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **out, void *context)
{
	struct domain *domain = (struct domain *)fid;
	struct wire_request request = {.kind = WIRE_OPEN_ENDPOINT};
	struct endpoint *endpoint;
	struct wire_reply answer;
	int error;

	if (info->ep_attr && (info->ep_attr->type != FI_EP_RDM || info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT ||
			      info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT))
		return -FI_ENOSYS;
	if (info->tx_attr && info->tx_attr->msg_order & ORDERS)
		request.flags |= WIRE_ORDERED;
	endpoint = calloc(1, sizeof *endpoint);
	if (!endpoint)
		return -FI_ENOMEM;
	error = connection_ask(&domain->connection, &request, NULL, 0, &answer);
	if (error || !answer.endpoint || answer.endpoint > WIRE_ENDPOINTS) {
		free(endpoint);
		return error ? error : -FI_EIO;
	}
	endpoint->domain = domain;
	hold(&domain->users);
	endpoint->name = domain->name;
	endpoint->name.index = answer.endpoint;
	endpoint->caps = info->caps;
	endpoint->least_room = 1;
	if (info->tx_attr)
		endpoint->transmit_flags = info->tx_attr->op_flags;
	if (info->rx_attr)
		endpoint->receive_flags = info->rx_attr->op_flags;
	endpoint->fid.fid = (struct fid){.fclass = FI_CLASS_EP, .context = context, .ops = &endpoint_fid};
	endpoint->fid.ops = &endpoint_operations;
	endpoint->fid.cm = &name_operations;
	endpoint->fid.msg = &message_operations;
	endpoint->fid.tagged = &tagged_operations;
	endpoint->fid.rma = &rma_operations;
	endpoint->fid.atomic = &atomic_operations;
	pthread_mutex_lock(&domain->connection.lock);
	domain->endpoints[endpoint->name.index] = endpoint;
	pthread_mutex_unlock(&domain->connection.lock);
	*out = &endpoint->fid;
	return 0;
}
