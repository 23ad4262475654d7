/* The maps, and events for the pause agent. Included once, by port.bpf.c. */
#ifndef TESTBED_MAPS_H
#define TESTBED_MAPS_H

#include "rules.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lab_config);
} lab SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct profile);
} profiles SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port_config);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct buffer);
} buffers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct queue);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ingress);
} ingress SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pause);
} pauses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct curve);
} curves SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct address);
} addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct egress);
} egresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

struct flowlet {
	__u64 last_ns;
	__u32 salt;
	__u32 port; /* LB_ADAPTIVE: that it left by */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOWLETS);
	__type(key, __u32);
	__type(value, struct flowlet);
} flowlets SEC(".maps");

static __always_inline struct event *new_event(__u16 port, __u8 kind, __u8 priority)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__u32 zero = 0;
		struct lab_config *config = bpf_map_lookup_elem(&lab, &zero);
		if (config)
			__sync_fetch_and_add(&config->lost_events, 1);
		return NULL;
	}
	event->ns = bpf_ktime_get_ns();
	event->port = port;
	event->kind = kind;
	event->priority = priority;
	event->bytes = 0;
	__builtin_memset(event->quanta, 0, sizeof(event->quanta));
	return event;
}

static __always_inline void notify(__u32 account, __u8 kind, __u32 bytes)
{
	struct event *event = new_event(account / CLASSES, kind, account % CLASSES);
	if (!event)
		return;
	event->bytes = bytes;
	bpf_ringbuf_submit(event, 0);
}

#endif
