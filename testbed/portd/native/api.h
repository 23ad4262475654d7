/* What every part of the pause agent's native side needs: integer types, the shared maps, and what Python may call. */
#ifndef TESTBED_PORTD_API_H
#define TESTBED_PORTD_API_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>

#include "layout.h"

#define PRIORITIES CLASSES
#define API __attribute__((visibility("default"))) /* everything else stays inside the library */
#define NEVER (~0ull)

#endif
