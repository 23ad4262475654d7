/* Memory regions, remote reads and writes, and atomic operations. Source: fi_mr(3), fi_rma(3), fi_atomic(3). */
#include "provider.h"

#define EP(fid) ((struct endpoint *)(fid))
#define COMPARED_BYTES 16 /* what a compare operand may have (UE Specification 1.0, table 3-13) */

struct region {
	struct fid_mr fid;
	struct domain *domain;
};

/* --- memory regions --------------------------------------------------------------------------------------------- */

static int region_close(struct fid *fid)
{
	struct region *region = (struct region *)fid;
	struct wire_request request = {.kind = WIRE_DEREGISTER, .tag = region->fid.key};
	struct wire_reply answer;
	int error = connection_ask(&region->domain->connection, &request, NULL, 0, &answer);

	let_go(&region->domain->users);
	free(region);
	return error == -FI_ENODEV ? 0 : error;
}

static int region_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid;
	(void)flags;
	return other->fclass == FI_CLASS_CNTR ? -FI_ENOSYS : 0; /* nobody tells of what peers do (FI_RMA_EVENT) */
}

static struct fi_ops region_fid = {
	.size = sizeof region_fid,
	.close = region_close,
	.bind = region_bind,
	.control = NOTHING, /* FI_ENABLE */
	.ops_open = NOT_THERE,
};

static int region_register(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t key,
			   struct fid_mr **out, void *context)
{
	struct domain *domain = (struct domain *)fid;
	struct wire_request request = {.kind = WIRE_REGISTER, .tag = key, .places = count};
	struct wire_place places[WIRE_PLACES];
	struct iovec body = {places, count * sizeof *places};
	struct wire_reply answer;
	struct region *region;
	int error;

	if (!count || count > WIRE_PLACES)
		return -FI_EINVAL;
	if (domain->mr_mode & FI_MR_PROV_KEY)
		request.flags |= WIRE_OWN_KEY;
	else if (key >> WIRE_KEY_BITS)
		return -FI_EKEYREJECTED;
	for (size_t i = 0; i < count; i++)
		places[i] = (struct wire_place){(uint64_t)(uintptr_t)iov[i].iov_base, iov[i].iov_len};
	if (domain->mr_mode & FI_MR_VIRT_ADDR)
		request.ignore = places[0].address;
	if (access & FI_REMOTE_READ)
		request.data |= WIRE_REMOTE_READ;
	if (access & FI_REMOTE_WRITE) /* atomics have no flag of their own */
		request.data |= WIRE_REMOTE_WRITE | WIRE_REMOTE_ATOMIC;
	request.body = body.iov_len;
	region = calloc(1, sizeof *region);
	if (!region)
		return -FI_ENOMEM;
	error = connection_ask(&domain->connection, &request, &body, 1, &answer);
	if (error) {
		free(region);
		return error;
	}
	region->domain = domain;
	hold(&domain->users);
	region->fid.fid = (struct fid){.fclass = FI_CLASS_MR, .context = context, .ops = &region_fid};
	region->fid.key = answer.tag;
	*out = &region->fid;
	return 0;
}

static int memory_register(struct fid *fid, const void *buffer, size_t length, uint64_t access, uint64_t offset,
			   uint64_t key, uint64_t flags, struct fid_mr **out, void *context)
{
	struct iovec iov = {(void *)buffer, length};

	if (offset || flags)
		return -FI_EINVAL;
	return region_register(fid, &iov, 1, access, key, out, context);
}

static int memory_register_vector(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
				  uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **out, void *context)
{
	if (offset || flags)
		return -FI_EINVAL;
	return region_register(fid, iov, count, access, key, out, context);
}

static int memory_register_attributes(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
				      struct fid_mr **out)
{
	if (attr->offset || flags) /* of a device, or by a file descriptor */
		return -FI_EINVAL;
	return region_register(fid, attr->mr_iov, attr->iov_count, attr->access, attr->requested_key, out, attr->context);
}

struct fi_ops_mr memory_operations = {
	.size = sizeof memory_operations,
	.reg = memory_register,
	.regv = memory_register_vector,
	.regattr = memory_register_attributes,
};

/* --- remote reads and writes ------------------------------------------------------------------------------------- */

