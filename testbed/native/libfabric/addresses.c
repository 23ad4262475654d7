/* Address vectors: an fi_addr_t is an index. A name is a socket address, whose port is the PIDonFEP and the resource index
 * of an endpoint: 12 and 4 bits. Source: fi_av(3). */
#include "provider.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

#define FIRST_NAMES 64
#define MOST_NAMES (1u << 20)
#define INDEX_BITS 4

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

bool name_from_socket(const void *address, int family, struct wire_name *name)
{
	uint16_t port;

	memset(name, 0, sizeof *name);
	if (((const struct sockaddr *)address)->sa_family != family)
		return false;
	if (family == AF_INET) {
		const struct sockaddr_in *in = address;

		memcpy(name->address, mapped, sizeof mapped);
		memcpy(name->address + sizeof mapped, &in->sin_addr, 4);
		port = ntohs(in->sin_port);
	} else {
		const struct sockaddr_in6 *in = address;

		memcpy(name->address, &in->sin6_addr, 16);
		port = ntohs(in->sin6_port);
	}
	name->pid = port >> INDEX_BITS;
	name->index = port & ((1 << INDEX_BITS) - 1);
	return true;
}

/* The bytes of the socket address; as many as there is room for are written. */
size_t name_to_socket(const struct wire_name *name, int family, void *out, size_t room)
{
	uint16_t port = htons(name->pid << INDEX_BITS | name->index);
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = port};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = port};
	size_t length = family == AF_INET ? sizeof four : sizeof six;

	memcpy(&six.sin6_addr, name->address, 16);
	memcpy(&four.sin_addr, name->address + sizeof mapped, 4);
	memcpy(out, family == AF_INET ? (void *)&four : (void *)&six, room < length ? room : length);
	return length;
}

static size_t hash(const struct wire_name *name)
{
	uint64_t value = 0xcbf29ce484222325ull; /* FNV-1a */
	const uint8_t *bytes = (const uint8_t *)name;

	for (size_t i = 0; i < sizeof *name; i++)
		value = (value ^ bytes[i]) * 0x100000001b3ull;
	return value;
}

static void remember(struct vector *vector, size_t address)
{
	size_t slot = hash(&vector->names[address]) % vector->slots;

	while (vector->table[slot]) {
		if (!memcmp(&vector->names[vector->table[slot] - 1], &vector->names[address], sizeof *vector->names))
			return; /* the first one is whom messages are from */
		slot = (slot + 1) % vector->slots;
	}
	vector->table[slot] = address + 1;
}

static void remember_all(struct vector *vector)
{
	memset(vector->table, 0, vector->slots * sizeof *vector->table);
	for (size_t i = 0; i < vector->count; i++)
		if (vector->names[i].index)
			remember(vector, i);
}

static bool grow(struct vector *vector)
{
	size_t room = vector->room ? vector->room * 2 : FIRST_NAMES;
	struct wire_name *names;
	uint32_t *table;

	if (room > MOST_NAMES)
		return false;
	names = realloc(vector->names, room * sizeof *names);
	if (!names)
		return false;
	vector->names = names;
	vector->room = room;
	table = realloc(vector->table, 2 * room * sizeof *table);
	if (!table)
		return false;
	vector->table = table;
	vector->slots = 2 * room;
	remember_all(vector);
	return true;
}

static fi_addr_t add(struct vector *vector, const void *address)
{
	struct wire_name name;

	if (!name_from_socket(address, vector->family, &name) || !name.index)
		return FI_ADDR_NOTAVAIL;
	if (vector->count == vector->room && !grow(vector))
		return FI_ADDR_NOTAVAIL;
	vector->names[vector->count] = name;
	remember(vector, vector->count);
	return vector->count++;
}

