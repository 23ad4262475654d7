/* A GPU's end of a scale-up domain: what it asks of its peers' memory, and what its peers ask of its own.
 *
 * An operation (a copy, an atomic, a message) is cut into transactions, each with a tag until it is answered. A
 * transaction lies in one region of `coarse` times 256 bytes, and all of a region take the same plane, where order is
 * kept; neighbouring regions take different planes, so that a copy is spread over all: over each as much as its link's rate
 * (SPRAY_WEIGHTED), or as the others (SPRAY_EQUAL). Each plane has
 * queues of transactions that wait for the link, one for each peer and VC, which take turns; when the next one's is full,
 * the rest of its operation, and those after it for the same peer and VC, wait. At most `peer_window` transactions of a
 * plane and peer are without an answer: so a peer that many send to does not fill what others need of the buffers.
 * A fence is begun when all before it is done, and nothing after it is begun before that.
 *
 * Requests and responses travel on VCs of their own. What arrives on a VC is worked on in its order; a request that
 * cannot be answered, because too many answers wait for the link, stays in the input buffer with what is behind it, and
 * its credits are not given back: a link's congestion reaches back to who caused it. On one VC for both, that can be a
 * deadlock, as in hardware.
 *
 * A plane whose link is down (`link_port.h`) carries nothing. What waits for it, or was sent by it and has no answer, is
 * done by the planes that are left; only an atomic and a message fail that may have been carried out. With SPRAY_PINNED
 * an address has its plane, and what is for it waits. A switch gives back a request whose target it cannot reach: that
 * plane is not used for that peer for a while. Where no plane is left operations fail. One thread drives all of it.
 * Nothing that arrives is taken for granted. */
#ifndef TESTBED_SCALE_UP_ENDPOINT_H
#define TESTBED_SCALE_UP_ENDPOINT_H

#include "histogram.h"
#include "link_port.h"
#include "memory_windows.h"
#include "transactions.h"

#define OPERATIONS 1024 /* at a time */
#define COMPLETIONS (OPERATIONS + WINDOWS)
#define PLANES 64
#define SPREAD 256 /* regions after which planes come again in the same order */
#define WAITING 64   /* transactions of a plane, peer and VC */
#define RESPONSES 16 /* answers of a plane that wait for the link, unless the configuration says how many may */
#define MOST_RESPONSES 8208
#define MEDIA_LINE 64 /* memory is read and written in whole lines of so many bytes */
#define INBOX 256
#define VC_OF_REQUESTS (~0u)
#define NO_TAG 0xffff

enum spray { SPRAY_WEIGHTED, SPRAY_EQUAL, SPRAY_PINNED };

enum operation_kind { OP_READ = 1, OP_WRITE, OP_WRITE_FULL, OP_ADD, OP_CAS, OP_MESSAGE, OP_FENCE, OP_ARRIVED,
	/* By the switch, on the memory of a group (`switch_groups.h`). The peer is this GPU itself, and the operands are the
	 * group and, of OP_REDUCE, what is added (enum element), of OP_JOIN how many members there are to be. OP_JOIN is of
	 * a transaction for each plane. */
	OP_MULTICAST, OP_REDUCE, OP_JOIN };

/* The first four are `enum status`. */
enum outcome { OUTCOME_TIMEOUT = 16, OUTCOME_LINK_DOWN, OUTCOME_CANCELLED };

struct endpoint_config {
	__u64 timeout_ns; /* of a transaction */
	__u32 gpu, gpus, planes;
	__u32 request_vc, response_vc;
	__u32 coarse; /* 256-byte transactions of a frame, 1 to 64 */
	__u32 outstanding; /* tags, at most TAGS */
	__u32 frames, frame_bytes; /* of the pool */
	__u32 spray; /* enum spray */
	__u32 peer_window; /* 0: no limit */
	__u32 responses; /* answers of a plane that wait for the link or for the memory; 0: RESPONSES */
	/* The memory behind the windows: what it reads and writes in bit/s, both together (0: as fast as links are), and the
	 * time from then until the answer may go. */
	__u64 media_bps, media_ns;
};

struct operation {
	__u64 handle, begun_ns;
	__u64 remote, size, cut; /* bytes that were made transactions */
	__u8 *local;
	__u64 operand[2], result;
	__u32 kind, peer, element, vc;
	__u32 ways; /* peers from `peer` on that the memory is interleaved over, of a read or a write */
	__u64 granule; /* bytes of one of them before the next one's */
	__u32 open; /* transactions without an answer */
	__u32 outcome;
	__u32 next; /* in a list */
	bool used, queued; /* queued: it is not yet cut up */
};

struct completion {
	__u64 handle, result, begun_ns, ended_ns, bytes;
	__u32 outcome, kind;
};

