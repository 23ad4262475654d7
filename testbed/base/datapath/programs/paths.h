/* The paths that the kernel has for a packet, and which of them it takes: the one with the least bytes queued, or the
 * one that its destination is pinned to. Included by port.bpf.c.
 *
 * The kernel's routes know the paths of the moment: one whose link is down, or that routing has withdrawn, is none of
 * them. No helper tells all of a route's next hops, so the program asks for one (bpf_fib_lookup), and `port_paths`
 * reads them all as the kernel is about to choose among them. With each comes the highest hash that leads to it
 * (hash-threshold, RFC 2992): a packet with that hash takes this path and no other.
 */
#ifndef TESTBED_PATHS_H
#define TESTBED_PATHS_H

#define MOST_PATHS 64
#define SEARCH_STEPS 17 /* of 65,536 entries */
#define AF_INET 2

typedef struct {
	int counter;
} atomic_t;

struct fib_nh_common {
	struct net_device *nhc_dev;
	atomic_t nhc_upper_bound;
} __attribute__((preserve_access_index));

struct fib_nh {
	struct fib_nh_common nh_common;
} __attribute__((preserve_access_index));

struct nh_info {
	struct fib_nh_common fib_nhc;
} __attribute__((preserve_access_index));

struct nh_group;

struct nexthop {
	_Bool is_group;
	struct nh_info *nh_info;
	struct nh_group *nh_grp;
} __attribute__((preserve_access_index));

struct nh_grp_entry {
	struct nexthop *nh;
	struct {
		atomic_t upper_bound;
	} hthr;
} __attribute__((preserve_access_index));

struct nh_group {
	__u16 num_nh;
	_Bool hash_threshold;
	struct nh_grp_entry nh_entries[];
} __attribute__((preserve_access_index));

struct fib_info {
	int fib_nhs;
	struct nexthop *nh;
	struct fib_nh fib_nh[];
} __attribute__((preserve_access_index));

struct fib_result {
	struct fib_info *fi;
} __attribute__((preserve_access_index));

struct path {
	__u32 ifindex;
	__u32 bound; /* the highest hash, of 31 bits, that leads there */
};

struct paths {
	__u32 asked; /* by the program that is running on this CPU */
	__u32 count;
	struct path of[MOST_PATHS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct paths);
} paths SEC(".maps");

/* A next hop of a group of next hops, as zebra installs them. */
static __always_inline void read_member(struct path *path, struct nh_group *group, __u32 number)
{
	struct nh_grp_entry *entry = (void *)group + bpf_core_field_offset(struct nh_group, nh_entries) +
				     number * bpf_core_type_size(struct nh_grp_entry);

	path->ifindex = BPF_CORE_READ(entry, nh, nh_info, fib_nhc.nhc_dev, ifindex);
	path->bound = BPF_CORE_READ(entry, hthr.upper_bound.counter);
}

/* A next hop of a route that has several of its own. */
static __always_inline void read_own(struct path *path, struct fib_info *info, __u32 number)
{
	struct fib_nh *own = (void *)info + bpf_core_field_offset(struct fib_info, fib_nh) +
			     number * bpf_core_type_size(struct fib_nh);

	path->ifindex = BPF_CORE_READ(own, nh_common.nhc_dev, ifindex);
	path->bound = BPF_CORE_READ(own, nh_common.nhc_upper_bound.counter);
}

SEC("fentry/fib_select_path")
int BPF_PROG(port_paths, void *net, struct fib_result *result)
{
	__u32 zero = 0, there, usable = 0;
	struct paths *found = bpf_map_lookup_elem(&paths, &zero);
	struct nh_group *group = NULL;
	struct nexthop *nexthop;
	struct fib_info *info;

	if (!found || !found->asked)
		return 0;
	found->asked = 0;
	info = BPF_CORE_READ(result, fi);
	if (!info)
		return 0;
	nexthop = BPF_CORE_READ(info, nh);
	if (nexthop) {
		group = BPF_CORE_READ(nexthop, nh_grp);
		if (!BPF_CORE_READ(nexthop, is_group) || !BPF_CORE_READ(group, hash_threshold))
			return 0;
		there = BPF_CORE_READ(group, num_nh);
	} else {
		there = BPF_CORE_READ(info, fib_nhs);
	}
	for (__u32 number = 0; number < MOST_PATHS; number++) {
		struct path *path = &found->of[usable & (MOST_PATHS - 1)];
		if (number >= there)
			break;
		if (group)
			read_member(path, group, number);
		else
			read_own(path, info, number);
		if ((int)path->bound >= 0) /* else its link is down */
			usable++;
	}
	found->count = usable;
	return 0;
}

