/* A log-linear histogram of times. */
#include "histogram.h"

void histogram_record(struct histogram *histogram, __s64 value_ns)
{
	__u64 value = value_ns < 0 ? 0 : value_ns;
	__u32 shift = 0, step;

	if (value >> (STEP_BITS + 1))
		shift = 63 - __builtin_clzll(value) - STEP_BITS;
	step = (shift << STEP_BITS) + (value >> shift);
	histogram->steps[step < STEPS ? step : STEPS - 1]++;
	histogram->count++;
	if (value > histogram->max_ns)
		histogram->max_ns = value;
}

void histogram_merge(struct histogram *histogram, const struct histogram *other)
{
	for (__u32 step = 0; step < STEPS; step++)
		histogram->steps[step] += other->steps[step];
	histogram->count += other->count;
	if (other->max_ns > histogram->max_ns)
		histogram->max_ns = other->max_ns;
}

static __u64 upper_end(__u32 step)
{
	__u32 shift;

	if (step < 2 << STEP_BITS)
		return step;
	shift = (step >> STEP_BITS) - 1;
	return ((((__u64)step & ((1 << STEP_BITS) - 1)) + (1 << STEP_BITS) + 1) << shift) - 1;
}

__u64 histogram_quantile(const struct histogram *histogram, double share)
{
	double wanted = share * histogram->count;
	__u64 seen = 0;

	if (!histogram->count)
		return 0;
	for (__u32 step = 0; step < STEPS - 1; step++) {
		seen += histogram->steps[step];
		if (histogram->steps[step] && seen >= wanted)
			return upper_end(step) < histogram->max_ns ? upper_end(step) : histogram->max_ns;
	}
	return histogram->max_ns;
}
