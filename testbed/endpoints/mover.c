/* Moves datagrams between a list of Python's tuples and the kernel, many for one system call.
 *
 * It knows nothing of any transport: `Outgoing` and `Incoming` of testbed.protocols.datagram go in and come out. It is
 * built with the compiled modules; without it the sockets module does the same, a system call and a socket for each
 * entropy value. Sources: ip(7), raw(7), udp(7), RFC 768 (checksum), RFC 791. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MOST_SENT 64
#define DEFAULT_TTL 64
#define MOST_RECEIVED 64
#define MESSAGE_BYTES (1 << 16) /* the longest datagram, and the longest run that UDP_GRO hands over as one */
#define HEADER_BYTES 28         /* IPv4 without options, and UDP */
#define LONGEST_PAYLOAD (0xFFFF - HEADER_BYTES)
#define DONT_FRAGMENT 0x4000 /* of `Incoming`, where the IP header is not seen */
#define REMEMBERED 1024 /* addresses whose text is kept, by a hash of theirs */
#ifndef SCM_TIMESTAMPNS
#define SCM_TIMESTAMPNS SO_TIMESTAMPNS
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum outgoing { REMOTE, ENTROPY, PRIORITY, HEADER, PAYLOAD, OUTGOING_FIELDS };
enum incoming { IN_REMOTE, IN_ENTROPY, IN_DATA, IN_CE, IN_LENGTH, IN_LAST_HOP, IN_FRAGMENT_WORD, INCOMING_FIELDS };

static PyTypeObject *incoming_type; /* set once, by `start` */
static PyObject *zero, *dont_fragment;
/* Of received messages. Their datagrams refer to it after the call, so that each thread has its own; all else here is
 * used under the interpreter's lock alone. */
static __thread unsigned char *room;
static pthread_key_t room_key; /* frees a thread's room with it */
static int has_room_key;

static struct {
	unsigned char address[16];
	sa_family_t family;
	PyObject *text;
} known[REMEMBERED];

/* --- sending ------------------------------------------------------------------------------------------------------ */

static uint16_t half_word(unsigned char byte, int second)
{
	unsigned char bytes[2] = {second ? 0 : byte, second ? byte : 0};
	uint16_t word;

	memcpy(&word, bytes, 2);
	return word;
}

/* The sum of 16-bit words in the order of memory; `odd`: the first byte is the second one of a word. */
static uint64_t add_bytes(uint64_t sum, const unsigned char *data, Py_ssize_t length, int odd)
{
	if (odd && length) {
		sum += half_word(*data++, 1);
		length--;
	}
	for (; length >= 4; length -= 4, data += 4) {
		uint32_t word;
		memcpy(&word, data, 4);
		sum += word;
	}
	if (length >= 2) {
		uint16_t word;
		memcpy(&word, data, 2);
		sum += word;
		data += 2;
		length -= 2;
	}
	return length ? sum + half_word(*data, 0) : sum;
}

static uint16_t folded(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xFFFF) + (sum >> 16);
	return (uint16_t)~sum;
}

static void put_16(unsigned char *at, unsigned value)
{
	at[0] = value >> 8;
	at[1] = value & 0xFF;
}

/* The time to live that packets of a socket have: net.ipv4.ip_default_ttl as it is now, where nobody set another. */
static unsigned char ttl_of(int fd)
{
	int ttl = DEFAULT_TTL;
	socklen_t size = sizeof(ttl);

	if (getsockopt(fd, IPPROTO_IP, IP_TTL, &ttl, &size) || ttl < 1 || ttl > 255)
		return DEFAULT_TTL;
	return (unsigned char)ttl;
}

