/* The provider `uet`: what it offers, its fabric and its domains. Source: fi_provider(7), fi_getinfo(3), fi_domain(3).
 *
 * It is loaded by FI_PROVIDER_PATH into whatever copy of libfabric a program has (fi_provider(3)), which it asks for the
 * few functions that it needs of it, so that one file fits all from 1.17 on.
 */
#include "provider.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

#define MOST_RAILS 64
#define RAIL_NAME_BYTES 16
#define PROVIDER_VERSION FI_VERSION(1, 0)

struct rail {
	char name[RAIL_NAME_BYTES + 1];
	struct wire_name address;
	int family;
};

struct core core;

static struct rails {
	int count;
	struct rail all[MOST_RAILS];
} *known_rails;

int not_there(void)
{
	return -FI_ENOSYS;
}

int nothing(void)
{
	return 0;
}

/* --- rails ---------------------------------------------------------------------------------------------------------- */

static int family_of(const struct wire_name *name)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(name->address, mapped, sizeof mapped) ? AF_INET6 : AF_INET;
}

/* Ask once which rails this host has. NULL where none answers. No lock is held meanwhile: a child that is forked then
 * would wait for it for ever. */
static const struct rails *find_rails(void)
{
	struct rails *found = __atomic_load_n(&known_rails, __ATOMIC_ACQUIRE), *others = NULL;
	int fd;

	if (found)
		return found;
	fd = connection_dial();
	if (fd < 0)
		return NULL;
	found = calloc(1, sizeof *found);
	while (found && found->count < MOST_RAILS) {
		struct wire_request request = {.kind = WIRE_RAIL, .tag = found->count};
		struct wire_reply answer;
		struct rail *rail = &found->all[found->count];

		if (dial_ask(fd, &request, NULL, &answer))
			break;
		memcpy(rail->name, &answer.tag, 8);
		memcpy(rail->name + 8, &answer.data, 8);
		rail->address = answer.peer;
		rail->family = family_of(&answer.peer);
		found->count++;
	}
	close(fd);
	if (found && found->count &&
	    __atomic_compare_exchange_n(&known_rails, &others, found, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return found;
	free(found);
	return others; /* who asked meanwhile */
}

/* --- what is offered -------------------------------------------------------------------------------------------------- */

static uint64_t wanted_capabilities(const struct fi_info *hints)
{
	uint64_t caps = hints && hints->caps ? hints->caps : CAPABILITIES;

	if (caps & (FI_MSG | FI_TAGGED) && !(caps & (FI_SEND | FI_RECV)))
		caps |= FI_SEND | FI_RECV;
	if (caps & (FI_RMA | FI_ATOMIC) && !(caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)))
		caps |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	return caps | EVERYWHERE;
}

/* Whether an attribute that is asked for lies within what there is. */
static bool attributes_fit(const struct fi_info *hints)
{
	const struct fi_domain_attr *domain = hints->domain_attr;
	const struct fi_ep_attr *endpoint = hints->ep_attr;
	const struct fi_tx_attr *transmit = hints->tx_attr;
	const struct fi_rx_attr *receive = hints->rx_attr;

	if (endpoint && ((endpoint->type != FI_EP_UNSPEC && endpoint->type != FI_EP_RDM) || endpoint->protocol ||
			 endpoint->max_msg_size > WIRE_MESSAGE_BYTES || endpoint->tx_ctx_cnt == FI_SHARED_CONTEXT ||
			 endpoint->rx_ctx_cnt == FI_SHARED_CONTEXT || endpoint->auth_key_size))
		return false;
	if (domain && (domain->cq_data_size > 8 || domain->mr_key_size > WIRE_KEY_BITS / 8 || domain->auth_key_size))
		return false;
	if (transmit && (transmit->inject_size > INJECT_BYTES || transmit->size > TRANSMIT_DEPTH ||
			 transmit->iov_limit > WIRE_PLACES || transmit->rma_iov_limit > 1 ||
			 transmit->msg_order & ~(uint64_t)ORDERS || transmit->comp_order & FI_ORDER_STRICT ||
			 transmit->caps & ~(uint64_t)CAPABILITIES))
		return false;
	if (receive && (receive->size > RECEIVE_DEPTH || receive->iov_limit > WIRE_PLACES ||
			receive->msg_order & ~(uint64_t)ORDERS || receive->comp_order & FI_ORDER_STRICT ||
			receive->caps & ~(uint64_t)CAPABILITIES))
		return false;
	return !(wanted_capabilities(hints) & ~(uint64_t)CAPABILITIES);
}

static bool rail_fits(const struct rail *rail, const struct fi_info *hints)
{
	struct wire_name source;

	if (!hints)
		return true;
	if (hints->domain_attr && hints->domain_attr->name && strcmp(hints->domain_attr->name, rail->name))
		return false;
	if (hints->fabric_attr && hints->fabric_attr->name && strcmp(hints->fabric_attr->name, provider.name))
		return false;
	if (hints->addr_format && hints->addr_format != FI_SOCKADDR &&
	    hints->addr_format != (rail->family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6))
		return false;
	if (!hints->src_addr)
		return true;
	if (!name_from_socket(hints->src_addr, rail->family, &source))
		return false;
	return !memcmp(source.address, rail->address.address, sizeof source.address);
}

static void set_domain(struct fi_domain_attr *attr, const struct rail *rail, const struct fi_domain_attr *asked)
{
	attr->name = strdup(rail->name);
	attr->threading = asked && asked->threading ? asked->threading : FI_THREAD_SAFE;
	attr->control_progress = attr->data_progress = FI_PROGRESS_AUTO;
	attr->resource_mgmt = FI_RM_ENABLED;
	attr->av_type = asked && asked->av_type ? asked->av_type : FI_AV_TABLE;
	/* Nothing of FI_MR_... is needed; programs of before API version 1.5 know two ways alone. */
	attr->mr_mode = asked && asked->mr_mode == FI_MR_BASIC ? FI_MR_BASIC : 0;
	attr->mr_key_size = attr->mr_mode ? 8 : WIRE_KEY_BITS / 8;
	attr->cq_data_size = 8;
	attr->cq_cnt = attr->cntr_cnt = 65536;
	attr->ep_cnt = attr->tx_ctx_cnt = attr->rx_ctx_cnt = WIRE_ENDPOINTS;
	attr->max_ep_tx_ctx = attr->max_ep_rx_ctx = 1;
	attr->mr_iov_limit = WIRE_PLACES;
	attr->mr_cnt = 65536;
	attr->caps = EVERYWHERE;
}

static void set_endpoint(struct fi_info *info, uint64_t order)
{
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->protocol_version = 1;
	info->ep_attr->max_msg_size = WIRE_MESSAGE_BYTES;
	info->ep_attr->max_order_raw_size = order ? WIRE_MESSAGE_BYTES : 0;
	info->ep_attr->max_order_war_size = info->ep_attr->max_order_waw_size = info->ep_attr->max_order_raw_size;
	info->ep_attr->mem_tag_format = ~0ull; /* one field of 64 bits */
	info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = 1;
}

static struct fi_info *offer(const struct rail *rail, const struct fi_info *hints)
{
	const struct fi_tx_attr *transmit = hints ? hints->tx_attr : NULL;
	const struct fi_rx_attr *receive = hints ? hints->rx_attr : NULL;
	uint64_t order = transmit ? transmit->msg_order : hints ? 0 : ORDERS;
	struct fi_info *info = core.dupinfo(NULL);

	if (!info)
		return NULL;
	info->caps = wanted_capabilities(hints);
	info->addr_format = rail->family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
	info->src_addr = calloc(1, sizeof(struct sockaddr_in6));
	if (info->src_addr)
		info->src_addrlen =
			name_to_socket(&rail->address, rail->family, info->src_addr, sizeof(struct sockaddr_in6));
	set_endpoint(info, order);
	set_domain(info->domain_attr, rail, hints ? hints->domain_attr : NULL);
	info->fabric_attr->name = strdup(provider.name);
	info->fabric_attr->prov_version = PROVIDER_VERSION;
	info->tx_attr->caps = info->caps & (KINDS | SENDING | EVERYWHERE);
	info->tx_attr->op_flags = transmit ? transmit->op_flags : 0;
	info->tx_attr->msg_order = order;
	info->tx_attr->inject_size = INJECT_BYTES;
	info->tx_attr->size = TRANSMIT_DEPTH;
	info->tx_attr->iov_limit = WIRE_PLACES;
	info->tx_attr->rma_iov_limit = 1;
	info->rx_attr->caps = info->caps & (KINDS | RECEIVING | EVERYWHERE);
	info->rx_attr->op_flags = receive ? receive->op_flags : 0;
	info->rx_attr->msg_order = receive ? receive->msg_order : order;
	info->rx_attr->size = RECEIVE_DEPTH;
	info->rx_attr->iov_limit = WIRE_PLACES;
	return info;
}

/* The address of another endpoint that a program names, for one that wants no address vector yet. */
static void set_destination(struct fi_info *info, const char *node, const char *service)
{
	int family = info->addr_format == FI_SOCKADDR_IN ? AF_INET : AF_INET6;
	struct sockaddr_in four = {.sin_family = AF_INET};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	bool is_four = family == AF_INET;

	four.sin_port = six.sin6_port = htons(service ? atoi(service) : 0);
	if (inet_pton(family, node, is_four ? (void *)&four.sin_addr : (void *)&six.sin6_addr) != 1)
		return;
	info->dest_addrlen = is_four ? sizeof four : sizeof six;
	info->dest_addr = malloc(info->dest_addrlen);
	if (info->dest_addr)
		memcpy(info->dest_addr, is_four ? (void *)&four : (void *)&six, info->dest_addrlen);
}

/* Whether a program that names the address of its own end may mean this rail; a name that is no address tells nothing. */
static bool is_source(const struct rail *rail, const char *node)
{
	struct in6_addr six;
	struct in_addr four;

	if (inet_pton(AF_INET, node, &four) == 1)
		return !four.s_addr || (rail->family == AF_INET && !memcmp(rail->address.address + 12, &four, sizeof four));
	if (inet_pton(AF_INET6, node, &six) == 1)
		return IN6_IS_ADDR_UNSPECIFIED(&six) || !memcmp(rail->address.address, &six, sizeof six);
	return true;
}

static bool is_own(const struct rail *rail)
{
	const char *own = getenv("LAB_UET_RAIL");

	return own && !strcmp(own, rail->name);
}

int getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
	    struct fi_info **out)
{
	const struct rails *rails;
	struct fi_info **last = out;

