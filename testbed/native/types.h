/* What C of several packages needs: integer types, and what Python may call. */
#ifndef TESTBED_NATIVE_TYPES_H
#define TESTBED_NATIVE_TYPES_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>

#define PRIORITIES 8                               /* of IEEE 802.1Q */
#define API __attribute__((visibility("default"))) /* everything else stays inside the library */
#define NEVER (~0ull)

#endif
