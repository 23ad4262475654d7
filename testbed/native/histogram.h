/* A log-linear histogram of times: 32 steps for each power of two, so that a quantile is within 3.2 %. */
#ifndef TESTBED_NATIVE_HISTOGRAM_H
#define TESTBED_NATIVE_HISTOGRAM_H

#include "types.h"

#define STEP_BITS 5
#define LONGEST_BITS 37 /* 137 s; what took longer counts in the last step, and in `max_ns` as it is */
#define STEPS ((LONGEST_BITS - STEP_BITS + 1) << STEP_BITS)

struct histogram {
	__u64 count;
	__u64 max_ns;
	__u32 steps[STEPS];
};

/* A negative time (clocks that disagree) counts as 0. */
API void histogram_record(struct histogram *histogram, __s64 value_ns);
API void histogram_merge(struct histogram *histogram, const struct histogram *other);

/* The smallest step's upper end (ns) that at least `share` of the records do not exceed; 0 for none. */
API __u64 histogram_quantile(const struct histogram *histogram, double share);

#endif