	(void)version;
	*out = NULL;
	if ((hints && !attributes_fit(hints)) || !(rails = find_rails()))
		return -FI_ENODATA;
	for (int own = 1; own >= 0; own--) { /* that of the program's own rail comes first */
		for (int i = 0; i < rails->count; i++) {
			const struct rail *rail = &rails->all[i];

			if (is_own(rail) != own || !rail_fits(rail, hints) ||
			    (node && flags & FI_SOURCE && !is_source(rail, node)))
				continue;
			*last = offer(rail, hints);
			if (!*last)
				return *out ? 0 : -FI_ENOMEM;
			if (node && !(flags & FI_SOURCE))
				set_destination(*last, node, service);
			last = &(*last)->next;
		}
	}
	return *out ? 0 : -FI_ENODATA;
}

/* --- domains ------------------------------------------------------------------------------------------------------------ */

static int domain_close(struct fid *fid)
{
	struct domain *domain = (struct domain *)fid;

	if (is_held(&domain->users))
		return -FI_EBUSY;
	connection_close(&domain->connection);
	let_go(&domain->fabric->users);
	free(domain);
	return 0;
}

static struct fi_ops domain_fid = {
	.size = sizeof domain_fid,
	.close = domain_close,
	.bind = NOTHING, /* an event queue, on which nothing would happen */
	.control = NOT_THERE,
	.ops_open = NOT_THERE,
};

