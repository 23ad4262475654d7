/* Frames that the kernel puts into memory shared with it. */
#include "packet_ring.h"

#include <linux/if_packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define BLOCK_BYTES 65536 /* of memory that hangs together; a slot is in one block */

struct packet_ring {
	__u8 *memory;
	__u64 bytes;
	__u32 slot_bytes, block_slots, slots;
	__u32 next; /* the slot that the kernel fills next, or has filled first */
};

struct packet_ring *packet_ring_new(int socket, __u32 frames, __u32 frame_bytes)
{
	/* Before a frame are its header in the ring, an address, and room for 16 bytes of a link layer's header. */
	__u32 slot = TPACKET_ALIGN(TPACKET2_HDRLEN + 16 + frame_bytes), per_block, blocks;
	struct packet_ring *ring;
	struct tpacket_req request = {0}, none = {0};
	int version = TPACKET_V2, queue = TPACKET_V1;

	if (!frames || slot > BLOCK_BYTES || frames > 1u << 20 || !(ring = calloc(1, sizeof(*ring))))
		return NULL;
	per_block = BLOCK_BYTES / slot;
	blocks = (frames + per_block - 1) / per_block;
	*ring = (struct packet_ring){
		.bytes = (__u64)blocks * BLOCK_BYTES, .slot_bytes = slot, .block_slots = per_block, .slots = blocks * per_block};
	request = (struct tpacket_req){
		.tp_block_size = BLOCK_BYTES, .tp_block_nr = blocks, .tp_frame_size = slot, .tp_frame_nr = ring->slots};
	if (!setsockopt(socket, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) &&
	    !setsockopt(socket, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request))) {
		ring->memory = mmap(NULL, ring->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, socket, 0);
		if (ring->memory != MAP_FAILED)
			return ring;
		setsockopt(socket, SOL_PACKET, PACKET_RX_RING, &none, sizeof(none));
	}
	setsockopt(socket, SOL_PACKET, PACKET_VERSION, &queue, sizeof(queue));
	free(ring);
	return NULL;
}

void packet_ring_free(struct packet_ring *ring)
{
	if (!ring)
		return;
	munmap(ring->memory, ring->bytes);
	free(ring);
}

bool packet_ring_take(struct packet_ring *ring, struct frame_pool *pool, __u32 frame, int *interface)
{
	__u8 *slot = ring->memory + (size_t)(ring->next / ring->block_slots) * BLOCK_BYTES +
		     (size_t)(ring->next % ring->block_slots) * ring->slot_bytes;
	struct tpacket2_hdr *header = (struct tpacket2_hdr *)slot;
	const struct sockaddr_ll *name = (const struct sockaddr_ll *)(slot + TPACKET_ALIGN(sizeof(*header)));
	__u32 length;

	if (!(__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
		return false;
	length = header->tp_snaplen == header->tp_len && header->tp_len <= pool->stride ? header->tp_len : 0;
	memcpy(frame_bytes(pool, frame), slot + header->tp_mac, length);
	pool->frames[frame].length = length;
	*interface = name->sll_ifindex;
	__atomic_store_n(&header->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	ring->next = ring->next + 1 == ring->slots ? 0 : ring->next + 1;
	return true;
}
