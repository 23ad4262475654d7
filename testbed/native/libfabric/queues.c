/* Completion queues, counters, and event queues, on which nothing ever happens: no address is resolved later, and there
 * are no connections. Source: fi_cq(3), fi_cntr(3), fi_eq(3). */
#include "provider.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define FIRST_ENTRIES 1024
#define MOST_ENTRIES (1u << 20)
/* Who finds a queue empty so many times is put to sleep for NAP_NS, and for twice as long after as many times more. That is
 * nothing against a round trip of a lab, a completion ends it, and who moves the packets has the CPU meanwhile. */
#define PATIENCE 64
#define NAP_NS 50000
#define MOST_DOUBLED 3
#define NS_PER_S 1000000000l

static void begin_condition(pthread_mutex_t *lock, pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_mutex_init(lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

static struct timespec from_now(long ns)
{
	struct timespec when;

	clock_gettime(CLOCK_MONOTONIC, &when);
	when.tv_sec += ns / NS_PER_S;
	when.tv_nsec += ns % NS_PER_S;
	if (when.tv_nsec >= NS_PER_S) {
		when.tv_sec++;
		when.tv_nsec -= NS_PER_S;
	}
	return when;
}

/* Wait, at most until `until` where it is given. False: that has come. */
static bool wait_for(pthread_cond_t *condition, pthread_mutex_t *lock, unsigned int *waiting, const struct timespec *until)
{
	int error;

	++*waiting;
	error = until ? pthread_cond_timedwait(condition, lock, until) : pthread_cond_wait(condition, lock);
	--*waiting;
	return error != ETIMEDOUT;
}

/* --- completion queues ---------------------------------------------------------------------------------------- */

static bool make_room(struct queue *queue)
{
	struct completion *ring;
	size_t size = queue->size * 2;

	if (size > MOST_ENTRIES || !(ring = malloc(size * sizeof *ring)))
		return false;
	for (size_t i = 0; i < queue->count; i++)
		ring[i] = queue->ring[(queue->head + i) % queue->size];
	free(queue->ring);
	queue->ring = ring;
	queue->size = size;
	queue->head = 0;
	return true;
}

void queue_put(struct queue *queue, const struct completion *one)
{
	pthread_mutex_lock(&queue->lock);
	if (queue->count == queue->size && !make_room(queue)) {
		queue->overrun = true;
	} else {
		queue->ring[(queue->head + queue->count++) % queue->size] = *one;
		if (queue->waiting)
			pthread_cond_broadcast(&queue->more);
		if (queue->event >= 0)
			eventfd_write(queue->event, 1);
	}
	pthread_mutex_unlock(&queue->lock);
}

static void write_entry(struct queue *queue, void *buffer, size_t index, const struct completion *one)
{
	const struct fi_cq_tagged_entry *entry = &one->entry;

	switch (queue->format) {
	case FI_CQ_FORMAT_MSG:
		((struct fi_cq_msg_entry *)buffer)[index] =
			(struct fi_cq_msg_entry){entry->op_context, entry->flags, entry->len};
		break;
	case FI_CQ_FORMAT_DATA:
		((struct fi_cq_data_entry *)buffer)[index] = (struct fi_cq_data_entry){
			entry->op_context, entry->flags, entry->len, entry->buf, entry->data};
		break;
	case FI_CQ_FORMAT_TAGGED:
		((struct fi_cq_tagged_entry *)buffer)[index] = *entry;
		break;
	default:
		((struct fi_cq_entry *)buffer)[index].op_context = entry->op_context;
	}
}

/* Take what is there, with the lock held. */
static ssize_t take_entries(struct queue *queue, void *buffer, size_t count, fi_addr_t *sources)
{
	size_t taken = 0;

	while (taken < count && queue->count) {
		struct completion *one = &queue->ring[queue->head];

		if (one->error)
			break;
		write_entry(queue, buffer, taken, one);
		if (sources)
			sources[taken] = one->source;
		queue->head = (queue->head + 1) % queue->size;
		queue->count--;
		taken++;
	}
	if (taken)
		return taken;
	if (queue->count) /* who asks for no entries gets none */
		return queue->ring[queue->head].error ? -FI_EAVAIL : -FI_EAGAIN;
	return queue->overrun ? -FI_EOVERRUN : -FI_EAGAIN;
}

static ssize_t queue_read_from(struct fid_cq *fid, void *buffer, size_t count, fi_addr_t *sources)
{
	struct queue *queue = (struct queue *)fid;
	ssize_t taken;

	if (!connection_is_own(&queue->domain->connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&queue->lock);
	if (queue->count) {
		queue->idle = 0;
	} else if (++queue->idle > PATIENCE) {
		unsigned int doubled = queue->idle / PATIENCE - 1;
		struct timespec until = from_now((long)NAP_NS << (doubled < MOST_DOUBLED ? doubled : MOST_DOUBLED));

		wait_for(&queue->more, &queue->lock, &queue->waiting, &until);
	}
	taken = take_entries(queue, buffer, count, sources);
	pthread_mutex_unlock(&queue->lock);
	return taken;
}

static ssize_t queue_read(struct fid_cq *fid, void *buffer, size_t count)
{
	return queue_read_from(fid, buffer, count, NULL);
}

static ssize_t queue_wait_from(struct fid_cq *fid, void *buffer, size_t count, fi_addr_t *sources, const void *condition,
			       int timeout_ms)
{
	struct queue *queue = (struct queue *)fid;
	struct timespec until = from_now(timeout_ms < 0 ? 0 : timeout_ms * 1000000l);
	unsigned int signals;
	ssize_t taken;

	(void)condition;
	if (queue->wait == FI_WAIT_NONE)
		return -FI_ENOSYS;
	if (!connection_is_own(&queue->domain->connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&queue->lock);
	signals = queue->signals;
	while (!queue->count && !queue->overrun && queue->signals == signals)
		if (!wait_for(&queue->more, &queue->lock, &queue->waiting, timeout_ms < 0 ? NULL : &until))
			break;
	taken = take_entries(queue, buffer, count, sources);
	pthread_mutex_unlock(&queue->lock);
	return taken;
}

static ssize_t queue_wait(struct fid_cq *fid, void *buffer, size_t count, const void *condition, int timeout_ms)
{
	return queue_wait_from(fid, buffer, count, NULL, condition, timeout_ms);
}

static int queue_signal(struct fid_cq *fid)
{
	struct queue *queue = (struct queue *)fid;

	if (!connection_is_own(&queue->domain->connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&queue->lock);
	queue->signals++;
	pthread_cond_broadcast(&queue->more);
	if (queue->event >= 0)
		eventfd_write(queue->event, 1);
	pthread_mutex_unlock(&queue->lock);
	return 0;
}

static ssize_t queue_read_error(struct fid_cq *fid, struct fi_cq_err_entry *entry, uint64_t flags)
{
	struct queue *queue = (struct queue *)fid;
	ssize_t taken = -FI_EAGAIN;

	(void)flags;
	if (!connection_is_own(&queue->domain->connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&queue->lock);
	if (queue->count && queue->ring[queue->head].error) {
		struct completion *one = &queue->ring[queue->head];

		entry->op_context = one->entry.op_context;
		entry->flags = one->entry.flags;
		entry->len = one->entry.len;
		entry->buf = one->entry.buf;
		entry->data = one->entry.data;
		entry->tag = one->entry.tag;
		entry->olen = one->excess;
		entry->err = one->error;
		entry->prov_errno = one->code;
		if (queue->has_error_data) /* since API version 1.5 */
			entry->err_data_size = 0;
		queue->head = (queue->head + 1) % queue->size;
		queue->count--;
		taken = 1;
	}
	pthread_mutex_unlock(&queue->lock);
	return taken;
}

static const char *queue_error_text(struct fid_cq *fid, int code, const void *data, char *buffer, size_t length)
{
	static __thread char text[64];

	(void)fid;
	(void)data;
	snprintf(text, sizeof text, "return code 0x%02x of the UET response", code & 0xff);
	if (buffer && length) {
		strncpy(buffer, text, length - 1);
		buffer[length - 1] = 0;
	}
	return text;
}

/* Whether nothing is there, so that the caller may wait for the descriptor. */
int queue_try(struct queue *queue)
{
	eventfd_t value;
	int result;

	if (!connection_is_own(&queue->domain->connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&queue->lock);
	if (queue->event >= 0)
		eventfd_read(queue->event, &value);
	result = queue->count || queue->overrun ? -FI_EAGAIN : 0;
	pthread_mutex_unlock(&queue->lock);
	return result;
}

static int queue_control(struct fid *fid, int command, void *argument)
{
	struct queue *queue = (struct queue *)fid;

	switch (command) {
	case FI_GETWAIT:
		if (queue->event < 0)
			return -FI_ENODATA;
		*(int *)argument = queue->event;
		return 0;
	case FI_GETWAITOBJ:
		*(enum fi_wait_obj *)argument = queue->wait;
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

static int queue_close(struct fid *fid)
{
	struct queue *queue = (struct queue *)fid;

	if (is_held(&queue->users))
		return -FI_EBUSY;
	let_go(&queue->domain->users);
	if (queue->event >= 0)
		close(queue->event);
	free(queue->ring);
	free(queue);
	return 0;
}

static struct fi_ops queue_fid = {
	.size = sizeof queue_fid,
	.close = queue_close,
	.bind = NOT_THERE,
	.control = queue_control,
	.ops_open = NOT_THERE,
};

static struct fi_ops_cq queue_operations = {
	.size = sizeof queue_operations,
	.read = queue_read,
	.readfrom = queue_read_from,
	.readerr = queue_read_error,
	.sread = queue_wait,
	.sreadfrom = queue_wait_from,
	.signal = queue_signal,
	.strerror = queue_error_text,
};

int queue_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
	struct queue *queue;

	if (attr->wait_obj == FI_WAIT_SET || attr->wait_obj == FI_WAIT_MUTEX_COND || attr->wait_obj == FI_WAIT_POLLFD ||
	    attr->format > FI_CQ_FORMAT_TAGGED)
		return -FI_ENOSYS;
	queue = calloc(1, sizeof *queue);
	if (!queue)
		return -FI_ENOMEM;
	queue->event = -1;
	queue->size = attr->size && attr->size <= MOST_ENTRIES ? attr->size : FIRST_ENTRIES;
	queue->ring = malloc(queue->size * sizeof *queue->ring);
	if (attr->wait_obj == FI_WAIT_FD)
		queue->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!queue->ring || (attr->wait_obj == FI_WAIT_FD && queue->event < 0)) {
		free(queue->ring);
		free(queue);
		return -FI_ENOMEM;
	}
	queue->domain = (struct domain *)domain;
	hold(&queue->domain->users);
	if (!attr->format)
		attr->format = FI_CQ_FORMAT_CONTEXT;
	queue->format = attr->format;
	queue->wait = attr->wait_obj;
	queue->has_error_data = true;
	begin_condition(&queue->lock, &queue->more);
	queue->fid.fid = (struct fid){.fclass = FI_CLASS_CQ, .context = context, .ops = &queue_fid};
	queue->fid.ops = &queue_operations;
	*out = &queue->fid;
	return 0;
}

/* --- counters -------------------------------------------------------------------------------------------------- */

static int counter_change(struct counter *counter, uint64_t *what, uint64_t value, bool adds)
{
	if (!connection_is_own(&counter->domain->connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&counter->lock);
	__atomic_store_n(what, adds ? *what + value : value, __ATOMIC_RELEASE);
	if (counter->waiting)
		pthread_cond_broadcast(&counter->changed);
	pthread_mutex_unlock(&counter->lock);
	return 0;
}

void counter_count(struct counter *counter, bool failed)
{
	counter_change(counter, failed ? &counter->errors : &counter->value, 1, true);
}

static uint64_t counter_read(struct fid_cntr *fid)
{
	return __atomic_load_n(&((struct counter *)fid)->value, __ATOMIC_ACQUIRE);
}

static uint64_t counter_read_errors(struct fid_cntr *fid)
{
	return __atomic_load_n(&((struct counter *)fid)->errors, __ATOMIC_ACQUIRE);
}

static int counter_add(struct fid_cntr *fid, uint64_t value)
{
	return counter_change((struct counter *)fid, &((struct counter *)fid)->value, value, true);
}

static int counter_set(struct fid_cntr *fid, uint64_t value)
{
	return counter_change((struct counter *)fid, &((struct counter *)fid)->value, value, false);
}

static int counter_add_errors(struct fid_cntr *fid, uint64_t value)
{
	return counter_change((struct counter *)fid, &((struct counter *)fid)->errors, value, true);
}

static int counter_set_errors(struct fid_cntr *fid, uint64_t value)
{
	return counter_change((struct counter *)fid, &((struct counter *)fid)->errors, value, false);
}

static int counter_wait(struct fid_cntr *fid, uint64_t threshold, int timeout_ms)
{
	struct counter *counter = (struct counter *)fid;
	struct timespec until = from_now(timeout_ms < 0 ? 0 : timeout_ms * 1000000l);
	uint64_t errors;
	int result = 0;

	if (!connection_is_own(&counter->domain->connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&counter->lock);
	errors = counter->errors;
	while (counter->value < threshold && !result) {
		if (counter->errors != errors)
			result = -FI_EAVAIL;
		else if (!wait_for(&counter->changed, &counter->lock, &counter->waiting, timeout_ms < 0 ? NULL : &until))
			result = counter->value < threshold ? -FI_ETIMEDOUT : 0;
	}
	pthread_mutex_unlock(&counter->lock);
	return result;
}

static int counter_close(struct fid *fid)
{
	struct counter *counter = (struct counter *)fid;

	if (is_held(&counter->users))
		return -FI_EBUSY;
	let_go(&counter->domain->users);
	free(counter);
	return 0;
}

static struct fi_ops counter_fid = {
	.size = sizeof counter_fid,
	.close = counter_close,
	.bind = NOT_THERE,
	.control = NOT_THERE,
	.ops_open = NOT_THERE,
};

static struct fi_ops_cntr counter_operations = {
	.size = sizeof counter_operations,
	.read = counter_read,
	.readerr = counter_read_errors,
	.add = counter_add,
	.set = counter_set,
	.wait = counter_wait,
	.adderr = counter_add_errors,
	.seterr = counter_set_errors,
};

int counter_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context)
{
	struct counter *counter;

	if (attr && (attr->events != FI_CNTR_EVENTS_COMP || attr->wait_obj == FI_WAIT_SET || attr->wait_obj == FI_WAIT_FD ||
		     attr->wait_obj == FI_WAIT_MUTEX_COND || attr->wait_obj == FI_WAIT_POLLFD))
		return -FI_ENOSYS;
	counter = calloc(1, sizeof *counter);
	if (!counter)
		return -FI_ENOMEM;
	counter->domain = (struct domain *)domain;
	hold(&counter->domain->users);
	begin_condition(&counter->lock, &counter->changed);
	counter->fid.fid = (struct fid){.fclass = FI_CLASS_CNTR, .context = context, .ops = &counter_fid};
	counter->fid.ops = &counter_operations;
	*out = &counter->fid;
	return 0;
}

/* --- event queues ----------------------------------------------------------------------------------------------- */

static ssize_t no_events(struct fid_eq *fid, uint32_t *event, void *buffer, size_t length, uint64_t flags)
{
	(void)fid, (void)event, (void)buffer, (void)length, (void)flags;
	return -FI_EAGAIN;
}

static ssize_t no_event_errors(struct fid_eq *fid, struct fi_eq_err_entry *entry, uint64_t flags)
{
	(void)fid, (void)entry, (void)flags;
	return -FI_EAGAIN;
}

static ssize_t no_events_within(struct fid_eq *fid, uint32_t *event, void *buffer, size_t length, int timeout_ms,
				uint64_t flags)
{
	(void)fid, (void)event, (void)buffer, (void)length, (void)flags;
	if (timeout_ms > 0)
		usleep(timeout_ms * 1000);
	return -FI_EAGAIN;
}

struct events {
	struct fid_eq fid;
	struct fabric *fabric;
};

static int events_close(struct fid *fid)
{
	struct events *events = (struct events *)fid;

	let_go(&events->fabric->users);
	free(events);
	return 0;
}

static struct fi_ops events_fid = {
	.size = sizeof events_fid,
	.close = events_close,
	.bind = NOT_THERE,
	.control = NOT_THERE,
	.ops_open = NOT_THERE,
};

static struct fi_ops_eq events_operations = {
	.size = sizeof events_operations,
	.read = no_events,
	.readerr = no_event_errors,
	.write = NOT_THERE,
	.sread = no_events_within,
	.strerror = NOT_THERE,
};

int events_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **out, void *context)
{
	struct events *events = calloc(1, sizeof *events);

	(void)attr;
	if (!events)
		return -FI_ENOMEM;
	events->fabric = (struct fabric *)fabric;
	hold(&events->fabric->users);
	events->fid.fid = (struct fid){.fclass = FI_CLASS_EQ, .context = context, .ops = &events_fid};
	events->fid.ops = &events_operations;
	*out = &events->fid;
	return 0;
}