static struct fi_ops_domain domain_operations = {
	.size = sizeof domain_operations,
	.av_open = vector_open,
	.cq_open = queue_open,
	.endpoint = endpoint_open,
	.scalable_ep = NOT_THERE,
	.cntr_open = counter_open,
	.poll_open = NOT_THERE,
	.stx_ctx = NOT_THERE,
	.srx_ctx = NOT_THERE,
	.query_atomic = query_atomic,
	.query_collective = NOT_THERE,
};

static int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **out, void *context)
{
	struct wire_request request = {.kind = WIRE_HELLO, .data = WIRE_VERSION};
	const char *rail = info->domain_attr ? info->domain_attr->name : NULL;
	struct wire_reply answer;
	struct domain *domain;
	int error;

	if (!rail)
		return -FI_EINVAL;
	domain = calloc(1, sizeof *domain);
	if (!domain)
		return -FI_ENOMEM;
	domain->connection.fd = connection_dial();
	if (domain->connection.fd < 0) {
		error = domain->connection.fd;
		free(domain);
		return error;
	}
	domain->connection.owner = getpid();
	request.body = strlen(rail);
	error = dial_ask(domain->connection.fd, &request, rail, &answer);
	if (!error)
		error = connection_open(&domain->connection, domain);
	if (error) {
		connection_close(&domain->connection);
		free(domain);
		return error;
	}
	domain->fabric = (struct fabric *)fabric;
	hold(&domain->fabric->users);
	domain->name = answer.peer;
	domain->family = family_of(&answer.peer);
	domain->atomic_bytes = answer.length < WIRE_INLINE_BYTES ? answer.length : WIRE_INLINE_BYTES;
	domain->mr_mode = info->domain_attr->mr_mode == FI_MR_BASIC ? FI_MR_VIRT_ADDR | FI_MR_PROV_KEY : 0;
	domain->fid.fid = (struct fid){.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &domain_fid};
	domain->fid.ops = &domain_operations;
	domain->fid.mr = &memory_operations;
	*out = &domain->fid;
	return 0;
}