enum tag_state { TAG_FREE, TAG_WAITING, TAG_SENT, TAG_LOST };

struct tag {
	__u64 remote, ready_ns, until_ns;
	__u8 *local;
	__u32 bytes, operation, plane, peer;
	__u16 previous, next; /* in a list */
	__u8 state;
};

struct tag_list {
	__u16 first, last;
	__u32 count;
};

struct plane {
	struct link_port link;
	bool down;
	struct tag_list *flows; /* what waits, by VC and peer */
	__u64 *busy;            /* a bit for each of them that has something */
	__u32 *open;            /* sent and not answered, by peer */
	__u32 last_flow, waiting;
	struct frame_list responses, in[LINK_VCS], out;
	bool answered_last; /* of the two kinds, which was sent last */
};

struct endpoint_counters {
	__u64 requests, responses, served, refused, strays, lost_tags, messages, inbox_full, moved, unreachable;
	__u64 payload_bytes; /* that peers have written here, and that were read from them */
};

struct endpoint {
	struct endpoint_config config;
	struct plane *planes;
	struct frame_pool pool;
	struct memory_window windows[WINDOWS];
	struct tag tags[TAGS];
	struct tag_list free_tags, sent, lost;
	struct operation operations[OPERATIONS];
	__u32 queue_first, queue_last, queued; /* operations that are not yet cut up */
	__u32 running;                         /* of those cut up, wholly or not, that are not done */
	__u32 free_operation;                  /* where to look for a free one */
	__u64 next_handle;
	struct completion completions[COMPLETIONS];
	__u32 completed_first, completed, arrived; /* all of them, and those that tell of windows */
	struct frame_list inbox;
	struct endpoint_counters counters;
	struct histogram times; /* of transactions, from sent to answered */
	__u64 wake_ns;
	__u64 weights[PLANES];
	__u8 plane_at[SPREAD]; /* of a region, modulo `spread` */
	__u32 spread;
	__u32 flow_count;
	__u64 *stuck; /* flows that nothing more can be cut for now, a bit each */
	__u64 unreachable[MOST_PEERS]; /* a bit for each plane */
	__u64 forgiven_ns;             /* when that is forgotten; 0: there is nothing */
	__u64 media_free_ns;           /* when the memory has done all that was asked of it */
};

/* `links` are as many as planes. NULL: no memory, or a field is out of range. */
API struct endpoint *endpoint_new(const struct endpoint_config *config, const struct link_config *links, __u64 now);
API void endpoint_free(struct endpoint *endpoint);

/* `size` bytes at `base` can be reached with `key`; the number of the window, or -1: there are WINDOWS already. */
API int endpoint_export(struct endpoint *endpoint, __u8 *base, __u64 size, __u32 key, __u32 rights);
/* The same with a number that is chosen, for a window that has one address at all members of a group: the switch is
 * authorised as the peer SWITCH_ID. */
API int endpoint_export_at(struct endpoint *endpoint, __u32 window, __u8 *base, __u64 size, __u32 key, __u32 rights);
API int endpoint_authorise(struct endpoint *endpoint, __u32 window, __u32 peer, bool may);
API void endpoint_withdraw(struct endpoint *endpoint, __u32 window);

/* Have a completion of the kind OP_ARRIVED, whose handle is the window's number, when the first `bytes` of a window have
 * been written to, each region of `coarse` transactions at once; false: there is no such window, or no memory. */
API bool endpoint_await(struct endpoint *endpoint, __u32 window, __u64 bytes);

/* Begin an operation; its handle, or 0: OPERATIONS are under way or not collected, or a field is out of range. `local`
 * must stay until it is done. `operands` are those of an atomic of `element` bytes: what is added; what is expected and
 * what is written in its place. Those of a read or a write, if any, are a number of ways and a granule: `remote` is then
 * an address in memory that is interleaved over so many peers, of which `peer` is the first, in granules of so many
 * bytes, which are whole regions; each has its share in a window of the same number and key. `vc` is that of the requests; VC_OF_REQUESTS: the endpoint's. */
API __u64 endpoint_begin(struct endpoint *endpoint, __u32 kind, __u32 peer, __u64 remote, __u8 *local, __u64 size,
			 __u32 element, const __u64 *operands, __u32 vc, __u64 now);

/* An operation that is done, the first of them; false: none. */
API bool endpoint_completion(struct endpoint *endpoint, struct completion *completion);

/* Give up all operations: each is done, with OUTCOME_CANCELLED, but what was sent may yet be carried out. */
API void endpoint_cancel(struct endpoint *endpoint, __u64 now);

/* A message that came; its length, or -1: none. */
API int endpoint_message(struct endpoint *endpoint, __u8 *data, __u32 size, __u32 *source);