static ssize_t transfer(struct fid_ep *fid, uint16_t kind, const struct fi_msg_rma *message, uint64_t flags)
{
	struct wire_request request = {.kind = kind, .data = message->data};

	if (message->rma_iov_count != 1 || message->rma_iov[0].len != total(message->msg_iov, message->iov_count))
		return -FI_EINVAL;
	request.tag = message->rma_iov[0].key;
	request.ignore = message->rma_iov[0].addr;
	return begin(EP(fid), &request, message->msg_iov, message->iov_count, message->addr, message->context, flags);
}

static ssize_t transfer_vector(struct fid_ep *fid, uint16_t kind, const struct iovec *iov, size_t count, fi_addr_t peer,
			       uint64_t address, uint64_t key, void *context)
{
	struct fi_rma_iov remote = {address, total(iov, count), key};
	struct fi_msg_rma message = {
		.msg_iov = iov,
		.iov_count = count,
		.addr = peer,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.context = context,
	};

	return transfer(fid, kind, &message, EP(fid)->transmit_flags);
}

static ssize_t rma_read(struct fid_ep *fid, void *buffer, size_t length, void *desc, fi_addr_t from, uint64_t address,
			uint64_t key, void *context)
{
	struct iovec iov = {buffer, length};

	(void)desc;
	return transfer_vector(fid, WIRE_READ, &iov, 1, from, address, key, context);
}

static ssize_t rma_read_vector(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t from,
			       uint64_t address, uint64_t key, void *context)
{
	(void)desc;
	return transfer_vector(fid, WIRE_READ, iov, count, from, address, key, context);
}

static ssize_t rma_read_message(struct fid_ep *fid, const struct fi_msg_rma *message, uint64_t flags)
{
	return transfer(fid, WIRE_READ, message, flags & ~(FI_INJECT | FI_REMOTE_CQ_DATA));
}

static ssize_t rma_write(struct fid_ep *fid, const void *buffer, size_t length, void *desc, fi_addr_t to,
			 uint64_t address, uint64_t key, void *context)
{
	struct iovec iov = {(void *)buffer, length};

	(void)desc;
	return transfer_vector(fid, WIRE_WRITE, &iov, 1, to, address, key, context);
}

static ssize_t rma_write_vector(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t to,
				uint64_t address, uint64_t key, void *context)
{
	(void)desc;
	return transfer_vector(fid, WIRE_WRITE, iov, count, to, address, key, context);
}

static ssize_t rma_write_message(struct fid_ep *fid, const struct fi_msg_rma *message, uint64_t flags)
{
	return transfer(fid, WIRE_WRITE, message, flags);
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buffer, size_t length, fi_addr_t to, uint64_t address,
			  uint64_t key)
{
	struct wire_request request = {.kind = WIRE_WRITE, .tag = key, .ignore = address};
	struct iovec iov = {(void *)buffer, length};

	return inject(EP(fid), &request, &iov, to, 0);
}

static ssize_t rma_write_data(struct fid_ep *fid, const void *buffer, size_t length, void *desc, uint64_t data,
			      fi_addr_t to, uint64_t address, uint64_t key, void *context)
{
	struct wire_request request = {.kind = WIRE_WRITE, .tag = key, .ignore = address, .data = data};
	struct iovec iov = {(void *)buffer, length};

	(void)desc;
	return begin(EP(fid), &request, &iov, 1, to, context, EP(fid)->transmit_flags | FI_REMOTE_CQ_DATA);
}

static ssize_t rma_inject_data(struct fid_ep *fid, const void *buffer, size_t length, uint64_t data, fi_addr_t to,
			       uint64_t address, uint64_t key)
{
	struct wire_request request = {.kind = WIRE_WRITE, .tag = key, .ignore = address, .data = data};
	struct iovec iov = {(void *)buffer, length};

	return inject(EP(fid), &request, &iov, to, FI_REMOTE_CQ_DATA);
}

struct fi_ops_rma rma_operations = {
	.size = sizeof rma_operations,
	.read = rma_read,
	.readv = rma_read_vector,
	.readmsg = rma_read_message,
	.write = rma_write,
	.writev = rma_write_vector,
	.writemsg = rma_write_message,
	.inject = rma_inject,
	.writedata = rma_write_data,
	.injectdata = rma_inject_data,
};

/* --- atomic operations --------------------------------------------------------------------------------------------- */

enum sort { INTEGER, REAL, COMPLEX };

