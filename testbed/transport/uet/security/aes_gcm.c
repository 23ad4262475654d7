/* AES-GCM-256 of the packets between two addresses: one call seals or opens a packet of TSS.
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
#define TSC_BYTES 8 /* at the end of both the IV and the TSS header */
#define ICV_BYTES 16
#define UDP_BYTES 8
#define MOST_ADDRESSES 32
#define MOST_HEADER 16
#define LONGEST_PAYLOAD (0xFFFF - UDP_BYTES)
#define GET_TAG 0x10 /* EVP_CTRL_AEAD_GET_TAG, EVP_CTRL_AEAD_SET_TAG */
#define SET_TAG 0x11

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

typedef struct {
	PyObject_HEAD
	context *sealing, *opening; /* each made when it is needed first: most ciphers are used in one direction */
	unsigned char key[KEY_BYTES];
	unsigned char iv[IV_BYTES]; /* for TSC 0 */
	unsigned char covered[MOST_ADDRESSES + UDP_BYTES + MOST_HEADER];
	int addresses_bytes, header_bytes;
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
	    header_bytes < TSC_BYTES || header_bytes > MOST_HEADER) {
		PyErr_SetString(PyExc_ValueError, "no key, IV, addresses or TSS header");
		return NULL;
	}
	made = (cipher *)type->tp_alloc(type, 0);
	if (!made)
		return NULL;
	memcpy(made->key, key, KEY_BYTES);
	memcpy(made->iv, iv, IV_BYTES);
	memcpy(made->covered, addresses, (size_t)addresses_bytes);
	put_16(made->covered + addresses_bytes + 2, port);
	memcpy(made->covered + addresses_bytes + UDP_BYTES, header, (size_t)header_bytes);
	made->addresses_bytes = (int)addresses_bytes;
	made->header_bytes = (int)header_bytes;
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

/* Begin with the packet whose TSS header stands in `covered`. */
static int begin(cipher *of, context **with, int seals, unsigned port, int length)
{
	unsigned char *udp = of->covered + of->addresses_bytes, *header = udp + UDP_BYTES;
	const unsigned char *tsc = header + of->header_bytes - TSC_BYTES;
	unsigned char iv[IV_BYTES];
	int written;

	if (!*with) {
		*with = crypto.make();
		if (!*with || crypto.begin(*with, crypto.aes_256_gcm(), NULL, of->key, NULL, seals) != 1)
			return fails();
	}
	put_16(udp, port);
	put_16(udp + 4, (unsigned)(UDP_BYTES + length));
	memcpy(iv, of->iv, IV_BYTES);
	for (int at = 0; at < TSC_BYTES; at++)
		iv[IV_BYTES - TSC_BYTES + at] ^= tsc[at];
	if (crypto.begin(*with, NULL, NULL, NULL, iv, seals) != 1 ||
	    crypto.update(*with, NULL, &written, of->covered, of->addresses_bytes + UDP_BYTES + of->header_bytes) != 1)
		return fails();
	return 0;
}

static int to_port(PyObject *number, unsigned *port)
{
	long found = PyLong_AsLong(number);

	if (found == -1 && PyErr_Occurred())
		return -1;
	if (found < 0 || found > 0xFFFF) {
		PyErr_SetString(PyExc_ValueError, "no UDP port");
		return -1;
	}
	*port = (unsigned)found;
	return 0;
}

static int encrypt(cipher *of, unsigned port, const Py_buffer *front, const Py_buffer *rest, unsigned char *out,
		   int length)
{
	int written = 0, more = 0, last = 0;

	memcpy(out, of->covered + of->addresses_bytes + UDP_BYTES, (size_t)of->header_bytes);
	out += of->header_bytes;
	if (begin(of, &of->sealing, 1, port, length))
		return -1;
	if ((front->len && crypto.update(of->sealing, out, &written, front->buf, (int)front->len) != 1) ||
	    (rest->len && crypto.update(of->sealing, out + written, &more, rest->buf, (int)rest->len) != 1) ||
	    crypto.end(of->sealing, out + written + more, &last) != 1 ||
	    crypto.control(of->sealing, GET_TAG, ICV_BYTES, out + written + more + last) != 1)
		return fails();
	return 0;
}