void endpoint_arrive(struct endpoint *endpoint, __u32 plane, __u32 frame, __u64 now);
API void endpoint_work(struct endpoint *endpoint, __u64 now); /* what is to be sent is in `out` of the planes */
API __u64 endpoint_next_timer(const struct endpoint *endpoint);

/* As those of the switch: for whoever has no sockets. */
API bool endpoint_put(struct endpoint *endpoint, __u32 plane, const __u8 *data, __u32 length, __u64 now);
API __u32 endpoint_get(struct endpoint *endpoint, __u32 plane, __u8 *data, __u32 size);

API bool endpoint_plane_is_down(const struct endpoint *endpoint, __u32 plane);
/* Whether the other end of the plane's link knows that this one has started. */
API bool endpoint_plane_is_known(const struct endpoint *endpoint, __u32 plane);
/* The same of all planes that are not down. */
API bool endpoint_is_known(const struct endpoint *endpoint);
API const struct endpoint_counters *endpoint_counted(const struct endpoint *endpoint);
API const struct histogram *endpoint_times(const struct endpoint *endpoint);
API const struct link_counters *endpoint_link_counters(struct endpoint *endpoint, __u32 plane);
API const struct vc_counters *endpoint_vc_counters(struct endpoint *endpoint, __u32 plane, __u32 vc);

API const struct retry_sender_counters *endpoint_retry_sender(struct endpoint *endpoint, __u32 plane);
API const struct retry_receiver_counters *endpoint_retry_receiver(struct endpoint *endpoint, __u32 plane);

/* ---- between the files of the endpoint */

static inline bool is_for_group(__u32 kind)
{
	return kind >= OP_MULTICAST && kind <= OP_JOIN;
}

void endpoint_landed(struct endpoint *endpoint, __u64 address, __u64 now);
void endpoint_tell_arrival(struct endpoint *endpoint, __u32 window, __u64 now);
void window_forget(struct memory_window *window);

/* Answer the request in `frame`, which came by `plane`. */
void endpoint_serve(struct endpoint *endpoint, struct plane *plane, __u32 frame, __u64 now);
/* Take the response in `frame`. */
void endpoint_take_response(struct endpoint *endpoint, const struct plane *plane, __u32 frame, __u64 now);
/* A frame that asks for the transaction of `tag`; NO_FRAME: the pool has none. */
__u32 endpoint_make_request(struct endpoint *endpoint, __u32 tag);
__u32 endpoint_request_bytes(const struct endpoint *endpoint, __u32 tag);

bool endpoint_may_send(struct plane *plane, __u32 vc, __u32 length, __u64 ready_ns, __u64 now, __u64 *resumes_ns);

/* Of `endpoint_flows.c`: what waits for a plane. */
bool flows_init(struct endpoint *endpoint); /* false: no memory */
void flows_free(struct endpoint *endpoint);
bool flow_is_full(const struct endpoint *endpoint, const struct operation *operation, __u32 peer, __u32 plane);
/* Whether the next part of an operation has to wait for others: of all its ways, if it is interleaved. */
bool flow_is_stuck(const struct endpoint *endpoint, const struct operation *operation);
void flow_set_stuck(struct endpoint *endpoint, const struct operation *operation);
void flows_unstick(struct endpoint *endpoint);
void flow_append(struct endpoint *endpoint, __u32 tag); /* to that of its plane */
__u32 flows_first(struct endpoint *endpoint, struct plane *plane); /* one, out of its queue; NO_TAG: none waits */
/* The next one in turn that may go, still in its queue; NO_TAG: none. */
__u32 flows_next(struct endpoint *endpoint, struct plane *plane, __u64 now, __u64 *resumes_ns);
void flow_sent(struct endpoint *endpoint, __u32 tag);   /* from its queue to `sent` */
void flow_unsend(struct endpoint *endpoint, __u32 tag, __u64 now); /* out of `sent` */

/* The plane that has the region of an address; -1: none that is up reaches the peer. */
int endpoint_plane_of(const struct endpoint *endpoint, __u32 peer, __u64 remote);
/* Look which planes there are, and at which rates. */
void endpoint_spread(struct endpoint *endpoint);
/* See which planes went down or came back. */
void endpoint_watch(struct endpoint *endpoint, __u64 now);
/* The switch has given back a transaction, which is in no list now. */
void endpoint_unreachable(struct endpoint *endpoint, __u32 tag, __u64 now);
/* End all transactions. */
void endpoint_give_up(struct endpoint *endpoint, __u32 outcome, __u64 now);

void tag_append(struct endpoint *endpoint, struct tag_list *list, __u32 tag, enum tag_state state);
void tag_remove(struct endpoint *endpoint, struct tag_list *list, __u32 tag);
/* The transaction of a tag is over; the tag is in no list. */
void endpoint_settle(struct endpoint *endpoint, __u32 tag, __u32 outcome, __u64 now);

#endif
