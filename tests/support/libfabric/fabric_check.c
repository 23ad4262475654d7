/* Two ranks talk to each other over libfabric, and check all that an RDM endpoint can do: `fabric_check [ordered]`.
 * `fabric_check rate COUNT` sends so many messages of 8 bytes instead, 64 at a time, one way.
 *
 * LAB_RANK and LAB_PEERS say who they are; each has the first endpoint at its address. It writes `ok WHAT` for each check,
 * and ends with 0; what is wrong is said on standard error, and ends it with 1. Rank 0 begins what is checked.
 */
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define LARGE (1 << 20)
#define KEY 0x1234
#define PATIENCE_S 60
#define SAID 77	       /* the tag of `meet` */
#define FIRST_PORT "1" /* the first process at an address, and its first endpoint */

static int me;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *sent, *received;
static struct fid_cntr *written;
static struct fid_av *av;
static struct fid_mr *mr;
static fi_addr_t peer;
static char out[LARGE], in[LARGE], shared[LARGE];

#define MUST(call)                                                                                                     \
	do {                                                                                                           \
		long got_ = (call);                                                                                    \
		if (got_ < 0)                                                                                          \
			fail(__LINE__, #call, fi_strerror(-got_));                                                     \
	} while (0)
#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			fail(__LINE__, #condition, "is not so");                                                       \
	} while (0)

static void fail(int line, const char *what, const char *why)
{
	fprintf(stderr, "line %d, end %d: %s: %s\n", line, me, what, why);
	exit(1);
}

static void fill(char *data, size_t length, int seed)
{
	for (size_t i = 0; i < length; i++)
		data[i] = (char)(i * 31 + seed + i / 251);
}

static bool is_filled(const char *data, size_t length, int seed)
{
	for (size_t i = 0; i < length; i++)
		if (data[i] != (char)(i * 31 + seed + i / 251))
			return false;
	return true;
}

/* Completions of receives that came while others were waited for. */
static struct early {
	struct fi_cq_tagged_entry entry;
	fi_addr_t source;
	int error;
} early[1024];
static size_t early_count;

/* The next completion that the queue itself has. What fails is returned as its error. */
static int next_in(struct fid_cq *cq, struct fi_cq_tagged_entry *entry, fi_addr_t *source)
{
	time_t end = time(NULL) + PATIENCE_S;

	while (time(NULL) < end) {
		long got = fi_cq_readfrom(cq, entry, 1, source);

		if (got == 1)
			return 0;
		if (got == -FI_EAVAIL) {
			struct fi_cq_err_entry error = {0};

			CHECK(fi_cq_readerr(cq, &error, 0) == 1);
			entry->op_context = error.op_context;
			entry->flags = error.flags;
			return error.err;
		}
		if (got != -FI_EAGAIN)
			fail(__LINE__, "fi_cq_readfrom", fi_strerror(-got));
	}
	fail(__LINE__, "next", "nothing completes");
	return 0;
}

static int next(struct fid_cq *cq, struct fi_cq_tagged_entry *entry, fi_addr_t *source)
{
	struct early first;

	if (cq != received || !early_count)
		return next_in(cq, entry, source);
	first = early[0];
	memmove(early, early + 1, --early_count * sizeof *early);
	*entry = first.entry;
	if (source)
		*source = first.source;
	return first.error;
}

static struct fi_cq_tagged_entry expect(struct fid_cq *cq, void *context)
{
	struct fi_cq_tagged_entry entry;
	fi_addr_t source;
	int error = next(cq, &entry, &source);

	if (error)
		fail(__LINE__, "a completion", fi_strerror(error));
	CHECK(entry.op_context == context);
	if (cq == received && entry.flags & FI_RECV)
		CHECK(source == peer);
	return entry;
}

