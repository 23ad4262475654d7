/* AES-GCM-256 of the packets between two addresses: one call seals a run of packets, or opens one.
 *
 * The `cryptography` package takes 0.8 us for each call beside the cipher's own 1.3 us for 4 KiB, wants header and
 * payload joined, and what is authenticated packed by Python before. So the cipher is that of OpenSSL's libcrypto, which
 * is looked for when the first one is made: neither its headers nor the library are needed to build this. It is built
 * with the compiled modules; without it, or without libcrypto, `packet_cipher` does the same with `cryptography`.
 * Sources: UE Specification 1.0, section 3.7 and table 3-90; EVP_EncryptInit(3). */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define LIBRARY "libcrypto.so.3"
#define KEY_BYTES 32
#define IV_BYTES 12
#define COUNTER_BYTES 6 /* at the end of both the IV and the TSS header */
#define ICV_BYTES 16
#define UDP_BYTES 8
#define MOST_ADDRESSES 32
#define MOST_HEADER 16
#define LONGEST_PAYLOAD (0xFFFF - UDP_BYTES)
#define MAX_COUNTER 0xFFFFFFFFFFFFull
#define GET_TAG 0x10 /* EVP_CTRL_AEAD_GET_TAG, EVP_CTRL_AEAD_SET_TAG */
#define SET_TAG 0x11

enum outgoing { REMOTE, ENTROPY, PRIORITY, HEADER, PAYLOAD, OUTGOING_FIELDS };

typedef struct context context; /* EVP_CIPHER_CTX */

static struct {
	context *(*make)(void);
	void (*free)(context *);
	const void *(*aes_256_gcm)(void);
	int (*begin)(context *, const void *cipher, void *engine, const unsigned char *key, const unsigned char *iv,
		     int seals);
	int (*update)(context *, unsigned char *out, int *written, const unsigned char *in, int length);
	int (*end)(context *, unsigned char *out, int *written);
	int (*control)(context *, int what, int length, void *at);
	void (*clear_errors)(void);
} crypto;
static int is_loaded;
static PyObject *nothing; /* b"" */

typedef struct {
	PyObject_HEAD
	context *sealing, *opening; /* each made when it is needed first: most ciphers are used in one direction */
	unsigned char key[KEY_BYTES];
	unsigned char iv[IV_BYTES]; /* for counter 0 */
	unsigned char addresses[MOST_ADDRESSES];
	unsigned char header[MOST_HEADER]; /* that of TSS, for counter 0 */
	int addresses_bytes, header_bytes;
	unsigned udp_port;
} cipher;

static int find(void *library, const char *name, void *function)
{
	void *found = dlsym(library, name);

	memcpy(function, &found, sizeof(found));
	return found != NULL;
}

PyDoc_STRVAR(load_doc, "load()\n--\n\nLook for libcrypto; whether it is there, without which there is no `Cipher`.");

static PyObject *aes_gcm_load(PyObject *module, PyObject *none)
{
	void *library = is_loaded ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (library) {
		is_loaded = find(library, "EVP_CIPHER_CTX_new", &crypto.make) &&
			    find(library, "EVP_CIPHER_CTX_free", &crypto.free) &&
			    find(library, "EVP_aes_256_gcm", &crypto.aes_256_gcm) &&
			    find(library, "EVP_CipherInit_ex", &crypto.begin) &&
			    find(library, "EVP_CipherUpdate", &crypto.update) &&
			    find(library, "EVP_CipherFinal_ex", &crypto.end) &&
			    find(library, "EVP_CIPHER_CTX_ctrl", &crypto.control) &&
			    find(library, "ERR_clear_error", &crypto.clear_errors);
		if (!is_loaded)
			dlclose(library);
	}
	return PyBool_FromLong(is_loaded);
}

static void put_16(unsigned char *at, unsigned value)
{
	at[0] = value >> 8 & 0xFF;
	at[1] = value & 0xFF;
}