/* The IP header that comes without a checksum gets it from the kernel, and an identification too (raw(7)). */
static void write_headers(unsigned char *at, unsigned char tos, unsigned char ttl, const unsigned char *source,
			  const struct in_addr *to, unsigned entropy, unsigned port, const Py_buffer *header,
			  const Py_buffer *payload)
{
	unsigned length = (unsigned)(header->len + payload->len);
	uint64_t sum;
	uint16_t checksum;

	memset(at, 0, HEADER_BYTES);
	at[0] = 0x45;
	at[1] = tos;
	put_16(at + 2, HEADER_BYTES + length);
	at[6] = 0x40; /* never fragmented */
	at[8] = ttl;
	at[9] = IPPROTO_UDP;
	memcpy(at + 12, source, 4);
	memcpy(at + 16, to, 4);
	put_16(at + 20, entropy);
	put_16(at + 22, port);
	put_16(at + 24, 8 + length);
	sum = add_bytes(htons(IPPROTO_UDP) + htons((uint16_t)(8 + length)), at + 12, 8, 0);
	sum = add_bytes(sum, at + 20, 8, 0);
	sum = add_bytes(sum, header->buf, header->len, 0);
	sum = add_bytes(sum, payload->buf, payload->len, header->len & 1);
	checksum = folded(sum);
	if (!checksum)
		checksum = 0xFFFF;
	memcpy(at + 26, &checksum, 2);
}

static int fails(int reason)
{
	errno = reason;
	PyErr_SetFromErrno(PyExc_OSError);
	return -1;
}

/* Of the datagrams that are written for one call. */
struct batch {
	struct mmsghdr messages[MOST_SENT];
	struct iovec parts[MOST_SENT][3];
	struct sockaddr_in names[MOST_SENT];
	unsigned char headers[MOST_SENT][HEADER_BYTES];
	Py_buffer views[MOST_SENT][2];
	unsigned char ttl;
	int count;
};

static int add_datagram(struct batch *batch, PyObject *item, const unsigned char *source, unsigned port,
			const unsigned char *tos, Py_ssize_t priorities)
{
	int at = batch->count;
	Py_buffer *header = &batch->views[at][0], *payload = &batch->views[at][1];
	struct sockaddr_in *name = &batch->names[at];
	const char *remote;
	long entropy, priority;

	if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != OUTGOING_FIELDS) {
		PyErr_SetString(PyExc_TypeError, "no datagram to be sent");
		return -1;
	}
	remote = PyUnicode_AsUTF8(PyTuple_GET_ITEM(item, REMOTE));
	entropy = PyLong_AsLong(PyTuple_GET_ITEM(item, ENTROPY));
	priority = PyLong_AsLong(PyTuple_GET_ITEM(item, PRIORITY));
	if (PyErr_Occurred())
		return -1;
	if (entropy < 1 || entropy > 0xFFFF)
		return fails(EADDRNOTAVAIL);
	if (priority < 0 || priority >= priorities)
		return fails(EINVAL);
	memset(name, 0, sizeof(*name));
	name->sin_family = AF_INET;
	if (inet_pton(AF_INET, remote, &name->sin_addr) != 1)
		return fails(EINVAL);
	if (PyObject_GetBuffer(PyTuple_GET_ITEM(item, HEADER), header, PyBUF_SIMPLE))
		return -1;
	if (PyObject_GetBuffer(PyTuple_GET_ITEM(item, PAYLOAD), payload, PyBUF_SIMPLE)) {
		PyBuffer_Release(header);
		return -1;
	}
	if (header->len + payload->len > LONGEST_PAYLOAD) {
		PyBuffer_Release(header);
		PyBuffer_Release(payload);
		return fails(EMSGSIZE);
	}
	write_headers(batch->headers[at], tos[priority], batch->ttl, source, &name->sin_addr, (unsigned)entropy, port,
		      header, payload);
	batch->parts[at][0] = (struct iovec){batch->headers[at], HEADER_BYTES};
	batch->parts[at][1] = (struct iovec){header->buf, (size_t)header->len};
	batch->parts[at][2] = (struct iovec){payload->buf, (size_t)payload->len};
	memset(&batch->messages[at], 0, sizeof(batch->messages[at]));
	batch->messages[at].msg_hdr.msg_name = name;
	batch->messages[at].msg_hdr.msg_namelen = sizeof(*name);
	batch->messages[at].msg_hdr.msg_iov = batch->parts[at];
	batch->messages[at].msg_hdr.msg_iovlen = 3;
	batch->count++;
	return 0;
}

