/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is written into the ring of DAMON's regions. Fixed-width integers, no padding; the loader takes the type from
 * the skeleton and asserts the same size.
 */
#ifndef MEMPROV_REGIONS_H
#define MEMPROV_REGIONS_H

/*
 * One region of one aggregation, as the tracepoint damon:damon_aggregated has it. when: CLOCK_MONOTONIC nanoseconds.
 * tid: the thread of the monitor, as the initial pid namespace has it; nothing else tells monitors apart.
 */
struct region_record {
	__u64 when;
	__u64 start;
	__u64 end;
	__u32 tid;
	__u32 target;
	__u32 regions;
	__u32 accesses;
	__u32 age;
	__u32 spare;
};

_Static_assert(sizeof(struct region_record) == 48, "wire");

#endif