static const struct {
	enum sort sort;
	size_t bytes;
} datatypes[] = {
	[FI_INT8] = {INTEGER, 1},	  [FI_UINT8] = {INTEGER, 1},  [FI_INT16] = {INTEGER, 2},
	[FI_UINT16] = {INTEGER, 2},	  [FI_INT32] = {INTEGER, 4},  [FI_UINT32] = {INTEGER, 4},
	[FI_INT64] = {INTEGER, 8},	  [FI_UINT64] = {INTEGER, 8}, [FI_FLOAT] = {REAL, 4},
	[FI_DOUBLE] = {REAL, 8},	  [FI_FLOAT_COMPLEX] = {COMPLEX, 8},
	[FI_DOUBLE_COMPLEX] = {COMPLEX, 16},
};

static bool is_compared(enum fi_op op)
{
	return op >= FI_CSWAP && op <= FI_MSWAP;
}

/* What testbed.protocols.uet.atomics defines of each operation. */
static bool is_defined(enum fi_datatype datatype, enum fi_op op)
{
	enum sort sort;

	if ((unsigned int)datatype >= sizeof datatypes / sizeof *datatypes || !datatypes[datatype].bytes ||
	    (unsigned int)op > FI_MSWAP)
		return false;
	sort = datatypes[datatype].sort;
	switch (op) {
	case FI_SUM:
	case FI_PROD:
	case FI_ATOMIC_READ:
	case FI_ATOMIC_WRITE:
	case FI_CSWAP:
	case FI_CSWAP_NE:
		return true;
	case FI_BOR:
	case FI_BAND:
	case FI_BXOR:
	case FI_MSWAP:
		return sort == INTEGER;
	default:
		return sort != COMPLEX;
	}
}

/* How many elements an operation may have; 0: it is none that the kind of call may ask for. */
static size_t most_elements(struct domain *domain, enum fi_datatype datatype, enum fi_op op, uint64_t call)
{
	if (!is_defined(datatype, op) || is_compared(op) != !!(call & FI_COMPARE_ATOMIC))
		return 0;
	if (op == FI_ATOMIC_READ && !(call & FI_FETCH_ATOMIC))
		return 0;
	return (call & FI_COMPARE_ATOMIC ? COMPARED_BYTES : domain->atomic_bytes) / datatypes[datatype].bytes;
}

static size_t gather(const struct fi_ioc *iov, size_t count, size_t bytes, struct iovec *out)
{
	size_t length = 0;

	for (size_t i = 0; i < count; i++) {
		out[i] = (struct iovec){iov[i].addr, iov[i].count * bytes};
		length += out[i].iov_len;
	}
	return length;
}

struct atomic_call {
	const struct fi_ioc *operands, *compared, *results;
	size_t operand_count, compared_count, result_count;
	uint64_t call;
};

static ssize_t atomic(struct fid_ep *fid, const struct fi_msg_atomic *message, const struct atomic_call *call,
		      uint64_t flags)
{
	static const uint8_t zeros[WIRE_INLINE_BYTES];
	struct endpoint *endpoint = EP(fid);
	struct connection *connection = &endpoint->domain->connection;
	struct wire_request request = {.kind = WIRE_ATOMIC};
	struct wire_place places[WIRE_PLACES];
	struct iovec body[2 * WIRE_PLACES + 1], results[WIRE_PLACES];
	struct operation *operation;
	size_t most = most_elements(endpoint->domain, message->datatype, message->op, call->call), bytes, length, parts;
	int error;

	if (!connection_is_own(connection))
		return -FI_ENODEV;
	if (!most)
		return -FI_EOPNOTSUPP;
	if (call->operand_count > WIRE_PLACES || call->compared_count > WIRE_PLACES || call->result_count > WIRE_PLACES ||
	    message->rma_iov_count != 1)
		return -FI_EINVAL;
	if (!endpoint->enabled)
		return -FI_EOPBADSTATE;
	bytes = datatypes[message->datatype].bytes;
	parts = call->operand_count;
	length = gather(call->operands, parts, bytes, body);
	if (message->op == FI_ATOMIC_READ) { /* which has no operand */
		length = gather(call->results, call->result_count, bytes, results);
		body[0] = (struct iovec){(void *)zeros, length};
		parts = 1;
	}
	if (!length || length > most * bytes || length != message->rma_iov[0].count * bytes)
		return -FI_EINVAL;
	request.length = length;
	request.body = length;
	if (call->call & FI_COMPARE_ATOMIC) {
		if (gather(call->compared, call->compared_count, bytes, body + parts) != length)
			return -FI_EINVAL;
		parts += call->compared_count;
		request.flags |= WIRE_COMPARE;
		request.body += length;
	}
	if (call->call & (FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC)) {
		if (gather(call->results, call->result_count, bytes, results) != length)
			return -FI_EINVAL;
		for (size_t i = 0; i < call->result_count; i++)
			places[i] = (struct wire_place){(uint64_t)(uintptr_t)results[i].iov_base, results[i].iov_len};
		request.flags |= WIRE_FETCH;
		request.places = call->result_count;
		body[parts++] = (struct iovec){places, call->result_count * sizeof *places};
		request.body += call->result_count * sizeof *places;
	}
	if (!vector_name(endpoint->vector, message->addr, &request.peer))
		return -FI_EINVAL;
	request.endpoint = endpoint->name.index;
	request.tag = message->rma_iov[0].key;
	request.ignore = message->rma_iov[0].addr;
	request.data = message->op | (uint64_t)message->datatype << 8;
	operation = operation_take(connection, false);
	if (!operation)
		return connection->dead ? -FI_ENODEV : -FI_EAGAIN;
	operation->context = message->context;
	operation->endpoint = endpoint;
	operation->flags = FI_ATOMIC | (request.flags & WIRE_FETCH ? FI_READ : FI_WRITE);
	operation->silent = flags & UNTOLD || (endpoint->transmits_selective && !(flags & FI_COMPLETION));
	operation->counter = request.flags & WIRE_FETCH ? endpoint->reads : endpoint->writes;
	request.id = operation_id(connection, operation);
	error = connection_send(connection, &request, body, parts);
	if (error)
		operation_give(connection, operation);
	return error;
}

