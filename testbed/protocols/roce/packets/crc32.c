/* What a RoCEv2 packet needs of the CRC-32: to be sealed, and to be found intact.
 *
 * It is built with the compiled modules; without it, `icrc` does the same with zlib. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../crc32.h"

#define BTH_BYTES 12
#define VARIANT_AT 4 /* of the BTH: the byte with FECN and BECN, which counts as ones */
#define ICRC_BYTES 4
#define LONGEST_HEADER 64

/* A header as the ICRC covers it. */
static uint32_t update_header(uint32_t value, const unsigned char *header, size_t length)
{
	unsigned char covered[LONGEST_HEADER];

	memcpy(covered, header, length);
	covered[VARIANT_AT] = 0xFF;
	return crc32_by_tables(value, covered, length);
}

static int to_value(PyObject *number, uint32_t *value)
{
	unsigned long found = PyLong_AsUnsignedLong(number);

	if (found == (unsigned long)-1 && PyErr_Occurred())
		return -1;
	*value = (uint32_t)found;
	return 0;
}

PyDoc_STRVAR(crc32_doc, "crc32(data, value)\n--\n\nThe CRC-32 of what came before, whose is `value` (0: nothing), and `data`.");

static PyObject *crc32_crc32(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
	Py_buffer data;
	uint32_t value;

	if (count != 2) {
		PyErr_SetString(PyExc_TypeError, "crc32 takes data and a value");
		return NULL;
	}
	if (to_value(arguments[1], &value) || PyObject_GetBuffer(arguments[0], &data, PyBUF_SIMPLE))
		return NULL;
	value = ~crc32_update(~value, data.buf, (size_t)data.len);
	PyBuffer_Release(&data);
	return PyLong_FromUnsignedLong(value);
}

PyDoc_STRVAR(seal_doc, "seal(value, header, payload, padding)\n--\n\n"
		       "The payload with so many bytes of padding and the ICRC behind it, as bytes.\n\n"
		       "`value`: the CRC-32 of what the ICRC covers before the header, which begins with the BTH.");

static PyObject *crc32_seal(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
	Py_buffer header, payload;
	PyObject *sealed = NULL;
	uint32_t value;
	long padding;

	if (count != 4) {
		PyErr_SetString(PyExc_TypeError, "seal takes a value, a header, a payload and its padding");
		return NULL;
	}
	padding = PyLong_AsLong(arguments[3]);
	if ((padding == -1 && PyErr_Occurred()) || to_value(arguments[0], &value))
		return NULL;
	if (PyObject_GetBuffer(arguments[1], &header, PyBUF_SIMPLE))
		return NULL;
	if (PyObject_GetBuffer(arguments[2], &payload, PyBUF_SIMPLE)) {
		PyBuffer_Release(&header);
		return NULL;
	}
	if (header.len < BTH_BYTES || header.len > LONGEST_HEADER || padding < 0 || padding > 3)
		PyErr_SetString(PyExc_ValueError, "no header of a packet, or more padding than there is");
	else
		sealed = PyBytes_FromStringAndSize(NULL, payload.len + padding + ICRC_BYTES);
	if (sealed) {
		unsigned char *at = (unsigned char *)PyBytes_AS_STRING(sealed);

		value = update_header(~value, header.buf, (size_t)header.len);
		value = crc32_update_copying(value, payload.buf, (size_t)payload.len, at);
		at += payload.len;
		memset(at, 0, (size_t)padding);
		value = ~crc32_by_tables(value, at, (size_t)padding);
		at += padding;
		for (int byte = 0; byte < ICRC_BYTES; byte++)
			at[byte] = value >> 8 * byte & 0xFF;
	}
	PyBuffer_Release(&header);
	PyBuffer_Release(&payload);
	return sealed;
}

PyDoc_STRVAR(intact_doc, "intact(value, data)\n--\n\n"
			 "Whether the ICRC at the end of `data`, BTH to ICRC, is right. `value` is that of `seal`.");

static PyObject *crc32_intact(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
	Py_buffer data;
	uint32_t value, found = 0;
	int right = 0;

	if (count != 2) {
		PyErr_SetString(PyExc_TypeError, "intact takes a value and data");
		return NULL;
	}
	if (to_value(arguments[0], &value) || PyObject_GetBuffer(arguments[1], &data, PyBUF_SIMPLE))
		return NULL;
	if (data.len >= BTH_BYTES + ICRC_BYTES) {
		const unsigned char *at = data.buf, *end = at + data.len - ICRC_BYTES;

		value = update_header(~value, at, BTH_BYTES);
		value = ~crc32_update(value, at + BTH_BYTES, (size_t)(end - at) - BTH_BYTES);
		for (int byte = 0; byte < ICRC_BYTES; byte++)
			found |= (uint32_t)end[byte] << 8 * byte;
		right = found == value;
	}
	PyBuffer_Release(&data);
	return PyBool_FromLong(right);
}

static PyMethodDef methods[] = {
	{"crc32", (PyCFunction)(void (*)(void))crc32_crc32, METH_FASTCALL, crc32_doc},
	{"seal", (PyCFunction)(void (*)(void))crc32_seal, METH_FASTCALL, seal_doc},
	{"intact", (PyCFunction)(void (*)(void))crc32_intact, METH_FASTCALL, intact_doc},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "testbed.protocols.roce.packets.crc32", "The CRC-32 of RoCEv2's ICRC.", -1, methods,
	NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_crc32(void)
{
	return PyModule_Create(&definition);
}