/* --- the fabric ---------------------------------------------------------------------------------------------------------- */

static int try_wait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	(void)fabric;
	for (int i = 0; i < count; i++)
		if (fids[i]->fclass == FI_CLASS_CQ) {
			int error = queue_try((struct queue *)fids[i]);

			if (error)
				return error;
		}
	return 0;
}

static int fabric_close(struct fid *fid)
{
	struct fabric *fabric = (struct fabric *)fid;

	if (is_held(&fabric->users))
		return -FI_EBUSY;
	free(fabric);
	return 0;
}

static struct fi_ops fabric_fid = {
	.size = sizeof fabric_fid,
	.close = fabric_close,
	.bind = NOT_THERE,
	.control = NOT_THERE,
	.ops_open = NOT_THERE,
};

static struct fi_ops_fabric fabric_operations = {
	.size = sizeof fabric_operations,
	.domain = domain_open,
	.passive_ep = NOT_THERE,
	.eq_open = events_open,
	.wait_open = NOT_THERE,
	.trywait = try_wait,
};

static int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
	struct fabric *fabric;

	if (attr->name && strcmp(attr->name, provider.name))
		return -FI_ENODATA;
	fabric = calloc(1, sizeof *fabric);
	if (!fabric)
		return -FI_ENOMEM;
	fabric->fid.fid = (struct fid){.fclass = FI_CLASS_FABRIC, .context = context, .ops = &fabric_fid};
	fabric->fid.ops = &fabric_operations;
	*out = &fabric->fid;
	return 0;
}

struct fi_provider provider = {
	.version = PROVIDER_VERSION,
	.name = "uet",
	.getinfo = getinfo,
	.fabric = fabric_open,
	.cleanup = (void (*)(void))NOTHING,
};

/* Called by libfabric, whose functions are those of the library that the call comes from. */
__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void)
{
	Dl_info caller;
	void *library;

	if (!dladdr(__builtin_return_address(0), &caller))
		return NULL;
	library = dlopen(caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		library = RTLD_DEFAULT; /* it is linked into the program itself */
	core.version = (uint32_t (*)(void))dlsym(library, "fi_version");
	core.dupinfo = (struct fi_info * (*)(const struct fi_info *)) dlsym(library, "fi_dupinfo");
	if (!core.version || !core.dupinfo)
		return NULL;
	provider.fi_version = core.version(); /* it loads those of its own release alone */
	return &provider;
}
