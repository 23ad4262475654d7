/* What a wire does to frames on purpose. */
#include "wire_errors.h"

#define ADDRESSES 12

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static __u64 next(__u64 *state)
{
	__u64 z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static bool happens(struct wire_side *side, double share)
{
	return share > 0 && (double)(next(&side->random) >> 11) * 0x1p-53 < share;
}

bool wire_set(struct wire *wire, const struct wire_errors *errors, __u32 port)
{
	if (!(errors->loss >= 0 && errors->loss <= 1 && errors->corrupt >= 0 && errors->corrupt <= 1 && errors->burst >= 0))
		return false;
	*wire = (struct wire){.errors = *errors};
	for (int side = 0; side < 2; side++) {
		__u64 mix = errors->seed;
		wire->sides[side].random = next(&mix) ^ ((__u64)port << 1 | side);
	}
	wire->faulty = errors->loss > 0 || errors->corrupt > 0 || errors->every || errors->silent || errors->down;
	return true;
}

/* A share of p frames is lost in bursts of b on average, where one begins with p / ((1 - p) b) and ends with 1 / b. */
static bool is_lost(struct wire_side *side, const struct wire_errors *errors)
{
	if (errors->burst <= 1 || errors->loss >= 1)
		return happens(side, errors->loss);
	if (side->in_burst)
		side->in_burst = !happens(side, 1 / errors->burst);
	else
		side->in_burst = happens(side, errors->loss / (1 - errors->loss) / errors->burst);
	return side->in_burst;
}

enum wire_fate wire_decide(struct wire *wire, enum wire_direction direction)
{
	const struct wire_errors *errors = &wire->errors;
	struct wire_side *side = &wire->sides[direction];

	if (!wire->faulty)
		return WIRE_PASSES;
	if (errors->silent || errors->down)
		return WIRE_LOSES;
	side->frames++;
	if (errors->every && side->frames % errors->every == 0)
		return WIRE_LOSES;
	if (is_lost(side, errors))
		return WIRE_LOSES;
	return happens(side, errors->corrupt) ? WIRE_DAMAGES : WIRE_PASSES;
}

__u32 wire_place(struct wire *wire, enum wire_direction direction, __u32 length)
{
	if (length <= ADDRESSES)
		return 0;
	return ADDRESSES + next(&wire->sides[direction].random) % (length - ADDRESSES);
}
