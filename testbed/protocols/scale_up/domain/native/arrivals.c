/* Windows that wait for bytes: who has one hears when all are there, half a round trip before the writer does. */
#include <stdlib.h>

#include "endpoint.h"

static __u64 region_of(const struct endpoint *endpoint, __u64 address)
{
	return address / (endpoint->config.coarse * REGION_BYTES);
}

bool endpoint_await(struct endpoint *endpoint, __u32 number, __u64 bytes)
{
	struct memory_window *window = &endpoint->windows[number % WINDOWS];
	__u64 address, regions;

	if (number >= WINDOWS || !window->base || !bytes || bytes > window->size)
		return false;
	address = window_address(number, window->key, 0);
	regions = region_of(endpoint, address + bytes - 1) - region_of(endpoint, address) + 1;
	free(window->landed);
	window->landed = calloc((regions + 7) / 8, 1);
	window->regions = window->awaited = window->landed ? regions : 0;
	return window->landed;
}

void endpoint_landed(struct endpoint *endpoint, __u64 address, __u64 now)
{
	__u32 number = address >> (KEY_BITS + OFFSET_BITS) & (WINDOWS - 1);
	struct memory_window *window = &endpoint->windows[number];
	__u64 region;

	if (!window->awaited)
		return;
	region = region_of(endpoint, address) - region_of(endpoint, window_address(number, window->key, 0));
	/* What is sent again by another plane counts once. */
	if (region >= window->regions || window->landed[region / 8] >> region % 8 & 1)
		return;
	window->landed[region / 8] |= 1 << region % 8;
	if (!--window->awaited)
		endpoint_tell_arrival(endpoint, number, now);
}

void window_forget(struct memory_window *window)
{
	free(window->landed);
	*window = (struct memory_window){0};
}