/* Both ends come here before either goes on. */
static void meet(void)
{
	static char there, here;

	MUST(fi_trecv(ep, &here, 1, NULL, FI_ADDR_UNSPEC, SAID, 0, &here));
	MUST(fi_tsend(ep, &there, 1, NULL, peer, SAID, &there));
	expect(sent, &there);
	for (;;) {
		struct early *one = &early[early_count];

		CHECK(early_count < sizeof early / sizeof *early);
		one->error = next_in(received, &one->entry, &one->source);
		if (one->entry.op_context == &here)
			return;
		early_count++;
	}
}

static void done(const char *what)
{
	meet();
	printf("ok %s\n", what);
	fflush(stdout);
}

/* Send until the other end is there to hear it. */
static void greet(void)
{
	static char there, here;
	struct timespec pause = {0, 50000000};
	struct fi_cq_tagged_entry entry;
	time_t end = time(NULL) + PATIENCE_S;

	MUST(fi_trecv(ep, &here, 1, NULL, FI_ADDR_UNSPEC, SAID + 1, 0, &here));
	for (;;) {
		MUST(fi_tsend(ep, &there, 1, NULL, peer, SAID + 1, &there));
		if (!next(sent, &entry, NULL))
			break;
		CHECK(time(NULL) < end);
		nanosleep(&pause, NULL);
	}
	expect(received, &here);
}

static const char *address_of(int rank)
{
	static char peers[256];
	char *comma;

	CHECK(getenv("LAB_PEERS"));
	snprintf(peers, sizeof peers, "%s", getenv("LAB_PEERS"));
	comma = strchr(peers, ',');
	CHECK(comma);
	*comma = 0;
	return rank ? comma + 1 : peers;
}

/* --- setting up --------------------------------------------------------------------------------------------------- */

