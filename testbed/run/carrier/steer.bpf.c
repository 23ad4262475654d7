// Chooses the socket of connections that a host opens to a carried address: the carrier's listener in that host's
// network namespace. What is for an address of the host itself, or for one that is not carried, goes on as ever.
// Source: Linux, Documentation/bpf/prog_sk_lookup.rst.

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2
#define AF_INET6 10
#define MOST_ADDRESSES 65536

// An address of IPv6, or of IPv4 mapped into it (RFC 4291, section 2.5.5.2), in network byte order.
struct address {
	__u32 word[4];
};

// The listeners: one for IPv4, one for IPv6.
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} listeners SEC(".maps");

// The carried addresses of other hosts.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_ADDRESSES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u32);
} carried SEC(".maps");

SEC("sk_lookup")
int steer(struct bpf_sk_lookup *ctx)
{
	struct address to = {};
	struct bpf_sock *listener;
	__u32 slot = 0;
	long refused;

	if (ctx->protocol != IPPROTO_TCP)
		return SK_PASS;
	if (ctx->family == AF_INET) {
		to.word[2] = bpf_htonl(0xffff);
		to.word[3] = ctx->local_ip4;
	} else if (ctx->family == AF_INET6) {
		to.word[0] = ctx->local_ip6[0];
		to.word[1] = ctx->local_ip6[1];
		to.word[2] = ctx->local_ip6[2];
		to.word[3] = ctx->local_ip6[3];
		slot = 1;
	} else {
		return SK_PASS;
	}
	if (!bpf_map_lookup_elem(&carried, &to))
		return SK_PASS;
	listener = bpf_map_lookup_elem(&listeners, &slot);
	if (!listener)
		return SK_DROP;
	refused = bpf_sk_assign(ctx, listener, 0);
	bpf_sk_release(listener);
	return refused ? SK_DROP : SK_PASS;
}

char LICENSE[] SEC("license") = "GPL";
