/* What every part of the pause agent's native side needs: the types, and the shared maps. */
#ifndef TESTBED_PORTD_API_H
#define TESTBED_PORTD_API_H

#include "layout.h"
#include "types.h"

_Static_assert(PRIORITIES == CLASSES, "a class is a priority");

#endif
