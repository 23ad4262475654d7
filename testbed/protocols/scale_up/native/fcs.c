#include "fcs.h"
#include "crc32.h"

__u32 fcs_of(const __u8 *data, __u64 length)
{
	return ~crc32_update(~0u, data, length);
}
