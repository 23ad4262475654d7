/* The memory of a GPU that its peers may reach: windows, each with a key, and the peers that are authorised for it.
 *
 * An address of 57 bits is the window's number (6 bits), its key (16), and an offset in it (35). Every access is checked
 * against all of that, so that nothing that comes in reaches memory outside. */
#ifndef TESTBED_SCALE_UP_MEMORY_WINDOWS_H
#define TESTBED_SCALE_UP_MEMORY_WINDOWS_H

#include "types.h"

#define WINDOWS 64
#define KEY_BITS 16
#define OFFSET_BITS 35
#define MOST_PEERS 1024

enum right { MAY_READ = 1, MAY_WRITE = 2, MAY_ATOMIC = 4 };

struct memory_window {
	__u8 *base; /* NULL: none */
	__u64 size;
	__u32 key, rights;
	__u64 peers[MOST_PEERS / 64];
	__u8 *landed;   /* a bit for each region that was written to, where somebody waits for it; else NULL */
	__u64 regions;  /* how many bits */
	__u64 awaited;  /* of these, those that are not set */
};

static inline __u64 window_address(__u32 window, __u32 key, __u64 offset)
{
	return (__u64)window << (KEY_BITS + OFFSET_BITS) | (__u64)key << OFFSET_BITS | offset;
}

/* Where `bytes` from `address` on are, if `peer` has all of `rights` there; NULL: it has not. */
static inline __u8 *window_locate(const struct memory_window *windows, __u32 peer, __u64 address, __u64 bytes,
				  __u32 rights)
{
	const struct memory_window *window = &windows[address >> (KEY_BITS + OFFSET_BITS) & (WINDOWS - 1)];
	__u64 offset = address & ((1ull << OFFSET_BITS) - 1);

	if (!window->base || (address >> OFFSET_BITS & ((1u << KEY_BITS) - 1)) != window->key || peer >= MOST_PEERS ||
	    !(window->peers[peer / 64] >> peer % 64 & 1) || (window->rights & rights) != rights || bytes > window->size ||
	    offset > window->size - bytes)
		return NULL;
	return window->base + offset;
}

#endif
