/* What the pause agent writes in the map `pauses`: each function is one thing that happened to a queue. */
#ifndef TESTBED_PORTD_LEDGER_H
#define TESTBED_PORTD_LEDGER_H

#include "api.h"

static inline void ledger_end(__u64 *total_ns, __u64 *since_ns, __u64 now_ns)
{
	if (!*since_ns)
		return;
	if (now_ns > *since_ns)
		*total_ns += now_ns - *since_ns;
	*since_ns = 0;
}

static inline void ledger_xoff_sent(struct pause *pause, __u64 now_ns)
{
	pause->xoff_sent++;
	if (!pause->asked_since)
		pause->asked_since = now_ns;
}

static inline void ledger_xon_sent(struct pause *pause, __u64 now_ns)
{
	pause->xon_sent++;
	ledger_end(&pause->asked_ns, &pause->asked_since, now_ns);
}

/* Said before the gate closes: after a crash the map may name an open gate, never miss a closed one. */
static inline void ledger_gate_closes(struct pause *pause, __u64 now_ns)
{
	__atomic_store_n(&pause->closed, 1, __ATOMIC_SEQ_CST);
	if (!pause->paused_since)
		pause->paused_since = now_ns;
}

/* Said after the gate has opened. */
static inline void ledger_gate_opened(struct pause *pause, __u64 now_ns)
{
	ledger_end(&pause->paused_ns, &pause->paused_since, now_ns);
	__atomic_store_n(&pause->closed, 0, __ATOMIC_SEQ_CST);
}

static inline void ledger_watchdog_frees(struct pause *pause)
{
	pause->watchdog_events++;
	pause->ignored = 1;
}

#endif