PyDoc_STRVAR(send_doc, "send(fd, source, port, tos, datagrams, start, stop)\n--\n\n"
		       "Send datagrams[start:stop] from the IPv4 address `source` by a raw socket, as many as find room.\n\n"
		       "`tos`: the TOS byte by priority. Returns how many were sent and the bytes of their UDP payload.\n"
		       "Raises OSError where the first cannot be sent.");

static PyObject *mover_send(PyObject *module, PyObject *arguments)
{
	static struct batch batch;
	int fd, sent;
	unsigned short port;
	Py_buffer source, tos;
	PyObject *datagrams, *result = NULL;
	Py_ssize_t start, stop, index, bytes = 0;

	if (!PyArg_ParseTuple(arguments, "iy*Hy*O!nn", &fd, &source, &port, &tos, &PyList_Type, &datagrams, &start,
			      &stop))
		return NULL;
	batch.count = 0;
	batch.ttl = ttl_of(fd);
	if (source.len != 4 || start < 0 || stop > PyList_GET_SIZE(datagrams) || start >= stop) {
		PyErr_SetString(PyExc_ValueError, "no IPv4 address, or no such datagrams");
		goto end;
	}
	for (index = start; index < stop && batch.count < MOST_SENT; index++)
		if (add_datagram(&batch, PyList_GET_ITEM(datagrams, index), source.buf, port, tos.buf, tos.len)) {
			if (index == start || !PyErr_ExceptionMatches(PyExc_OSError))
				goto end;
			PyErr_Clear(); /* it is the first of the next call */
			break;
		}
	sent = sendmmsg(fd, batch.messages, (unsigned)batch.count, MSG_DONTWAIT);
	if (sent < 0) {
		PyErr_SetFromErrno(PyExc_OSError);
		goto end;
	}
	for (index = 0; index < sent; index++)
		bytes += batch.views[index][0].len + batch.views[index][1].len;
	result = Py_BuildValue("in", sent, bytes);
end:
	while (batch.count--) {
		PyBuffer_Release(&batch.views[batch.count][0]);
		PyBuffer_Release(&batch.views[batch.count][1]);
	}
	PyBuffer_Release(&source);
	PyBuffer_Release(&tos);
	return result;
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

static PyObject *text_of(const struct sockaddr_storage *name)
{
	unsigned char address[16] = {0};
	char text[INET6_ADDRSTRLEN];
	unsigned hash = 0;
	int size = name->ss_family == AF_INET6 ? 16 : 4, index;

	if (size == 16)
		memcpy(address, &((const struct sockaddr_in6 *)name)->sin6_addr, 16);
	else
		memcpy(address, &((const struct sockaddr_in *)name)->sin_addr, 4);
	for (index = 0; index < size; index++)
		hash = hash * 31 + address[index];
	hash %= REMEMBERED;
	if (!known[hash].text || known[hash].family != name->ss_family || memcmp(known[hash].address, address, 16)) {
		PyObject *made;

		if (!inet_ntop(name->ss_family, address, text, sizeof(text)))
			return PyErr_SetFromErrno(PyExc_OSError);
		made = PyUnicode_FromString(text);
		if (!made)
			return NULL;
		Py_XSETREF(known[hash].text, made);
		known[hash].family = name->ss_family;
		memcpy(known[hash].address, address, 16);
	}
	return Py_NewRef(known[hash].text);
}

static unsigned port_of(const struct sockaddr_storage *name)
{
	return ntohs(name->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)name)->sin6_port
						 : ((const struct sockaddr_in *)name)->sin_port);
}

static int64_t ns_of(const struct timespec *at)
{
	return (int64_t)at->tv_sec * 1000000000 + at->tv_nsec;
}

static int64_t clock_ns(clockid_t which)
{
	struct timespec at;

	clock_gettime(which, &at);
	return ns_of(&at);
}