static int vector_insert(struct fid_av *fid, const void *addresses, size_t count, fi_addr_t *out, uint64_t flags,
			 void *context)
{
	struct vector *vector = (struct vector *)fid;
	size_t step = vector->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	int *errors = flags & FI_SYNC_ERR ? context : NULL;
	int found = 0;

	if (!connection_is_own(&vector->domain->connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&vector->lock);
	for (size_t i = 0; i < count; i++) {
		fi_addr_t one = add(vector, (const char *)addresses + i * step);

		if (out)
			out[i] = one;
		if (errors)
			errors[i] = one == FI_ADDR_NOTAVAIL ? FI_EADDRNOTAVAIL : 0;
		found += one != FI_ADDR_NOTAVAIL;
	}
	pthread_mutex_unlock(&vector->lock);
	return found;
}

static int vector_insert_service(struct fid_av *fid, const char *node, const char *service, fi_addr_t *out,
				 uint64_t flags, void *context)
{
	struct vector *vector = (struct vector *)fid;
	struct sockaddr_in four = {.sin_family = AF_INET};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	bool is_four = vector->family == AF_INET;

	if (!node || !service)
		return -FI_EINVAL;
	four.sin_port = six.sin6_port = htons(atoi(service));
	if (inet_pton(vector->family, node, is_four ? (void *)&four.sin_addr : (void *)&six.sin6_addr) != 1)
		return -FI_EINVAL;
	return vector_insert(fid, is_four ? (void *)&four : (void *)&six, 1, out, flags, context);
}

static int vector_remove(struct fid_av *fid, fi_addr_t *addresses, size_t count, uint64_t flags)
{
	struct vector *vector = (struct vector *)fid;
	int error = 0;

	(void)flags;
	if (!connection_is_own(&vector->domain->connection))
		return -FI_ENODEV;
	pthread_mutex_lock(&vector->lock);
	for (size_t i = 0; i < count; i++) {
		if (addresses[i] >= vector->count || !vector->names[addresses[i]].index)
			error = -FI_EINVAL;
		else
			memset(&vector->names[addresses[i]], 0, sizeof *vector->names);
	}
	remember_all(vector);
	pthread_mutex_unlock(&vector->lock);
	return error;
}

bool vector_name(struct vector *vector, fi_addr_t address, struct wire_name *name)
{
	bool found;

	pthread_mutex_lock(&vector->lock);
	found = address < vector->count && vector->names[address].index;
	if (found)
		*name = vector->names[address];
	pthread_mutex_unlock(&vector->lock);
	return found;
}

fi_addr_t vector_find(struct vector *vector, const struct wire_name *name)
{
	fi_addr_t found = FI_ADDR_NOTAVAIL;

	pthread_mutex_lock(&vector->lock);
	for (size_t slot = vector->slots ? hash(name) % vector->slots : 0; vector->slots && vector->table[slot];
	     slot = (slot + 1) % vector->slots) {
		if (!memcmp(&vector->names[vector->table[slot] - 1], name, sizeof *name)) {
			found = vector->table[slot] - 1;
			break;
		}
	}
	pthread_mutex_unlock(&vector->lock);
	return found;
}

static int vector_lookup(struct fid_av *fid, fi_addr_t address, void *out, size_t *length)
{
	struct vector *vector = (struct vector *)fid;
	struct wire_name name;

	if (!connection_is_own(&vector->domain->connection))
		return -FI_ENODEV;
	if (!vector_name(vector, address, &name))
		return -FI_EINVAL;
	*length = name_to_socket(&name, vector->family, out, *length);
	return 0;
}

static const char *vector_text(struct fid_av *fid, const void *address, char *buffer, size_t *length)
{
	struct vector *vector = (struct vector *)fid;
	char host[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + 16];
	struct wire_name name;
	size_t room = *length;

	if (!name_from_socket(address, vector->family, &name))
		return NULL;
	inet_ntop(vector->family, vector->family == AF_INET ? name.address + sizeof mapped : name.address, host,
		  sizeof host);
	snprintf(text, sizeof text, vector->family == AF_INET ? "%s:%u" : "[%s]:%u", host,
		 name.pid << INDEX_BITS | name.index);
	*length = strlen(text) + 1;
	if (buffer && room) {
		strncpy(buffer, text, room - 1);
		buffer[room - 1] = 0;
	}
	return buffer;
}

static int vector_close(struct fid *fid)
{
	struct vector *vector = (struct vector *)fid;

	if (is_held(&vector->users))
		return -FI_EBUSY;
	let_go(&vector->domain->users);
	free(vector->names);
	free(vector->table);
	free(vector);
	return 0;
}

static struct fi_ops vector_fid = {
	.size = sizeof vector_fid,
	.close = vector_close,
	.bind = NOTHING, /* an event queue, on which nothing would happen */
	.control = NOT_THERE,
	.ops_open = NOT_THERE,
};

static struct fi_ops_av vector_operations = {
	.size = sizeof vector_operations,
	.insert = vector_insert,
	.insertsvc = vector_insert_service,
	.insertsym = NOT_THERE,
	.remove = vector_remove,
	.lookup = vector_lookup,
	.straddr = vector_text,
};

int vector_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
	struct vector *vector;

	if (attr->name || attr->rx_ctx_bits || attr->flags & FI_EVENT)
		return -FI_ENOSYS;
	vector = calloc(1, sizeof *vector);
	if (!vector)
		return -FI_ENOMEM;
	if (attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_TABLE;
	vector->domain = (struct domain *)domain;
	hold(&vector->domain->users);
	vector->family = vector->domain->family;
	pthread_mutex_init(&vector->lock, NULL);
	vector->fid.fid = (struct fid){.fclass = FI_CLASS_AV, .context = context, .ops = &vector_fid};
	vector->fid.ops = &vector_operations;
	*out = &vector->fid;
	return 0;
}
