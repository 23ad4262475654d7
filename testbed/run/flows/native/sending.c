/* The flows that are sending, and when each of them ends: `testbed.run.flows.sending` in C, with the same names.
 *
 * It is built with the compiled modules; without it the Python serves. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "shares.h"

typedef struct {
	PyObject_HEAD
	struct shares shares;
} sending;

PyDoc_STRVAR(add_doc, "add(step, links, weights, bits, at_s)\n--\n\nBegin to send the bits of a step at a time (s).");

static PyObject *sending_add(sending *self, PyObject *arguments)
{
	struct shares *shares = &self->shares;
	Py_buffer links, weights;
	PyObject *found = NULL;
	double bits, at_s;
	long long step;
	Py_ssize_t count;
	int32_t number;

	if (!PyArg_ParseTuple(arguments, "Ly*y*dd", &step, &links, &weights, &bits, &at_s))
		return NULL;
	count = links.len / (Py_ssize_t)sizeof(int64_t);
	if (!count || count > 1 << 24 || links.itemsize != 8 || weights.itemsize != 8 || links.len != weights.len) {
		PyErr_SetString(PyExc_ValueError, "links and weights are not of one length, of 64 bits each");
		goto done;
	}
	for (Py_ssize_t place = 0; place < count; place++) {
		int64_t link = ((const int64_t *)links.buf)[place];
		double weight = ((const double *)weights.buf)[place];

		if (link < 0 || link >= shares->links_count || !(weight > 0) || isinf(weight)) {
			PyErr_SetString(PyExc_ValueError, "there is no such link, or a weight is not above 0");
			goto done;
		}
	}
	number = new_number(shares);
	if (number == NOBODY || add_flow(shares, number, links.buf, weights.buf, (int32_t)count)) {
		PyErr_NoMemory();
		goto done;
	}
	shares->flows[number].step = step;
	shares->flows[number].left = bits;
	shares->flows[number].since = at_s;
	shares->there++;
	found = Py_NewRef(Py_None);
done:
	PyBuffer_Release(&links);
	PyBuffer_Release(&weights);
	return found;
}

PyDoc_STRVAR(settle_doc, "settle(now_s)\n--\n\nMake all rates fair; return how many flows were looked at.");

static PyObject *sending_settle(sending *self, PyObject *argument)
{
	double now_s = PyFloat_AsDouble(argument);
	long looked_at;

	if (now_s == -1.0 && PyErr_Occurred())
		return NULL;
	looked_at = settle(&self->shares, now_s);
	return looked_at < 0 ? PyErr_NoMemory() : PyLong_FromLong(looked_at);
}

PyDoc_STRVAR(next_doc, "next_s()\n--\n\nReturn when the first of the flows has sent all, infinity for never.");

static PyObject *sending_next(sending *self, PyObject *none)
{
	struct shares *shares = &self->shares;
	double first = INFINITY;

	for (int32_t block = 0; block < blocks(shares); block++)
		first = fmin(first, due_of_block(shares, block));
	return PyFloat_FromDouble(first);
}

PyDoc_STRVAR(take_doc, "take(until_s)\n--\n\nTake out the flows that have sent all by then: step and time of each.");

static PyObject *sending_take(sending *self, PyObject *argument)
{
	struct shares *shares = &self->shares;
	double until_s = PyFloat_AsDouble(argument);
	PyObject *found;

	if (until_s == -1.0 && PyErr_Occurred())
		return NULL;
	found = PyList_New(0);
	if (!found)
		return NULL;
	for (int32_t block = 0; block < blocks(shares); block++) {
		if (due_of_block(shares, block) > until_s)
			continue;
		for (int32_t number = block * BLOCK; number < (block + 1) * BLOCK; number++) {
			PyObject *one;

			if (shares->due[number] > until_s || isinf(shares->due[number]))
				continue;
			one = Py_BuildValue("Ld", shares->flows[number].step, shares->due[number]);
			if (!one || PyList_Append(found, one)) {
				Py_XDECREF(one);
				goto failed;
			}
			Py_DECREF(one);
			if (remove_flow(shares, number)) {
				PyErr_NoMemory();
				goto failed;
			}
		}
	}
	return found;
failed:
	Py_DECREF(found);
	return NULL;
}

PyDoc_STRVAR(rates_doc, "rates()\n--\n\nReturn the rate of each flow as of the last `settle`, by its step.");

static PyObject *sending_rates(sending *self, PyObject *none)
{
	struct shares *shares = &self->shares;
	PyObject *found = PyDict_New();

	for (int32_t number = 0; found && number < shares->flows_count; number++) {
		PyObject *step, *rate;

		if (!shares->flows[number].entries)
			continue;
		step = PyLong_FromLongLong(shares->flows[number].step);
		rate = PyFloat_FromDouble(shares->flows[number].rate);
		if (!step || !rate || PyDict_SetItem(found, step, rate))
			Py_CLEAR(found);
		Py_XDECREF(step);
		Py_XDECREF(rate);
	}
	return found;
}

static Py_ssize_t sending_length(sending *self)
{
	return self->shares.there;
}

static void sending_free(sending *self)
{
	struct shares *shares = &self->shares;

	for (int32_t index = 0; index < shares->links_count; index++)
		free(shares->links[index].on);
	for (int32_t number = 0; number < shares->flows_count; number++)
		free(shares->flows[number].entries);
	free(shares->links);
	free(shares->flows);
	free(shares->due);
	free(shares->block_due);
	free(shares->block_stale);
	free(shares->parts);
	free(shares->heap);
	free(shares->cells);
	free(shares->free.at);
	free(shares->new.at);
	free(shares->changed.at);
	free(shares->work.at);
	free(shares->more.at);
	free(shares->edge.at);
	free(shares->near.at);
	Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *sending_new(PyTypeObject *type, PyObject *arguments, PyObject *words)
{
	Py_buffer capacity;
	sending *self;

	if (!PyArg_ParseTuple(arguments, "y*", &capacity))
		return NULL;
	if (capacity.itemsize != sizeof(double) || capacity.len / sizeof(double) > INT32_MAX) {
		PyBuffer_Release(&capacity);
		PyErr_SetString(PyExc_ValueError, "capacities are numbers of 64 bits each");
		return NULL;
	}
	self = (sending *)type->tp_alloc(type, 0);
	if (self) {
		struct link *links = calloc(capacity.len / sizeof(double) + 1, sizeof(*links));

		if (links) {
			self->shares.links = links;
			self->shares.links_count = capacity.len / sizeof(double);
		} else {
			Py_CLEAR(self);
			PyErr_NoMemory();
		}
	}
	for (int32_t index = 0; self && index < self->shares.links_count; index++) {
		self->shares.links[index].capacity = ((const double *)capacity.buf)[index];
		self->shares.links[index].held = NOBODY;
	}
	PyBuffer_Release(&capacity);
	return (PyObject *)self;
}

static PyMethodDef sending_methods[] = {
	{"add", (PyCFunction)sending_add, METH_VARARGS, add_doc},
	{"settle", (PyCFunction)sending_settle, METH_O, settle_doc},
	{"next_s", (PyCFunction)sending_next, METH_NOARGS, next_doc},
	{"take", (PyCFunction)sending_take, METH_O, take_doc},
	{"rates", (PyCFunction)sending_rates, METH_NOARGS, rates_doc},
	{NULL, NULL, 0, NULL},
};

static PySequenceMethods sending_sequence = {.sq_length = (lenfunc)sending_length};

static PyTypeObject sending_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "testbed.run.flows.native.sending.Sending",
	.tp_doc = "The flows that are sending over links of these capacities, at max-min fair rates.",
	.tp_basicsize = sizeof(sending),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_new = sending_new,
	.tp_dealloc = (destructor)sending_free,
	.tp_methods = sending_methods,
	.tp_as_sequence = &sending_sequence,
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, "testbed.run.flows.native.sending", "Flows at max-min fair rates.", -1, NULL,
	NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_sending(void)
{
	PyObject *module;

	if (PyType_Ready(&sending_type))
		return NULL;
	module = PyModule_Create(&definition);
	if (module && PyModule_AddObjectRef(module, "Sending", (PyObject *)&sending_type)) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