/* What a message's control data say: the TOS byte or traffic class, the bytes of one datagram where UDP_GRO joined
 * several, and when it arrived, ns of CLOCK_REALTIME; 0: they do not. */
static void read_control(struct msghdr *header, int *tos, int *segment, int64_t *stamp)
{
	struct cmsghdr *item;

	*tos = *segment = 0;
	*stamp = 0;
	for (item = CMSG_FIRSTHDR(header); item; item = CMSG_NXTHDR(header, item)) {
		int value = 0;
		size_t size = item->cmsg_len - CMSG_LEN(0);

		if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_TIMESTAMPNS) {
			struct timespec at;

			memcpy(&at, CMSG_DATA(item), sizeof(at));
			*stamp = ns_of(&at);
			continue;
		}
		memcpy(&value, CMSG_DATA(item), size < sizeof(value) ? size : sizeof(value));
		if (item->cmsg_level == IPPROTO_UDP && item->cmsg_type == UDP_GRO)
			*segment = value;
		else if ((item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_TOS) ||
			 (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_TCLASS))
			*tos = value & 0xFF;
	}
}

/* The data stay where the kernel wrote them: to copy 128 datagrams of 4 KiB costs more than the copying, since malloc
 * gives so much back to the kernel each time, and every page of it comes back as a page fault. Where somebody asked when
 * they arrived, they wait for their path's delay, and are copied in any case. */
static int append_datagram(PyObject *found, PyObject *remote, PyObject *port, unsigned char *data, size_t size, int ce,
			   int waits)
{
	PyObject *content = waits ? PyBytes_FromStringAndSize((char *)data, (Py_ssize_t)size)
				  : PyMemoryView_FromMemory((char *)data, (Py_ssize_t)size, PyBUF_READ);
	PyObject *item;
	int failed;

	if (!content)
		return -1;
	item = incoming_type->tp_alloc(incoming_type, INCOMING_FIELDS);
	if (!item) {
		Py_DECREF(content);
		return -1;
	}
	PyTuple_SET_ITEM(item, IN_REMOTE, Py_NewRef(remote));
	PyTuple_SET_ITEM(item, IN_ENTROPY, Py_NewRef(port));
	PyTuple_SET_ITEM(item, IN_DATA, content);
	PyTuple_SET_ITEM(item, IN_CE, Py_NewRef(ce ? Py_True : Py_False));
	PyTuple_SET_ITEM(item, IN_LENGTH, Py_NewRef(zero));
	PyTuple_SET_ITEM(item, IN_LAST_HOP, Py_NewRef(Py_False));
	PyTuple_SET_ITEM(item, IN_FRAGMENT_WORD, Py_NewRef(dont_fragment));
	failed = PyList_Append(found, item);
	Py_DECREF(item);
	return failed;
}

static int append_message(PyObject *found, PyObject *arrivals, struct msghdr *header, unsigned char *data,
			  size_t length, int64_t ahead)
{
	PyObject *remote = text_of(header->msg_name), *port = PyLong_FromLong((long)port_of(header->msg_name)), *arrived;
	int tos, segment, failed;
	int64_t stamp;
	size_t at = 0;

	read_control(header, &tos, &segment, &stamp);
	arrived = PyLong_FromLongLong(stamp ? stamp - ahead : 0);
	failed = !remote || !port || !arrived;
	do {
		size_t size = segment > 0 && (size_t)segment < length - at ? (size_t)segment : length - at;

		failed = failed || append_datagram(found, remote, port, data + at, size, (tos & 3) == 3, stamp != 0) ||
			 (stamp && PyList_Append(arrivals, arrived));
		at += size;
	} while (!failed && at < length);
	Py_XDECREF(remote);
	Py_XDECREF(port);
	Py_XDECREF(arrived);
	return failed ? -1 : 0;
}