static PyObject *cipher_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
	static char *keywords[] = {"key", "iv", "addresses", "udp_port", "header", NULL};
	const char *key, *iv, *addresses, *header;
	Py_ssize_t key_bytes, iv_bytes, addresses_bytes, header_bytes;
	unsigned short port;
	cipher *made;

	if (!PyArg_ParseTupleAndKeywords(arguments, names, "y#y#y#Hy#", keywords, &key, &key_bytes, &iv, &iv_bytes,
					 &addresses, &addresses_bytes, &port, &header, &header_bytes))
		return NULL;
	if (!is_loaded) {
		PyErr_SetString(PyExc_RuntimeError, "load comes first");
		return NULL;
	}
	if (key_bytes != KEY_BYTES || iv_bytes != IV_BYTES || addresses_bytes > MOST_ADDRESSES ||
	    header_bytes < COUNTER_BYTES || header_bytes > MOST_HEADER) {
		PyErr_SetString(PyExc_ValueError, "no key, IV, addresses or TSS header");
		return NULL;
	}
	made = (cipher *)type->tp_alloc(type, 0);
	if (!made)
		return NULL;
	memcpy(made->key, key, KEY_BYTES);
	memcpy(made->iv, iv, IV_BYTES);
	memcpy(made->addresses, addresses, (size_t)addresses_bytes);
	memcpy(made->header, header, (size_t)header_bytes);
	made->addresses_bytes = (int)addresses_bytes;
	made->header_bytes = (int)header_bytes;
	made->udp_port = port;
	return (PyObject *)made;
}

static void cipher_dealloc(PyObject *self)
{
	cipher *of = (cipher *)self;

	if (of->sealing)
		crypto.free(of->sealing);
	if (of->opening)
		crypto.free(of->opening);
	explicit_bzero(of->key, KEY_BYTES);
	explicit_bzero(of->iv, IV_BYTES);
	Py_TYPE(self)->tp_free(self);
}

static int fails(void)
{
	crypto.clear_errors();
	PyErr_SetString(PyExc_RuntimeError, "libcrypto does not encrypt");
	return -1;
}

/* Begin with the packet of this TSS header. */
static int begin(const cipher *of, context **with, int seals, unsigned port, int length, const unsigned char *header)
{
	const unsigned char *counter = header + of->header_bytes - COUNTER_BYTES;
	unsigned char covered[MOST_ADDRESSES + UDP_BYTES + MOST_HEADER], iv[IV_BYTES], *udp = covered + of->addresses_bytes;
	int written;

	if (!*with) {
		*with = crypto.make();
		if (!*with || crypto.begin(*with, crypto.aes_256_gcm(), NULL, of->key, NULL, seals) != 1)
			return fails();
	}
	memcpy(covered, of->addresses, (size_t)of->addresses_bytes);
	put_16(udp, port);
	put_16(udp + 2, of->udp_port);
	put_16(udp + 4, (unsigned)(UDP_BYTES + length));
	put_16(udp + 6, 0); /* its checksum */
	memcpy(udp + UDP_BYTES, header, (size_t)of->header_bytes);
	memcpy(iv, of->iv, IV_BYTES);
	for (int at = 0; at < COUNTER_BYTES; at++)
		iv[IV_BYTES - COUNTER_BYTES + at] ^= counter[at];
	if (crypto.begin(*with, NULL, NULL, NULL, iv, seals) != 1 ||
	    crypto.update(*with, NULL, &written, covered, of->addresses_bytes + UDP_BYTES + of->header_bytes) != 1)
		return fails();
	return 0;
}

/* --- sealing ------------------------------------------------------------------------------------------------------ */

static int encrypt(cipher *of, unsigned port, unsigned long long counter, const Py_buffer *front,
		   const Py_buffer *rest, unsigned char *out, int length)
{
	int written = 0, more = 0, last = 0;

	memcpy(out, of->header, (size_t)of->header_bytes);
	for (int at = of->header_bytes - 1; at >= of->header_bytes - COUNTER_BYTES; at--, counter >>= 8)
		out[at] = counter & 0xFF;
	if (begin(of, &of->sealing, 1, port, length, out))
		return -1;
	out += of->header_bytes;
	if ((front->len && crypto.update(of->sealing, out, &written, front->buf, (int)front->len) != 1) ||
	    (rest->len && crypto.update(of->sealing, out + written, &more, rest->buf, (int)rest->len) != 1) ||
	    crypto.end(of->sealing, out + written + more, &last) != 1 ||
	    crypto.control(of->sealing, GET_TAG, ICV_BYTES, out + written + more + last) != 1)
		return fails();
	return 0;
}

/* What is sent in the place of a datagram, and its UDP payload in `at`, to be written; NULL without an error if no
 * UDP header holds its port or its length. */
