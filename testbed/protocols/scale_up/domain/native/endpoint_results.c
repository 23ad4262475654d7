/* What came of an endpoint: messages, frames where there are no sockets, and counters. */
#include <string.h>

#include "endpoint.h"

int endpoint_message(struct endpoint *endpoint, __u8 *data, __u32 size, __u32 *source)
{
	__u32 number = frame_shift(&endpoint->pool, &endpoint->inbox), length;

	if (number == NO_FRAME)
		return -1;
	length = endpoint->pool.frames[number].length;
	*source = endpoint->pool.frames[number].port;
	memcpy(data, frame_bytes(&endpoint->pool, number), length < size ? length : size);
	frame_give(&endpoint->pool, number);
	return length;
}

bool endpoint_put(struct endpoint *endpoint, __u32 plane, const __u8 *data, __u32 length, __u64 now)
{
	__u32 frame;

	if (plane >= endpoint->config.planes || length > endpoint->pool.stride ||
	    (frame = frame_take(&endpoint->pool)) == NO_FRAME)
		return false;
	memcpy(frame_bytes(&endpoint->pool, frame), data, length);
	endpoint->pool.frames[frame].length = length;
	endpoint_arrive(endpoint, plane, frame, now);
	return true;
}

__u32 endpoint_get(struct endpoint *endpoint, __u32 plane, __u8 *data, __u32 size)
{
	__u32 frame, length;

	if (plane >= endpoint->config.planes ||
	    (frame = frame_shift(&endpoint->pool, &endpoint->planes[plane].out)) == NO_FRAME)
		return 0;
	length = endpoint->pool.frames[frame].length;
	memcpy(data, frame_bytes(&endpoint->pool, frame), length < size ? length : size);
	link_gone(&endpoint->pool, frame);
	return length;
}

bool endpoint_plane_is_down(const struct endpoint *endpoint, __u32 plane)
{
	return plane >= endpoint->config.planes || endpoint->planes[plane].down;
}

bool endpoint_plane_is_known(const struct endpoint *endpoint, __u32 plane)
{
	const struct link_port *link;

	if (plane >= endpoint->config.planes)
		return false;
	link = &endpoint->planes[plane].link;
	return link->greeted || !link->config.epoch;
}

bool endpoint_is_known(const struct endpoint *endpoint)
{
	for (__u32 plane = 0; plane < endpoint->config.planes; plane++) {
		if (!endpoint->planes[plane].down && !endpoint_plane_is_known(endpoint, plane))
			return false;
	}
	return true;
}

const struct endpoint_counters *endpoint_counted(const struct endpoint *endpoint)
{
	return &endpoint->counters;
}

const struct histogram *endpoint_times(const struct endpoint *endpoint)
{
	return &endpoint->times;
}

const struct link_counters *endpoint_link_counters(struct endpoint *endpoint, __u32 plane)
{
	return plane < endpoint->config.planes ? link_counters(&endpoint->planes[plane].link) : NULL;
}

const struct vc_counters *endpoint_vc_counters(struct endpoint *endpoint, __u32 plane, __u32 vc)
{
	return plane < endpoint->config.planes && vc < LINK_VCS ? link_vc_counters(&endpoint->planes[plane].link, vc) : NULL;
}

const struct retry_sender_counters *endpoint_retry_sender(struct endpoint *endpoint, __u32 plane)
{
	return plane < endpoint->config.planes ? &endpoint->planes[plane].link.retry_sender.counters : NULL;
}

const struct retry_receiver_counters *endpoint_retry_receiver(struct endpoint *endpoint, __u32 plane)
{
	return plane < endpoint->config.planes ? &endpoint->planes[plane].link.retry_receiver.counters : NULL;
}