PyDoc_STRVAR(receive_doc, "receive(fd, limit)\n--\n\n"
			  "Receive up to `limit` messages of a UDP socket, without waiting.\n\n"
			  "Returns their datagrams in the order in which they arrived, when each did (ns of CLOCK_MONOTONIC;\n"
			  "an empty list where the socket has no SO_TIMESTAMPNS), how many messages and bytes these were, how\n"
			  "many came from port 0 and were left out, and errno (0: all went well, or nothing was there).");

static int make_room(void)
{
	unsigned char *made = malloc((size_t)MOST_RECEIVED * MESSAGE_BYTES);

	if (!made || pthread_setspecific(room_key, made)) {
		free(made);
		PyErr_NoMemory();
		return -1;
	}
	room = made;
	return 0;
}

static PyObject *mover_receive(PyObject *module, PyObject *arguments)
{
	static struct mmsghdr messages[MOST_RECEIVED];
	static struct iovec parts[MOST_RECEIVED];
	static struct sockaddr_storage names[MOST_RECEIVED];
	static char controls[MOST_RECEIVED][128] __attribute__((aligned(8)));
	int fd, limit, count, index, unanswerable = 0, reason = 0;
	Py_ssize_t bytes = 0;
	int64_t ahead;
	PyObject *found, *arrivals;

	if (!incoming_type) {
		PyErr_SetString(PyExc_RuntimeError, "start comes first");
		return NULL;
	}
	if (!PyArg_ParseTuple(arguments, "ii", &fd, &limit))
		return NULL;
	if (!room && make_room())
		return NULL;
	if (limit > MOST_RECEIVED)
		limit = MOST_RECEIVED;
	for (index = 0; index < limit; index++) {
		parts[index] = (struct iovec){room + (size_t)index * MESSAGE_BYTES, MESSAGE_BYTES};
		messages[index].msg_hdr = (struct msghdr){.msg_name = &names[index],
							  .msg_namelen = sizeof(names[index]),
							  .msg_iov = &parts[index],
							  .msg_iovlen = 1,
							  .msg_control = controls[index],
							  .msg_controllen = sizeof(controls[index])};
	}
	count = recvmmsg(fd, messages, (unsigned)limit, MSG_DONTWAIT, NULL);
	if (count < 0) {
		reason = errno == EAGAIN || errno == EINTR ? 0 : errno;
		count = 0;
	}
	ahead = count ? clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC) : 0;
	found = PyList_New(0);
	arrivals = PyList_New(0);
	if (!found || !arrivals)
		goto failed;
	for (index = 0; index < count; index++) {
		if (!port_of(&names[index])) {
			unanswerable++;
			continue;
		}
		bytes += messages[index].msg_len;
		if (append_message(found, arrivals, &messages[index].msg_hdr, parts[index].iov_base,
				   messages[index].msg_len, ahead))
			goto failed;
	}
	return Py_BuildValue("NNinii", found, arrivals, count, bytes, unanswerable, reason);
failed:
	Py_XDECREF(found);
	Py_XDECREF(arrivals);
	return NULL;
}

/* --- the module --------------------------------------------------------------------------------------------------- */

PyDoc_STRVAR(start_doc, "start(incoming)\n--\n\nSay which named tuple received datagrams are. To be called once.");

static PyObject *mover_start(PyObject *module, PyObject *type)
{
	if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) {
		PyErr_SetString(PyExc_TypeError, "no named tuple");
		return NULL;
	}
	if (!has_room_key && pthread_key_create(&room_key, free))
		return PyErr_NoMemory();
	has_room_key = 1;
	if (!zero)
		zero = PyLong_FromLong(0);
	if (!dont_fragment)
		dont_fragment = PyLong_FromLong(DONT_FRAGMENT);
	incoming_type = (PyTypeObject *)Py_NewRef(type);
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
	{"send", mover_send, METH_VARARGS, send_doc},
	{"receive", mover_receive, METH_VARARGS, receive_doc},
	{"start", mover_start, METH_O, start_doc},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "testbed.endpoints.mover", "Many datagrams for one system call.", -1, methods,
	NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_mover(void)
{
	return PyModule_Create(&definition);
}
