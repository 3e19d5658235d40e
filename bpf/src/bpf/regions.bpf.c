// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Listens to what DAMON found, whoever runs it: one event for each region at the end of each aggregation, in the
 * monitor's own thread. Changes nothing of the monitor.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "regions.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Put the type of the ring into the skeleton. */
struct region_record abi_region_record = {};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* include/linux/damon.h */
struct damon_addr_range {
	unsigned long start;
	unsigned long end;
};

struct damon_region {
	struct damon_addr_range ar;
	unsigned int nr_accesses;
	unsigned int age;
};

#pragma clang attribute pop

/* 1 MiB holds a snapshot of 18,000 regions; the kernel's default is 1,000 at most, in a few milliseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} regions SEC(".maps");

/* Events that found no room. */
__u64 lost = 0;

SEC("tp_btf/damon_aggregated")
int BPF_PROG(on_aggregated, unsigned int target, struct damon_region *region, unsigned int number)
{
	struct region_record *record = bpf_ringbuf_reserve(&regions, sizeof(*record), 0);

	if (!record) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	record->when = bpf_ktime_get_ns();
	record->start = region->ar.start;
	record->end = region->ar.end;
	record->tid = (__u32)bpf_get_current_pid_tgid();
	record->target = target;
	record->regions = number;
	record->accesses = region->nr_accesses;
	record->age = region->age;
	record->spare = 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}