static PyObject *room_for(PyObject *item, Py_ssize_t length, unsigned char **at)
{
	PyTypeObject *type = Py_TYPE(item);
	PyObject *content, *made;

	if (length > LONGEST_PAYLOAD)
		return NULL;
	content = PyBytes_FromStringAndSize(NULL, length);
	made = content ? type->tp_alloc(type, OUTGOING_FIELDS) : NULL;
	if (!made) {
		Py_XDECREF(content);
		return NULL;
	}
	for (int field = REMOTE; field <= PRIORITY; field++)
		PyTuple_SET_ITEM(made, field, Py_NewRef(PyTuple_GET_ITEM(item, field)));
	PyTuple_SET_ITEM(made, HEADER, content);
	PyTuple_SET_ITEM(made, PAYLOAD, Py_NewRef(nothing));
	*at = (unsigned char *)PyBytes_AS_STRING(content);
	return made;
}

/* 1: sealed and appended; 0: it is not to be sealed; -1: failed. */
static int seal_one(cipher *of, PyObject *item, unsigned long long counter, PyObject *out)
{
	unsigned char *at;
	long port = PyLong_AsLong(PyTuple_GET_ITEM(item, ENTROPY));
	Py_buffer front, rest;
	Py_ssize_t length;
	PyObject *sealed;
	int done = -1;

	if (port == -1 && PyErr_Occurred()) {
		if (!PyErr_ExceptionMatches(PyExc_OverflowError))
			return -1;
		PyErr_Clear();
	}
	if (port < 0 || port > 0xFFFF)
		return 0;
	if (PyObject_GetBuffer(PyTuple_GET_ITEM(item, HEADER), &front, PyBUF_SIMPLE))
		return -1;
	if (PyObject_GetBuffer(PyTuple_GET_ITEM(item, PAYLOAD), &rest, PyBUF_SIMPLE)) {
		PyBuffer_Release(&front);
		return -1;
	}
	length = of->header_bytes + front.len + rest.len + ICV_BYTES;
	sealed = room_for(item, length, &at);
	if (sealed) {
		done = encrypt(of, (unsigned)port, counter, &front, &rest, at, (int)length) || PyList_Append(out, sealed)
			       ? -1
			       : 1;
		Py_DECREF(sealed);
	} else if (!PyErr_Occurred())
		done = 0;
	PyBuffer_Release(&front);
	PyBuffer_Release(&rest);
	return done;
}

PyDoc_STRVAR(seal_doc, "seal(datagrams, start, most, counter, out)\n--\n\n"
		       "Append to `out` what is sent in the place of datagrams[start:], and return how many that are: those that\n"
		       "go to one address, at most `most`, up to one whose port or length no UDP header holds. The first has\n"
		       "`counter`.");

static PyObject *cipher_seal(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	PyObject *datagrams, *out, *remote = NULL;
	Py_ssize_t start, most, at;
	unsigned long long counter;

	if (count != 5 || !PyList_Check(arguments[0]) || !PyList_Check(arguments[4])) {
		PyErr_SetString(PyExc_TypeError, "seal takes datagrams, a start, a number, a counter and a list");
		return NULL;
	}
	datagrams = arguments[0];
	out = arguments[4];
	start = PyLong_AsSsize_t(arguments[1]);
	most = PyLong_AsSsize_t(arguments[2]);
	counter = PyLong_AsUnsignedLongLong(arguments[3]);
	if (PyErr_Occurred())
		return NULL;
	if (start < 0 || most < 0 || counter > MAX_COUNTER || (unsigned long long)most > MAX_COUNTER - counter + 1) {
		PyErr_SetString(PyExc_ValueError, "there are no such datagrams, or no such counters");
		return NULL;
	}
	for (at = 0; at < most && start + at < PyList_GET_SIZE(datagrams); at++) {
		PyObject *item = PyList_GET_ITEM(datagrams, start + at);
		int done;

		if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != OUTGOING_FIELDS) {
			PyErr_SetString(PyExc_TypeError, "no datagram to be sent");
			return NULL;
		}
		if (!at)
			remote = PyTuple_GET_ITEM(item, REMOTE);
		else if (PyTuple_GET_ITEM(item, REMOTE) != remote) {
			int same = PyObject_RichCompareBool(PyTuple_GET_ITEM(item, REMOTE), remote, Py_EQ);

			if (same < 0)
				return NULL;
			if (!same)
				break;
		}
		done = seal_one((cipher *)self, item, counter + (unsigned long long)at, out);
		if (done < 0)
			return NULL;
		if (!done)
			break;
	}
	return PyLong_FromSsize_t(at);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

PyDoc_STRVAR(counter_of_doc, "counter_of(data)\n--\n\n"
			     "The counter in the TSS header that the UDP payload `data` begins with; -1 if that header differs\n"
			     "from this cipher's elsewhere, or none is there.");