PyDoc_STRVAR(seal_doc, "seal(source_port, tsc, header, payload)\n--\n\n"
		       "TSS header, header and payload encrypted, and ICV: the UDP payload, as bytes.");

static PyObject *cipher_seal(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	cipher *of = (cipher *)self;
	Py_buffer front, rest;
	PyObject *sealed = NULL;
	unsigned long long tsc;
	unsigned char *at = of->covered + of->addresses_bytes + UDP_BYTES + of->header_bytes;
	unsigned port;
	Py_ssize_t length;

	if (count != 4) {
		PyErr_SetString(PyExc_TypeError, "seal takes a port, a TSC, a header and a payload");
		return NULL;
	}
	tsc = PyLong_AsUnsignedLongLong(arguments[1]);
	if ((tsc == (unsigned long long)-1 && PyErr_Occurred()) || to_port(arguments[0], &port) ||
	    PyObject_GetBuffer(arguments[2], &front, PyBUF_SIMPLE))
		return NULL;
	if (PyObject_GetBuffer(arguments[3], &rest, PyBUF_SIMPLE)) {
		PyBuffer_Release(&front);
		return NULL;
	}
	length = of->header_bytes + front.len + rest.len + ICV_BYTES;
	if (length > LONGEST_PAYLOAD)
		PyErr_SetString(PyExc_ValueError, "no UDP datagram is so long");
	else
		sealed = PyBytes_FromStringAndSize(NULL, length);
	if (sealed) {
		for (int byte = 0; byte < TSC_BYTES; byte++, tsc >>= 8)
			*--at = tsc & 0xFF;
		if (encrypt(of, port, &front, &rest, (unsigned char *)PyBytes_AS_STRING(sealed), (int)length))
			Py_CLEAR(sealed);
	}
	PyBuffer_Release(&front);
	PyBuffer_Release(&rest);
	return sealed;
}

/* 1: the packet is genuine. */
static int decrypt(cipher *of, unsigned port, const unsigned char *data, int length, unsigned char *out)
{
	int size = length - of->header_bytes - ICV_BYTES, written = 0, last = 0;

	memcpy(of->covered + of->addresses_bytes + UDP_BYTES, data, (size_t)of->header_bytes);
	if (begin(of, &of->opening, 0, port, length))
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
	unsigned port;
	int is_genuine;

	if (count != 2) {
		PyErr_SetString(PyExc_TypeError, "open takes a port and data");
		return NULL;
	}
	if (to_port(arguments[0], &port) || PyObject_GetBuffer(arguments[1], &data, PyBUF_SIMPLE))
		return NULL;
	if (data.len < of->header_bytes + ICV_BYTES || data.len > LONGEST_PAYLOAD)
		PyErr_SetString(PyExc_ValueError, "no sealed packet is so long or so short");
	else
		plain = PyBytes_FromStringAndSize(NULL, data.len - of->header_bytes - ICV_BYTES);
	if (plain) {
		is_genuine = decrypt(of, port, data.buf, (int)data.len, (unsigned char *)PyBytes_AS_STRING(plain));
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
	{"open", (PyCFunction)(void (*)(void))cipher_open, METH_FASTCALL, open_doc},
	{NULL, NULL, 0, NULL},
};

static PyTypeObject cipher_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "testbed.transport.uet.security.aes_gcm.Cipher",
	.tp_basicsize = sizeof(cipher),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = PyDoc_STR("Cipher(key, iv, addresses, udp_port, header)\n--\n\n"
			    "Seals and opens the packets between two addresses under one key.\n\n"
			    "`iv` and `header` (that of TSS) are those of TSC 0."),
	.tp_new = cipher_new,
	.tp_dealloc = cipher_dealloc,
	.tp_methods = cipher_methods,
};

static PyMethodDef methods[] = {
	{"load", aes_gcm_load, METH_NOARGS, load_doc},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "testbed.transport.uet.security.aes_gcm", "AES-GCM-256 of TSS, by libcrypto.", -1, methods,
	NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_aes_gcm(void)
{
	PyObject *module;

	if (PyType_Ready(&cipher_type))
		return NULL;
	module = PyModule_Create(&definition);
	if (module && PyModule_AddObjectRef(module, "Cipher", (PyObject *)&cipher_type)) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