static ssize_t atomic_write_message(struct fid_ep *fid, const struct fi_msg_atomic *message, uint64_t flags)
{
	struct atomic_call call = {.operands = message->msg_iov, .operand_count = message->iov_count};

	return atomic(fid, message, &call, flags);
}

static ssize_t atomic_fetch_message(struct fid_ep *fid, const struct fi_msg_atomic *message, struct fi_ioc *results,
				    void **desc, size_t count, uint64_t flags)
{
	struct atomic_call call = {
		.operands = message->msg_iov,
		.operand_count = message->iov_count,
		.results = results,
		.result_count = count,
		.call = FI_FETCH_ATOMIC,
	};

	(void)desc;
	return atomic(fid, message, &call, flags);
}

static ssize_t atomic_compare_message(struct fid_ep *fid, const struct fi_msg_atomic *message,
				      const struct fi_ioc *compared, void **compared_desc, size_t compared_count,
				      struct fi_ioc *results, void **desc, size_t count, uint64_t flags)
{
	struct atomic_call call = {
		.operands = message->msg_iov,
		.operand_count = message->iov_count,
		.compared = compared,
		.compared_count = compared_count,
		.results = results,
		.result_count = count,
		.call = FI_COMPARE_ATOMIC,
	};

	(void)compared_desc;
	(void)desc;
	return atomic(fid, message, &call, flags);
}

static size_t elements(const struct fi_ioc *iov, size_t count)
{
	size_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += iov[i].count;
	return sum;
}

/* What the calls without a message structure ask for. */
#define MESSAGE(iov, iovs, elements_, peer, address, key_, datatype_, op_, context_)                                   \
	struct fi_rma_ioc remote = {address, elements_, key_};                                                         \
	struct fi_msg_atomic message = {                                                                               \
		.msg_iov = iov,                                                                                        \
		.iov_count = iovs,                                                                                     \
		.addr = peer,                                                                                          \
		.rma_iov = &remote,                                                                                    \
		.rma_iov_count = 1,                                                                                    \
		.datatype = datatype_,                                                                                 \
		.op = op_,                                                                                             \
		.context = context_,                                                                                   \
	}

static ssize_t atomic_write_vector(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count, fi_addr_t to,
				   uint64_t address, uint64_t key, enum fi_datatype datatype, enum fi_op op, void *context)
{
	MESSAGE(iov, count, elements(iov, count), to, address, key, datatype, op, context);

	(void)desc;
	return atomic_write_message(fid, &message, EP(fid)->transmit_flags);
}

static ssize_t atomic_write(struct fid_ep *fid, const void *buffer, size_t count, void *desc, fi_addr_t to,
			    uint64_t address, uint64_t key, enum fi_datatype datatype, enum fi_op op, void *context)
{
	struct fi_ioc iov = {(void *)buffer, count};

	(void)desc;
	return atomic_write_vector(fid, &iov, NULL, 1, to, address, key, datatype, op, context);
}

