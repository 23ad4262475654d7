/* The paths that the kernel has for a packet, and which of them it takes: the one with the least bytes queued, or the
 * one that its destination is pinned to. Included by port.bpf.c.
 *
 * The kernel's routes know the paths of the moment: one whose link is down, or that routing has withdrawn, is none of
 * them. No helper tells all of a route's next hops, so the program looks a route up (bpf_fib_lookup), and `port_paths`,
 * at the tracepoint of that, reads them all. With each comes the highest hash that leads to it (hash-threshold,
 * RFC 2992): a packet with that hash takes this path and no other. Routes whose next hops are objects of their own
 * (ip nexthop) are not read: zebra installs none on such a switch.
 *
 * What loops carry from one round to the next is in a map: in registers, the verifier would follow each value that it
 * might have.
 */
#ifndef TESTBED_PATHS_H
#define TESTBED_PATHS_H

#define SEARCH_STEPS 17 /* of 65,536 entries */
#define MEMORIES 65536
#ifndef AF_INET
#define AF_INET 2
#endif

typedef struct {
	int counter;
} atomic_t;

struct fib_nh_common {
	struct net_device *nhc_dev;
	atomic_t nhc_upper_bound;
} __attribute__((preserve_access_index));

struct fib_info;

struct fib_nh {
	struct fib_nh_common nh_common;
	struct fib_info *nh_parent;
} __attribute__((preserve_access_index));

struct fib_info {
	int fib_nhs;
	struct fib_nh fib_nh[];
} __attribute__((preserve_access_index));

struct path {
	__u32 ifindex;
	__u32 bound; /* the highest hash, of 31 bits, that leads there */
};

struct paths {
	__u32 asked; /* by the program that is running on this CPU */
	__u32 count;
	__u64 print; /* of the paths: others have another one */
	__u32 low, high; /* of a search */
	__u32 least, best, best_port; /* of a choice: bytes queued, the hash that leads there, and the port */
	__u32 here, stay, there;      /* likewise of the port that the flow left by, if it is one of them */
	struct path of[MOST_PATHS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct paths);
} paths SEC(".maps");

static __always_inline struct paths *own_paths(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&paths, &zero);
}

/* The paths that were found last, by switch and destination. Not all lookups reach `port_paths` (Linux 6.18): none that
 * interrupts it, and at times none of a CPU for 40 ms, a second apart, with nothing in the program's count of misses. A
 * packet has the paths of the one before it then. The map fills as destinations with a choice are seen; what finds no
 * room goes by its hash. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MEMORIES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct paths);
} memories SEC(".maps");

static __always_inline void remember(struct paths *found, __u64 whose)
{
	struct paths *before = bpf_map_lookup_elem(&memories, &whose);

	if (!before || before->print != found->print)
		bpf_map_update_elem(&memories, &whose, found, BPF_ANY);
}

static __always_inline void recall(struct paths *found, __u64 whose)
{
	struct paths *before = bpf_map_lookup_elem(&memories, &whose);

	if (!before)
		return;
	for (__u32 number = 0; number < MOST_PATHS; number++) {
		if (number >= before->count)
			break;
		found->of[number] = before->of[number];
	}
	found->count = before->count;
}

SEC("tp_btf/fib_table_lookup")
int BPF_PROG(port_paths, __u32 table, void *flow, struct fib_nh_common *chosen, int error)
{
	struct paths *found = own_paths();
	struct fib_info *info;
	__u64 first, size;
	__u32 there;

	if (!found || !found->asked || !chosen || error)
		return 0;
	found->asked = 0;
	found->count = 0;
	found->print = 0;
	info = BPF_CORE_READ((struct fib_nh *)chosen, nh_parent);
	if (!info)
		return 0;
	there = BPF_CORE_READ(info, fib_nhs);
	first = (__u64)info + bpf_core_field_offset(struct fib_info, fib_nh);
	size = bpf_core_type_size(struct fib_nh);
	if ((__u64)chosen < first || (__u64)chosen >= first + size * there)
		return 0; /* it is no next hop of that route: what was read is something else */
	for (__u32 number = 0; number < MOST_PATHS; number++) {
		struct fib_nh *hop = (void *)first + number * size;
		__u32 place = found->count, bound;
		if (number >= there)
			break;
		bound = BPF_CORE_READ(hop, nh_common.nhc_upper_bound.counter);
		if ((int)bound < 0 || place >= MOST_PATHS) /* its link is down */
			continue;
		found->of[place & (MOST_PATHS - 1)].ifindex = BPF_CORE_READ(hop, nh_common.nhc_dev, ifindex);
		found->of[place & (MOST_PATHS - 1)].bound = bound;
		found->count = place + 1;
		found->print = (found->print ^ found->of[place & (MOST_PATHS - 1)].ifindex ^ (__u64)bound << 32) *
			       0x9e3779b97f4a7c15ull;
	}
	return 0;
}

/* The paths of an IPv4 packet; NULL where it has no choice. */
static __always_inline struct paths *ask_paths(struct __sk_buff *skb, const struct port_config *config,
					       const struct headers *headers)
{
	struct bpf_fib_lookup lookup = {.family = AF_INET, .ifindex = skb->ifindex};
	__u64 whose = headers->addresses << 32 | config->buffer;
	struct paths *found = own_paths();

	if (!found || headers->protocol != ETH_P_IP)
		return NULL;
	lookup.ipv4_src = headers->addresses >> 32;
	lookup.ipv4_dst = (__u32)headers->addresses;
	found->count = 0;
	found->asked = 1;
	bpf_fib_lookup(skb, &lookup, sizeof(lookup), 0);
	if (found->asked)
		recall(found, whose);
	else if (found->count > 1)
		remember(found, whose);
	found->asked = 0;
	return found->count > 1 ? found : NULL;
}

