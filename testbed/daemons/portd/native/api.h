/* What every part of the pause agent's native side needs: the types, and the shared maps. */
#ifndef TESTBED_PORTD_API_H
#define TESTBED_PORTD_API_H

#include "types.h"

#include "layout.h"

_Static_assert(PRIORITIES == CLASSES, "a class is a priority");

#endif