static PyObject *cipher_counter_of(PyObject *self, PyObject *argument)
{
	const cipher *of = (cipher *)self;
	const unsigned char *at;
	int constant = of->header_bytes - COUNTER_BYTES;
	long long counter = -1;
	Py_buffer data;

	if (PyObject_GetBuffer(argument, &data, PyBUF_SIMPLE))
		return NULL;
	at = data.buf;
	if (data.len >= of->header_bytes && !memcmp(at, of->header, (size_t)constant)) {
		counter = 0;
		for (int byte = constant; byte < of->header_bytes; byte++)
			counter = counter << 8 | at[byte];
	}
	PyBuffer_Release(&data);
	return PyLong_FromLongLong(counter);
}

/* 1: the packet is genuine. */
static int decrypt(cipher *of, unsigned port, const unsigned char *data, int length, unsigned char *out)
{
	int size = length - of->header_bytes - ICV_BYTES, written = 0, last = 0;

	if (begin(of, &of->opening, 0, port, length, data))
		return -1;
	if (crypto.control(of->opening, SET_TAG, ICV_BYTES, (void *)(data + length - ICV_BYTES)) != 1 ||
	    (size && crypto.update(of->opening, out, &written, data + of->header_bytes, size) != 1))
		return fails();
	if (crypto.end(of->opening, out + written, &last) == 1)
		return 1;
	crypto.clear_errors();
	return 0;
}

PyDoc_STRVAR(open_doc, "open(source_port, data)\n--\n\n"
		       "What was sealed into the UDP payload `data`, which is at least as long as TSS header and ICV; None if its\n"
		       "ICV is wrong.");

static PyObject *cipher_open(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	cipher *of = (cipher *)self;
	Py_buffer data;
	PyObject *plain = NULL;
	long port;
	int is_genuine;

	if (count != 2) {
		PyErr_SetString(PyExc_TypeError, "open takes a port and data");
		return NULL;
	}
	port = PyLong_AsLong(arguments[0]);
	if ((port == -1 && PyErr_Occurred()) || PyObject_GetBuffer(arguments[1], &data, PyBUF_SIMPLE))
		return NULL;
	if (port < 0 || port > 0xFFFF || data.len < of->header_bytes + ICV_BYTES || data.len > LONGEST_PAYLOAD)
		PyErr_SetString(PyExc_ValueError, "no UDP header holds that, or it is no sealed packet");
	else
		plain = PyBytes_FromStringAndSize(NULL, data.len - of->header_bytes - ICV_BYTES);
	if (plain) {
		is_genuine = decrypt(of, (unsigned)port, data.buf, (int)data.len, (unsigned char *)PyBytes_AS_STRING(plain));
		if (is_genuine < 0)
			Py_CLEAR(plain);
		else if (!is_genuine)
			Py_SETREF(plain, Py_NewRef(Py_None)); /* what is not genuine is seen by nobody */
	}
	PyBuffer_Release(&data);
	return plain;
}

static PyMethodDef cipher_methods[] = {
	{"seal", (PyCFunction)(void (*)(void))cipher_seal, METH_FASTCALL, seal_doc},
	{"counter_of", cipher_counter_of, METH_O, counter_of_doc},
	{"open", (PyCFunction)(void (*)(void))cipher_open, METH_FASTCALL, open_doc},
	{NULL, NULL, 0, NULL},
};

static PyTypeObject cipher_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "testbed.protocols.uet.security.aes_gcm.Cipher",
	.tp_basicsize = sizeof(cipher),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = PyDoc_STR("Cipher(key, iv, addresses, udp_port, header)\n--\n\n"
			    "Seals and opens the packets between two addresses under one key.\n\n"
			    "`iv` and `header` (that of TSS) are those of counter 0."),
	.tp_new = cipher_new,
	.tp_dealloc = cipher_dealloc,
	.tp_methods = cipher_methods,
};

static PyMethodDef methods[] = {
	{"load", aes_gcm_load, METH_NOARGS, load_doc},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "testbed.protocols.uet.security.aes_gcm", "AES-GCM-256 of TSS, by libcrypto.", -1, methods,
	NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_aes_gcm(void)
{
	PyObject *module;

	if (PyType_Ready(&cipher_type) || (!nothing && !(nothing = PyBytes_FromStringAndSize(NULL, 0))))
		return NULL;
	module = PyModule_Create(&definition);
	if (module && PyModule_AddObjectRef(module, "Cipher", (PyObject *)&cipher_type)) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