/* The number of a destination (host order); of one that is not known, its place among those that are. */
__noinline __u32 place_of(__u32 address, __u32 count)
{
	struct paths *search = own_paths();
	struct address *found;
	__u32 place;

	if (!search)
		return 0;
	search->low = 0;
	search->high = count;
	for (int step = 0; step < SEARCH_STEPS; step++) {
		__u32 middle = (search->low + search->high) / 2;
		struct address *item = bpf_map_lookup_elem(&addresses, &middle);
		if (search->low >= search->high)
			break;
		if (item && item->address < address)
			search->low = middle + 1;
		else
			search->high = middle;
	}
	place = search->low;
	found = bpf_map_lookup_elem(&addresses, &place);
	return found && found->address == address ? found->number : place;
}

/* The port of a switch that is behind an interface, in the upper 32 bits, and the bytes that all its queues hold; 0 for
 * an interface that is no port. */
__noinline __u64 egress_load(__u32 buffer, __u32 ifindex, __u32 count)
{
	__u64 wanted = (__u64)buffer << 32 | ifindex, held = 0;
	struct paths *search = own_paths();
	struct egress *found;
	__u32 place, port;

	if (!search)
		return 0;
	search->low = 0;
	search->high = count;
	for (int step = 0; step < SEARCH_STEPS; step++) {
		__u32 middle = (search->low + search->high) / 2;
		struct egress *item = bpf_map_lookup_elem(&egresses, &middle);
		if (search->low >= search->high)
			break;
		if (item && ((__u64)item->buffer << 32 | item->ifindex) < wanted)
			search->low = middle + 1;
		else
			search->high = middle;
	}
	place = search->low;
	found = bpf_map_lookup_elem(&egresses, &place);
	if (!found || found->buffer != buffer || found->ifindex != ifindex)
		return 0;
	port = found->port;
	for (int class = 0; class < CLASSES; class++) {
		__u32 index = port * CLASSES + class;
		struct queue *queue = bpf_map_lookup_elem(&queues, &index);
		if (queue)
			held += queue->bytes;
	}
	return (__u64)port << 32 | (held < 0xffffffff ? held : 0xffffffff);
}

static __always_inline struct lab_config *lab_numbers(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&lab, &zero);
}

/* The hash, of 31 bits, of the path that a destination is pinned to. */
static __always_inline __u32 pinned(const struct paths *found, const struct port_config *config,
				    const struct headers *headers)
{
	struct lab_config *numbers = lab_numbers();
	__u32 place, count = found->count;

	if (!numbers || !count)
		return 0;
	place = place_of(bpf_ntohl((__u32)headers->addresses), numbers->addresses);
	return found->of[(place / (config->stride ?: 1) % count) & (MOST_PATHS - 1)].bound;
}

/* Compare the paths of `search`, from `first` on, for a flow that left by a port before (0: none). */
__noinline int compare_paths(__u32 buffer, __u32 first, __u32 before)
{
	struct lab_config *numbers = lab_numbers();
	struct paths *search = own_paths();

	if (!search || !numbers)
		return 0;
	search->least = 0xffffffff;
	search->best = search->best_port = search->there = 0;
	for (__u32 step = 0; step < MOST_PATHS; step++) {
		__u32 at = first + step, count = search->count;
		struct path *path;
		__u64 load;
		if (step >= count)
			break;
		path = &search->of[(at >= count ? at - count : at) & (MOST_PATHS - 1)];
		load = egress_load(buffer, path->ifindex, numbers->egresses);
		if (!load)
			continue;
		if (load >> 32 == before) {
			search->there = 1;
			search->here = load;
			search->stay = path->bound;
		}
		if ((__u32)load < search->least) {
			search->least = load;
			search->best = path->bound;
			search->best_port = load >> 32;
		}
	}
	return 0;
}

/* The hash, of 31 bits, of the path with the least bytes queued; of several with as few, the one that comes next after
 * a place that moves on with each packet. Where flows have a memory, one stays while that is no worse than the
 * hysteresis, and by flowlets in any case until a gap. Of paths behind no port of the switch, as in a VRF, nothing is
 * known: these packets go by the hash of their flow. */
static __always_inline __u32 least_loaded(struct paths *found, struct port_config *config, __u64 flow)
{
	/* Switches of one hash seed have the same flows, and each its own place for them. */
	__u32 slot = (flow + config->buffer * 0x9e3779b1u) & (FLOWLETS - 1), first;
	int by_gap = config->flags & PORT_FLOWLETS;
	__u64 now, number = config->sprayed++;
	struct flowlet *place = NULL;

	if (by_gap || config->hysteresis_bytes)
		place = bpf_map_lookup_elem(&flowlets, &slot);
	first = (__u64)((__u32)(number * 0x9e3779b1u) + config->seed) * found->count >> 32;
	compare_paths(config->buffer, first, place ? place->port : 0);
	if (!found->best_port)
		return flow >> 33;
	if (!place)
		return found->best;
	now = bpf_ktime_get_ns();
	if (found->there && ((by_gap && now - place->last_ns <= config->gap_ns) ||
			     found->here <= (__u64)found->least + config->hysteresis_bytes)) {
		place->last_ns = now;
		return found->stay;
	}
	place->last_ns = now;
	place->port = found->best_port;
	return found->best;
}

#endif
