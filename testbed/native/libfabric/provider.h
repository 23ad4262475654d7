/* The objects of the provider: what libfabric's structures of each kind are followed by. */
#ifndef TESTBED_LIBFABRIC_PROVIDER_H
#define TESTBED_LIBFABRIC_PROVIDER_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>

#include "wire.h"

#define ORDERS                                                                                                         \
	(FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAR | FI_ORDER_WAW | FI_ORDER_WAS | FI_ORDER_SAR |      \
	 FI_ORDER_SAW | FI_ORDER_SAS | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW |     \
	 FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)
#define KINDS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)
#define SENDING (FI_SEND | FI_READ | FI_WRITE)
#define RECEIVING (FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE)
#define EVERYWHERE (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define CAPABILITIES (KINDS | SENDING | RECEIVING | EVERYWHERE)
#define UNTOLD (1ull << 63) /* an operation whose success is no completion: one of a provider's own flags */
#define INJECT_BYTES WIRE_INLINE_BYTES
#define TRANSMIT_DEPTH 1024
#define RECEIVE_DEPTH 4096

/* What libfabric itself exports, of the copy that has loaded us: a program may have several. */
struct core {
	uint32_t (*version)(void);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
};
extern struct core core;
extern struct fi_provider provider;

int getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
	    struct fi_info **out);

/* Objects that others are made in, or bound to, count these: they are not to be closed before (fi_close(3), -FI_EBUSY). */
static inline void hold(unsigned int *users)
{
	__atomic_add_fetch(users, 1, __ATOMIC_ACQ_REL);
}

static inline void let_go(unsigned int *users)
{
	__atomic_sub_fetch(users, 1, __ATOMIC_ACQ_REL);
}

static inline bool is_held(const unsigned int *users)
{
	return __atomic_load_n(users, __ATOMIC_ACQUIRE);
}

struct fabric {
	struct fid_fabric fid;
	unsigned int users;
};

/* --- completion queues and counters --------------------------------------------------------------------------- */

struct completion {
	struct fi_cq_tagged_entry entry;
	fi_addr_t source;
	size_t excess;
	int error;
	int code;
};

struct queue {
	struct fid_cq fid;
	struct domain *domain;
	unsigned int users;
	enum fi_cq_format format;
	enum fi_wait_obj wait;
	int event; /* eventfd, or -1 */
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct completion *ring;
	size_t size, head, count;
	unsigned int waiting, idle, signals;
	bool overrun, has_error_data;
};

struct counter {
	struct fid_cntr fid;
	struct domain *domain;
	unsigned int users;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t value, errors;
	unsigned int waiting;
};

int queue_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out, void *context);
int queue_try(struct queue *queue);
void queue_put(struct queue *queue, const struct completion *one);
int counter_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context);
void counter_count(struct counter *counter, bool failed);
int events_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **out, void *context);

/* --- address vectors ------------------------------------------------------------------------------------------- */

struct vector {
	struct fid_av fid;
	struct domain *domain;
	unsigned int users;
	pthread_mutex_t lock;
	struct wire_name *names; /* by fi_addr_t; an index of 0 is none */
	size_t count, room;
	uint32_t *table; /* by hash, an fi_addr_t and 1; 0: none */
	size_t slots;
	int family;
};

int vector_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **out, void *context);
bool vector_name(struct vector *vector, fi_addr_t address, struct wire_name *name);
fi_addr_t vector_find(struct vector *vector, const struct wire_name *name);
size_t name_to_socket(const struct wire_name *name, int family, void *out, size_t room);
bool name_from_socket(const void *address, int family, struct wire_name *name);

/* --- connections ------------------------------------------------------------------------------------------------ */

struct endpoint;

struct operation {
	void *context;
	void *buffer;
	uint64_t flags;
	struct endpoint *endpoint; /* NULL once that is closed */
	struct counter *counter;
	struct operation *next, *before; /* of the free ones, or of the receives of an endpoint */
	struct wire_reply *answer;	 /* of who waits for it */
	uint32_t life;
	bool in_use, silent, receives, multi, peeks;
};

struct connection {
	int fd;
	pid_t owner; /* who has opened it: a forked child has the socket of its parent, and not the thread */
	pthread_t thread;
	bool running;
	bool dead;
	pthread_mutex_t writing;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t answered;
	struct operation *operations;
	struct operation *free_transmits, *free_receives;
};

struct domain {
	struct fid_domain fid;
	struct fabric *fabric;
	unsigned int users;
	struct connection connection;
	struct wire_name name;
	int family;
	int mr_mode;
	size_t atomic_bytes;
	struct endpoint *endpoints[WIRE_ENDPOINTS + 1]; /* by index, under the connection's lock */
};

int connection_dial(void);
int connection_open(struct connection *connection, struct domain *domain);
bool connection_is_own(const struct connection *connection);
void connection_close(struct connection *connection);
struct operation *operation_take(struct connection *connection, bool receives);
void operation_give(struct connection *connection, struct operation *operation);
void operation_end(struct connection *connection, struct operation *operation);
uint64_t operation_id(struct connection *connection, const struct operation *operation);
int connection_send(struct connection *connection, struct wire_request *request, const struct iovec *body, size_t count);
int connection_ask(struct connection *connection, struct wire_request *request, const struct iovec *body, size_t count,
		   struct wire_reply *answer);
int dial_ask(int fd, struct wire_request *request, const void *body, struct wire_reply *answer);

/* --- endpoints --------------------------------------------------------------------------------------------------- */

struct endpoint {
	struct fid_ep fid;
	struct domain *domain;
	struct vector *vector;
	struct queue *transmits, *receives;
	struct counter *sends, *receptions, *reads, *writes;
	struct operation *posted;
	struct wire_name name;
	uint64_t caps, transmit_flags, receive_flags;
	size_t least_room; /* of a buffer for several messages, to be used again */
	bool transmits_selective, receives_selective, enabled;
};

int endpoint_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out, void *context);
void endpoint_done(struct domain *domain, struct operation *operation, const struct wire_reply *reply);
void endpoint_written(struct domain *domain, const struct wire_reply *reply);
ssize_t begin(struct endpoint *endpoint, struct wire_request *request, const struct iovec *data, size_t count,
	      fi_addr_t to, void *context, uint64_t flags);
ssize_t inject(struct endpoint *endpoint, struct wire_request *request, const struct iovec *data, fi_addr_t to,
	       uint64_t flags);
size_t total(const struct iovec *iov, size_t count);

extern struct fi_ops_msg message_operations;
extern struct fi_ops_tagged tagged_operations;
extern struct fi_ops_rma rma_operations;
extern struct fi_ops_atomic atomic_operations;
extern struct fi_ops_mr memory_operations;

int query_atomic(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
		 uint64_t flags);
int not_there(void);
int nothing(void);
#define NOT_THERE ((void *)not_there)
#define NOTHING ((void *)nothing)

#endif