static void set_up(bool ordered)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cntr_attr cntr_attr = {.events = FI_CNTR_EVENTS_COMP};
	char name[64], other[64];
	size_t length = sizeof name, other_length = sizeof other;
	fi_addr_t own;

	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("uet");
	if (ordered)
		hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	MUST(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(info->tx_attr->msg_order == (ordered ? FI_ORDER_SAS : 0));
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
	MUST(fi_domain(fabric, info, &domain, NULL));
	MUST(fi_av_open(domain, &av_attr, &av, NULL));
	MUST(fi_cq_open(domain, &cq_attr, &sent, NULL));
	MUST(fi_cq_open(domain, &cq_attr, &received, NULL));
	MUST(fi_cntr_open(domain, &cntr_attr, &written, NULL));
	MUST(fi_endpoint(domain, info, &ep, NULL));
	MUST(fi_ep_bind(ep, &av->fid, 0));
	MUST(fi_ep_bind(ep, &sent->fid, FI_TRANSMIT));
	MUST(fi_ep_bind(ep, &received->fid, FI_RECV));
	MUST(fi_ep_bind(ep, &written->fid, FI_WRITE));
	MUST(fi_enable(ep));
	MUST(fi_mr_reg(domain, shared, sizeof shared, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
	MUST(fi_getname(&ep->fid, name, &length));
	MUST(fi_av_insertsvc(av, address_of(me), FIRST_PORT, &own, 0, NULL));
	MUST(fi_av_lookup(av, own, other, &other_length));
	CHECK(length == other_length && !memcmp(name, other, length));
	MUST(fi_av_insertsvc(av, address_of(!me), FIRST_PORT, &peer, 0, NULL));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

static void check_messages(void)
{
	static const size_t sizes[] = {0, 1, 64, 4096, 4097, 65536, LARGE};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (me) {
			struct fi_cq_tagged_entry entry;

			memset(in, 0, sizeof in);
			MUST(fi_recv(ep, in, sizeof in, NULL, peer, &in));
			meet();
			entry = expect(received, &in);
			CHECK(entry.len == sizes[i] && is_filled(in, sizes[i], i));
			CHECK(entry.flags & FI_MSG && entry.flags & FI_REMOTE_CQ_DATA && entry.data == 1000 + i);
		} else {
			meet();
			fill(out, sizes[i], i);
			MUST(fi_senddata(ep, out, sizes[i], NULL, 1000 + i, peer, &out));
			expect(sent, &out);
		}
	}
	done("messages");
}

static void check_vectors(void)
{
	struct iovec parts[3] = {{out, 5000}, {out + 5000, 1}, {out + 5001, 70000}};
	struct iovec places[2] = {{in, 30000}, {in + 30000, 60000}};

	if (me) {
		memset(in, 0, sizeof in);
		MUST(fi_recvv(ep, places, NULL, 2, FI_ADDR_UNSPEC, &in));
		meet();
		CHECK(expect(received, &in).len == 75001 && is_filled(in, 75001, 9));
	} else {
		fill(out, 75001, 9);
		meet();
		MUST(fi_sendv(ep, parts, NULL, 3, peer, &out));
		expect(sent, &out);
	}
	done("vectors");
}

static void check_tags(void)
{
	char first[8] = "first", second[8] = "second", third[8] = "third";

	if (me) {
		MUST(fi_trecv(ep, in, 8, NULL, peer, 0x100, 0xff, in));
		MUST(fi_trecv(ep, in + 8, 8, NULL, FI_ADDR_UNSPEC, 2, 0, in + 8));
		MUST(fi_trecv(ep, in + 16, 8, NULL, FI_ADDR_UNSPEC, 3, 0, in + 16));
		meet();
		for (int i = 0; i < 3; i++) {
			struct fi_cq_tagged_entry entry;

			CHECK(!next(received, &entry, NULL));
			if (entry.op_context == in)
				CHECK(entry.tag == 0x1ab || entry.tag == 0x100);
			else
				CHECK(entry.tag == (entry.op_context == in + 8 ? 2 : 3));
			CHECK(entry.flags & FI_TAGGED && entry.len == 8);
		}
		CHECK(!strcmp(in, "first") && !strcmp(in + 8, "second") && !strcmp(in + 16, "third"));
	} else {
		meet();
		MUST(fi_tinject(ep, third, 8, peer, 3));
		MUST(fi_tsend(ep, second, 8, NULL, peer, 2, second));
		MUST(fi_tsend(ep, first, 8, NULL, peer, 0x1ab, first));
		for (int i = 0; i < 2; i++) {
			struct fi_cq_tagged_entry entry;

			CHECK(!next(sent, &entry, NULL));
			CHECK(entry.op_context == first || entry.op_context == second);
		}
	}
	done("tags");
}

static void check_peeks(void)
{
	struct fi_context mark;
	struct fi_cq_tagged_entry entry;
	struct iovec iov = {in, 8};
	struct fi_msg_tagged message = {.addr = FI_ADDR_UNSPEC, .tag = 40, .context = &mark};
	int error;

	if (me) {
		MUST(fi_trecvmsg(ep, &message, FI_PEEK));
		CHECK(next(received, &entry, NULL) == FI_ENOMSG && entry.op_context == &mark);
		meet();
		meet(); /* both messages are here */
		do {
			MUST(fi_trecvmsg(ep, &message, FI_PEEK | FI_CLAIM));
			error = next(received, &entry, NULL);
		} while (error == FI_ENOMSG);
		CHECK(!error && entry.len == 8 && entry.tag == 40 && entry.data == 5);
		message.msg_iov = &iov;
		message.iov_count = 1;
		MUST(fi_trecvmsg(ep, &message, FI_CLAIM));
		CHECK(expect(received, &mark).len == 8 && !strcmp(in, "claimed"));
		message.tag = 41;
		do {
			MUST(fi_trecvmsg(ep, &message, FI_PEEK | FI_DISCARD));
			error = next(received, &entry, NULL);
		} while (error == FI_ENOMSG);
		CHECK(!error && entry.len == 8);
		MUST(fi_trecvmsg(ep, &message, FI_PEEK));
		CHECK(next(received, &entry, NULL) == FI_ENOMSG);
	} else {
		meet();
		MUST(fi_tinjectdata(ep, "claimed", 8, 5, peer, 40));
		MUST(fi_tinject(ep, "dropped", 8, peer, 41));
		meet();
	}
	done("peeks");
}

static void check_cancel(void)
{
	struct fi_cq_tagged_entry entry;

	for (int i = 0; i < 100; i++) { /* what has ended is told once it cannot be cancelled any more */
		MUST(fi_trecv(ep, in, 8, NULL, FI_ADDR_UNSPEC, 999, 0, in));
		MUST(fi_cancel(&ep->fid, in));
		CHECK(next(received, &entry, NULL) == FI_ECANCELED && entry.op_context == in);
		CHECK(fi_cancel(&ep->fid, in) == -FI_ENOENT);
	}
	done("cancel");
}

static void check_truncation(void)
{
	struct fi_cq_tagged_entry entry;

	if (me) {
		MUST(fi_trecv(ep, in, 4, NULL, FI_ADDR_UNSPEC, 50, 0, in));
		meet();
		CHECK(next(received, &entry, NULL) == FI_ETRUNC && entry.op_context == in);
	} else {
		meet();
		MUST(fi_tsend(ep, out, 64, NULL, peer, 50, out));
		expect(sent, out);
	}
	done("truncation");
}

static void check_several(void)
{
	size_t least = 100;
	struct iovec iov = {in, 1000};
	struct fi_msg message = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &iov};

	MUST(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
	if (me) {
		size_t at = 0;

		MUST(fi_recvmsg(ep, &message, FI_MULTI_RECV));
		meet();
		for (int i = 0; i < 3; i++) {
			struct fi_cq_tagged_entry entry = expect(received, &iov);

			CHECK(entry.len == 310 && entry.buf == in + at);
			at += entry.len;
			CHECK(!!(entry.flags & FI_MULTI_RECV) == (i == 2));
		}
		for (int i = 0; i < 3; i++) { /* whatever order they came in */
			int seed = in[310 * i];

			CHECK(seed >= 1 && seed <= 3 && is_filled(in + 310 * i, 310, seed));
		}
	} else {
		meet();
		for (int i = 1; i <= 3; i++) {
			fill(out, 310, i);
			MUST(fi_inject(ep, out, 310, peer));
		}
	}
	done("several messages in a buffer");
}

static void check_remote_memory(void)
{
	uint64_t before = fi_cntr_read(written);
	struct fi_cq_tagged_entry entry;

	memset(shared, 0, sizeof shared);
	meet();
	if (me) {
		entry = expect(received, NULL);
		CHECK(entry.flags & FI_REMOTE_WRITE && entry.data == 321);
		meet();
		CHECK(is_filled(shared, 300000, 5) && is_filled(shared + 400000, 64, 6));
		CHECK(is_filled(shared + 500000, 10000, 7));
		fill(shared, LARGE, 8);
		meet();
	} else {
		fill(out, 300000, 5);
		MUST(fi_write(ep, out, 300000, NULL, peer, 0, KEY, out));
		expect(sent, out);
		fill(out, 64, 6);
		MUST(fi_inject_write(ep, out, 64, peer, 400000, KEY));
		fill(out, 10000, 7);
		MUST(fi_writedata(ep, out, 10000, NULL, 321, peer, 500000, KEY, out));
		expect(sent, out);
		MUST(fi_cntr_wait(written, before + 3, 60000));
		CHECK(fi_cntr_read(written) == before + 3);
		meet();
		meet();
		memset(in, 0, sizeof in);
		MUST(fi_read(ep, in, LARGE, NULL, peer, 0, KEY, in));
		expect(sent, in);
		CHECK(is_filled(in, LARGE, 8));
		MUST(fi_read(ep, out, 8, NULL, peer, 16, KEY, out));
		expect(sent, out);
		CHECK(!memcmp(out, in + 16, 8));
		MUST(fi_write(ep, out, 8, NULL, peer, 0, KEY + 1, out));
		CHECK(next(sent, &entry, NULL) == FI_ENOKEY);
		MUST(fi_write(ep, out, 8, NULL, peer, LARGE - 4, KEY, out));
		CHECK(next(sent, &entry, NULL) == FI_EINVAL);
	}
	done("remote memory");
}

static void check_atomics(void)
{
	int64_t *numbers = (int64_t *)shared, many[8], old[8], compared, swapped;
	double *reals = (double *)(shared + 4096), one = 1.5;
	size_t count = 0;

	memset(shared, 0, 8192);
	numbers[0] = 100;
	reals[0] = 0.25;
	meet();
	if (!me) {
		CHECK(!fi_atomicvalid(ep, FI_INT64, FI_SUM, &count) && count >= 64);
		CHECK(!fi_compare_atomicvalid(ep, FI_INT64, FI_CSWAP, &count) && count >= 1);
		CHECK(fi_atomicvalid(ep, FI_DOUBLE, FI_BOR, &count) < 0);
		for (int i = 0; i < 8; i++)
			many[i] = i + 1;
		MUST(fi_atomic(ep, many, 8, NULL, peer, 0, KEY, FI_INT64, FI_SUM, many));
		expect(sent, many);
		MUST(fi_fetch_atomic(ep, many, 8, NULL, old, NULL, peer, 0, KEY, FI_INT64, FI_SUM, old));
		expect(sent, old);
		for (int i = 0; i < 8; i++)
			CHECK(old[i] == (i ? 0 : 100) + i + 1);
		compared = 102;
		swapped = -7;
		MUST(fi_compare_atomic(ep, &swapped, 1, NULL, &compared, NULL, old, NULL, peer, 0, KEY, FI_INT64, FI_CSWAP, old));
		expect(sent, old);
		CHECK(old[0] == 102);
		MUST(fi_inject_atomic(ep, &one, 1, peer, 4096, KEY, FI_DOUBLE, FI_SUM));
		MUST(fi_fetch_atomic(ep, NULL, 1, NULL, old, NULL, peer, 0, KEY, FI_INT64, FI_ATOMIC_READ, old));
		expect(sent, old);
		CHECK(old[0] == -7);
		meet();
	} else {
		meet();
		CHECK(numbers[0] == -7 && numbers[7] == 16 && reals[0] == 1.75);
	}
	done("atomics");
}

static void check_waits(void)
{
	struct fid *fids[1] = {&received->fid};
	struct fi_cq_tagged_entry entry;
	struct pollfd poll_fd = {.events = POLLIN};

	CHECK(fi_cq_sread(received, &entry, 1, NULL, 20) == -FI_EAGAIN);
	MUST(fi_control(&received->fid, FI_GETWAIT, &poll_fd.fd));
	if (me) {
		MUST(fi_trecv(ep, in, 8, NULL, FI_ADDR_UNSPEC, 60, 0, in));
		meet();
		while (fi_cq_read(received, &entry, 1) == -FI_EAGAIN)
			if (!fi_trywait(fabric, fids, 1))
				CHECK(poll(&poll_fd, 1, PATIENCE_S * 1000) == 1);
		CHECK(entry.op_context == in);
		MUST(fi_trecv(ep, in, 8, NULL, FI_ADDR_UNSPEC, 61, 0, in));
		meet();
		CHECK(fi_cq_sread(received, &entry, 1, NULL, PATIENCE_S * 1000) == 1 && entry.op_context == in);
	} else {
		struct timespec while_it_waits = {0, 50000000};

		meet();
		nanosleep(&while_it_waits, NULL);
		MUST(fi_tinject(ep, out, 8, peer, 60));
		meet();
		nanosleep(&while_it_waits, NULL);
		MUST(fi_tinject(ep, out, 8, peer, 61));
	}
	done("waits");
}

static void check_many(void)
{
	enum { COUNT = 300, SIZE = 512 };

	if (me) {
		for (int i = 0; i < COUNT; i++)
			MUST(fi_trecv(ep, in + i * SIZE, SIZE, NULL, peer, 5000 + i, 0, in + i * SIZE));
		meet();
		for (int i = 0; i < COUNT; i++) {
			struct fi_cq_tagged_entry entry;

			CHECK(!next(received, &entry, NULL));
			CHECK(is_filled(entry.op_context, SIZE, entry.tag));
		}
	} else {
		meet();
		for (int i = 0; i < COUNT; i++) {
			fill(out + i * SIZE, SIZE, 5000 + i);
			MUST(fi_tsend(ep, out + i * SIZE, SIZE, NULL, peer, 5000 + i, out));
		}
		for (int i = 0; i < COUNT; i++)
			expect(sent, out);
	}
	done("many at a time");
}

/* Messages of 8 bytes from rank 0 to rank 1, WINDOW of them under way. */
static void send_small(int count)
{
	enum { WINDOW = 64, POSTED = 256, BYTES = 8 };
	struct fi_cq_tagged_entry entry;

	if (me) {
		int posted = 0;

		for (; posted < POSTED && posted < count; posted++)
			MUST(fi_recv(ep, in + posted * BYTES, BYTES, NULL, FI_ADDR_UNSPEC, in + posted * BYTES));
		meet();
		for (int i = 0; i < count; i++) {
			CHECK(!next(received, &entry, NULL));
			CHECK(is_filled(entry.op_context, BYTES, 3));
			if (posted < count) {
				MUST(fi_recv(ep, entry.op_context, BYTES, NULL, FI_ADDR_UNSPEC, entry.op_context));
				posted++;
			}
		}
	} else {
		fill(out, BYTES, 3);
		meet();
		for (int i = 0; i < count + WINDOW; i++) {
			if (i >= WINDOW)
				CHECK(!next(sent, &entry, NULL));
			if (i < count)
				MUST(fi_send(ep, out, BYTES, NULL, peer, out));
		}
	}
	done("small messages");
}

/* What another object is made in, or bound to, is not closed before it. */
static void check_order_of_closing(void)
{
	CHECK(fi_close(&fabric->fid) == -FI_EBUSY);
	CHECK(fi_close(&domain->fid) == -FI_EBUSY);
	CHECK(fi_close(&av->fid) == -FI_EBUSY);
	CHECK(fi_close(&sent->fid) == -FI_EBUSY);
	CHECK(fi_close(&received->fid) == -FI_EBUSY);
	CHECK(fi_close(&written->fid) == -FI_EBUSY);
	meet(); /* all of them still work */
	done("order of closing");
}

static void close_all(void)
{
	MUST(fi_close(&mr->fid));
	MUST(fi_close(&ep->fid));
	CHECK(fi_close(&domain->fid) == -FI_EBUSY);
	MUST(fi_close(&written->fid));
	MUST(fi_close(&sent->fid));
	MUST(fi_close(&received->fid));
	MUST(fi_close(&av->fid));
	MUST(fi_close(&domain->fid));
	MUST(fi_close(&fabric->fid));
}

/* Hold the locks of a queue, a counter and the addresses, as a thread of a program does that asks without a pause, now one
 * and now another. */
static volatile enum { QUEUE, COUNTER, ADDRESSES, NOBODY } forks_of;

static void *keep_asking(void *unused)
{
	struct fi_cq_err_entry error = {0};
	char address[64];
	size_t length;

	while (forks_of != NOBODY) {
		length = sizeof address;
		if (forks_of == QUEUE)
			fi_cq_readerr(sent, &error, 0);
		else if (forks_of == COUNTER)
			fi_cntr_add(written, 0);
		else
			fi_av_lookup(av, peer, address, &length);
	}
	return unused;
}

/* A child has what its parent had, and nobody who fills it: it is told so, and waits for nothing. */
static void ask_in_child(void)
{
	struct fid *fids[] = {&sent->fid};
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	char address[64];
	size_t length = sizeof address;
	fi_addr_t other = peer;

	CHECK(fi_send(ep, out, 8, NULL, peer, out) == -FI_ENODEV);
	CHECK(fi_recv(ep, in, 8, NULL, FI_ADDR_UNSPEC, in) == -FI_ENODEV);
	CHECK(fi_cancel(&ep->fid, in) == -FI_ENODEV);
	CHECK(fi_cq_readerr(sent, &error, 0) == -FI_ENODEV);
	CHECK(fi_cq_read(sent, &entry, 1) == -FI_ENODEV);
	CHECK(fi_cq_sread(sent, &entry, 1, NULL, -1) == -FI_ENODEV);
	CHECK(fi_cq_signal(sent) == -FI_ENODEV);
	CHECK(fi_trywait(fabric, fids, 1) == -FI_ENODEV);
	CHECK(fi_cntr_add(written, 1) == -FI_ENODEV);
	CHECK(fi_cntr_wait(written, UINT64_MAX, -1) == -FI_ENODEV);
	CHECK(fi_av_lookup(av, peer, address, &length) == -FI_ENODEV);
	CHECK(fi_av_insert(av, address, 1, &other, 0, NULL) == -FI_ENODEV);
	CHECK(fi_av_remove(av, &other, 1, 0) == -FI_ENODEV);
}

/* Children that close what they have of their parent close nothing of the parent's, and none waits for a lock that a thread
 * of the parent had when it was forked: messages end meanwhile, and a thread of the program asks without a pause. */
static void check_fork(void)
{
	enum { CHILDREN = 24, COUNT = 256, BYTES = 8 };
	struct fi_cq_tagged_entry entry;
	pid_t children[CHILDREN];
	pthread_t asks;
	int status;

	if (me)
		for (int i = 0; i < COUNT; i++)
			MUST(fi_recv(ep, in + i * BYTES, BYTES, NULL, FI_ADDR_UNSPEC, in));
	meet();
	fill(out, BYTES, 4);
	for (int i = 0; !me && i < COUNT; i++)
		MUST(fi_send(ep, out, BYTES, NULL, peer, out));
	forks_of = QUEUE;
	CHECK(!pthread_create(&asks, NULL, keep_asking, NULL));
	for (int i = 0; i < CHILDREN; i++) {
		forks_of = i % NOBODY;
		children[i] = fork();
		if (!children[i]) {
			alarm(PATIENCE_S / 2);
			ask_in_child();
			close_all();
			_exit(0);
		}
		CHECK(children[i] > 0);
	}
	forks_of = NOBODY;
	CHECK(!pthread_join(asks, NULL));
	for (int i = 0; i < COUNT; i++)
		CHECK(!next(me ? received : sent, &entry, NULL));
	for (int i = 0; i < CHILDREN; i++) {
		CHECK(waitpid(children[i], &status, 0) == children[i]);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	}
	meet();
	done("forked children");
}

int main(int argc, char **argv)
{
	CHECK(getenv("LAB_RANK"));
	me = atoi(getenv("LAB_RANK"));
	set_up(argc > 1 && !strcmp(argv[1], "ordered"));
	greet();
	if (argc > 2 && !strcmp(argv[1], "rate")) {
		send_small(atoi(argv[2]));
		return 0;
	}
	check_messages();
	check_vectors();
	check_tags();
	check_peeks();
	check_cancel();
	check_truncation();
	check_several();
	check_remote_memory();
	check_atomics();
	check_waits();
	check_many();
	check_order_of_closing();
	check_fork();
	close_all();
	printf("ok all\n");
	return 0;
}