/* The paths of an IPv4 packet; NULL where it has no choice. */
static __always_inline struct paths *ask_paths(struct __sk_buff *skb, const struct headers *headers)
{
	struct bpf_fib_lookup lookup = {.family = AF_INET, .ifindex = skb->ifindex};
	struct paths *found;
	__u32 zero = 0;

	found = bpf_map_lookup_elem(&paths, &zero);
	if (!found || headers->protocol != ETH_P_IP)
		return NULL;
	lookup.ipv4_src = headers->addresses >> 32;
	lookup.ipv4_dst = (__u32)headers->addresses;
	found->count = 0;
	found->asked = 1;
	bpf_fib_lookup(skb, &lookup, sizeof(lookup), 0);
	found->asked = 0;
	return found->count > 1 ? found : NULL;
}

/* How many destinations of the lab have a lower address (host order). */
__noinline __u32 place_of(__u32 address, __u32 count)
{
	__u32 low = 0, high = count;

	for (int step = 0; step < SEARCH_STEPS; step++) {
		__u32 middle = (low + high) / 2;
		struct address *item;
		if (low >= high)
			break;
		item = bpf_map_lookup_elem(&addresses, &middle);
		if (item && item->address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The port of a switch that is behind an interface, in the upper 32 bits, and the bytes that all its queues hold; 0 for
 * an interface that is no port. Verified by itself, once. */
__noinline __u64 egress_load(__u32 buffer, __u32 ifindex, __u32 count)
{
	__u64 wanted = (__u64)buffer << 32 | ifindex, held = 0;
	__u32 low = 0, high = count, port;
	struct egress *found;

	for (int step = 0; step < SEARCH_STEPS; step++) {
		__u32 middle = (low + high) / 2;
		struct egress *item;
		if (low >= high)
			break;
		item = bpf_map_lookup_elem(&egresses, &middle);
		if (item && ((__u64)item->buffer << 32 | item->ifindex) < wanted)
			low = middle + 1;
		else
			high = middle;
	}
	found = bpf_map_lookup_elem(&egresses, &low);
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
	return found->of[place / (config->stride ?: 1) % count & (MOST_PATHS - 1)].bound;
}

/* The hash, of 31 bits, of the path with the least bytes queued; of several with as few, the one that comes next after
 * a place that moves on with each packet. Where flows have a memory, one stays while that is no worse than the
 * hysteresis, and by flowlets in any case until a gap. */
static __always_inline __u32 least_loaded(const struct paths *found, struct port_config *config, __u64 flow)
{
	__u32 slot = flow & (FLOWLETS - 1), count = found->count, first, best = 0, best_port = 0, stay = 0;
	int by_gap = config->flags & PORT_FLOWLETS, remembers = by_gap || config->hysteresis_bytes, there = 0;
	__u64 least = ~0ull, here = 0, now = 0, number = config->sprayed++;
	struct flowlet *place = NULL;
	struct lab_config *numbers = lab_numbers();

	if (!numbers)
		return 0;
	if (remembers) {
		place = bpf_map_lookup_elem(&flowlets, &slot);
		now = bpf_ktime_get_ns();
	}
	first = (__u64)((__u32)(number * 0x9e3779b1u) + config->seed) * count >> 32;
	for (__u32 step = 0; step < MOST_PATHS; step++) {
		__u32 at = first + step;
		const struct path *path;
		__u64 load;
		if (step >= count)
			break;
		path = &found->of[(at >= count ? at - count : at) & (MOST_PATHS - 1)];
		load = egress_load(config->buffer, path->ifindex, numbers->egresses);
		if (!load)
			continue;
		if (place && load >> 32 == place->port) {
			there = 1;
			here = load & 0xffffffff;
			stay = path->bound;
		}
		if ((load & 0xffffffff) < least) {
			least = load & 0xffffffff;
			best = path->bound;
			best_port = load >> 32;
		}
	}
	if (!place)
		return best;
	if (there && ((by_gap && now - place->last_ns <= config->gap_ns) || here <= least + config->hysteresis_bytes))
		best = stay;
	else
		place->port = best_port;
	place->last_ns = now;
	return best;
}

#endif