static ssize_t atomic_inject(struct fid_ep *fid, const void *buffer, size_t count, fi_addr_t to, uint64_t address,
			     uint64_t key, enum fi_datatype datatype, enum fi_op op)
{
	struct fi_ioc iov = {(void *)buffer, count};
	MESSAGE(&iov, 1, count, to, address, key, datatype, op, NULL);

	return atomic_write_message(fid, &message, FI_INJECT | UNTOLD);
}

static ssize_t atomic_fetch_vector(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count,
				   struct fi_ioc *results, void **result_desc, size_t result_count, fi_addr_t to,
				   uint64_t address, uint64_t key, enum fi_datatype datatype, enum fi_op op, void *context)
{
	MESSAGE(iov, count, elements(results, result_count), to, address, key, datatype, op, context);

	(void)desc;
	return atomic_fetch_message(fid, &message, results, result_desc, result_count, EP(fid)->transmit_flags);
}

static ssize_t atomic_fetch(struct fid_ep *fid, const void *buffer, size_t count, void *desc, void *result,
			    void *result_desc, fi_addr_t to, uint64_t address, uint64_t key, enum fi_datatype datatype,
			    enum fi_op op, void *context)
{
	struct fi_ioc iov = {(void *)buffer, count}, results = {result, count};

	(void)desc;
	(void)result_desc;
	return atomic_fetch_vector(fid, &iov, NULL, 1, &results, NULL, 1, to, address, key, datatype, op, context);
}

static ssize_t atomic_compare_vector(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count,
				     const struct fi_ioc *compared, void **compared_desc, size_t compared_count,
				     struct fi_ioc *results, void **result_desc, size_t result_count, fi_addr_t to,
				     uint64_t address, uint64_t key, enum fi_datatype datatype, enum fi_op op,
				     void *context)
{
	MESSAGE(iov, count, elements(iov, count), to, address, key, datatype, op, context);

	(void)desc;
	return atomic_compare_message(fid, &message, compared, compared_desc, compared_count, results, result_desc,
				      result_count, EP(fid)->transmit_flags);
}

static ssize_t atomic_compare(struct fid_ep *fid, const void *buffer, size_t count, void *desc, const void *compared,
			      void *compared_desc, void *result, void *result_desc, fi_addr_t to, uint64_t address,
			      uint64_t key, enum fi_datatype datatype, enum fi_op op, void *context)
{
	struct fi_ioc iov = {(void *)buffer, count}, against = {(void *)compared, count}, results = {result, count};

	(void)desc;
	(void)compared_desc;
	(void)result_desc;
	return atomic_compare_vector(fid, &iov, NULL, 1, &against, NULL, 1, &results, NULL, 1, to, address, key, datatype,
				     op, context);
}

static int is_valid(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op op, size_t *count, uint64_t call)
{
	*count = most_elements(EP(fid)->domain, datatype, op, call);
	return *count ? 0 : -FI_EOPNOTSUPP;
}

static int is_valid_write(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op op, size_t *count)
{
	return is_valid(fid, datatype, op, count, 0);
}

static int is_valid_fetch(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op op, size_t *count)
{
	return is_valid(fid, datatype, op, count, FI_FETCH_ATOMIC);
}

static int is_valid_compare(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op op, size_t *count)
{
	return is_valid(fid, datatype, op, count, FI_COMPARE_ATOMIC);
}

int query_atomic(struct fid_domain *fid, enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
		 uint64_t flags)
{
	if (flags & ~(uint64_t)(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC | FI_TAGGED) || flags & FI_TAGGED)
		return -FI_EOPNOTSUPP;
	attr->count = most_elements((struct domain *)fid, datatype, op, flags);
	if (!attr->count)
		return -FI_EOPNOTSUPP;
	attr->size = datatypes[datatype].bytes;
	return 0;
}

struct fi_ops_atomic atomic_operations = {
	.size = sizeof atomic_operations,
	.write = atomic_write,
	.writev = atomic_write_vector,
	.writemsg = atomic_write_message,
	.inject = atomic_inject,
	.readwrite = atomic_fetch,
	.readwritev = atomic_fetch_vector,
	.readwritemsg = atomic_fetch_message,
	.compwrite = atomic_compare,
	.compwritev = atomic_compare_vector,
	.compwritemsg = atomic_compare_message,
	.writevalid = is_valid_write,
	.readwritevalid = is_valid_fetch,
	.compwritevalid = is_valid_compare,
};
