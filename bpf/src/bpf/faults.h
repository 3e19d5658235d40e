/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Page faults of a sample: those in pages, and in blocks of 2 MiB, whose number hashes below a bound. A huge page has
 * one fault only, which lies in a sampled page hardly ever: its block stands for it.
 */
#ifndef MEMPROV_FAULTS_H
#define MEMPROV_FAULTS_H

/* Set by the loader at any time, in a section of their own: the bound of most groups, and the highest of all. */
volatile __u64 touch_default SEC(".data.touch") = 0;
volatile __u64 touch_highest SEC(".data.touch") = 0;

/* Bounds of groups that have their own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u64);
	__uint(map_flags, 1 /* BPF_F_NO_PREALLOC */);
} touch SEC(".maps");

/* The bucket of each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} cpu_faults SEC(".maps");

#define BLOCK_SIZE (2u << 20)

/* The finalizer of MurmurHash3 over a number and the seed: `touch.rs` of the ledger has its twin. */
static __always_inline __u32 touch_hash(__u64 number)
{
	__u64 x = number ^ (__u64)hash_seed << 32;

	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x >> 32;
}

#define WRITE_FAULT(size, read)                                                            \
	({                                                                                 \
		struct side_##size *side = bpf_ringbuf_reserve(&stacks, sizeof(*side), 0); \
		if (side) {                                                                \
			__u32 bytes = read;                                                \
			fill_side(&side->head, bpf_ktime_get_ns(), regs);                  \
			side->head.kind = SIDE_FAULT;                                      \
			side->head.bytes = bytes;                                          \
			side->head.error = error;                                          \
			side->head.address = address;                                      \
			side->head.threshold = bound;                                      \
			if (known || bytes < want)                                         \
				side->head.flags |= SIDE_COMPLETE;                         \
			bpf_ringbuf_submit(side, wake_flag(&stacks, stacks_wake));         \
		}                                                                          \
		side != NULL;                                                              \
	})

static __always_inline int fault(__u64 address, __u32 error)
{
	__u32 hash = touch_hash(address / PAGE_SIZE), block = touch_hash(~(address / BLOCK_SIZE));
	__u32 tgid, zero = 0, want;
	__u64 bound, *own, *cpu, now;
	const struct pt_regs *regs;
	struct task_struct *task;
	struct space *space;
	struct pt_regs copy;
	bool known, written;

	/* Most faults end here, so nothing but the hash stands before the question. */
	if (block < hash)
		hash = block;
	if (hash >= touch_highest || (__s64)address < 0)
		return 0;
	task = CURRENT();
	tgid = id_of(task) >> 32;
	if (!watched(tgid))
		return 0;
	own = bpf_map_lookup_elem(&touch, &tgid);
	bound = own ? *own : touch_default;
	if (hash >= bound)
		return 0;
	/*
	 * A fault with faults disabled is never resolved: among them are those of these programs' own reads. Before Linux
	 * 5.11 this read disables them itself, and sees 1 where they were enabled.
	 */
	if (READ_TASK(task, pagefault_disabled) > !HAS_HELPER(get_current_task_btf) || !READ_TASK(task, mm))
		return 0;

	now = bpf_ktime_get_ns();
	space = space_of(tgid);
	cpu = bpf_map_lookup_elem(&cpu_faults, &zero);
	if (!space || !cpu || !pay(&space->faults_until, now, fault_cost, fault_credit) ||
	    !pay(cpu, now, cpu_fault_cost, cpu_fault_credit) || unlucky(inject_faults)) {
		__sync_fetch_and_add(&lost.faults, 1);
		return 0;
	}
	/* The user's, wherever the fault was taken: the hook's own are the kernel's where it touches for a call. */
	regs = saved_regs(&copy);
	if (!regs)
		return 0;
	want = stack_bytes(regs->sp, &known);
	if (want <= 2048)
		written = WRITE_FAULT(2048, bpf_probe_read_user(side->stack, want, (void *)regs->sp) ? 0 : want);
	else if (want <= 4096)
		written = WRITE_FAULT(4096, bpf_probe_read_user(side->stack, want, (void *)regs->sp) ? 0 : want);
	else
		written = WRITE_FAULT(8192, copy_pages(side, regs->sp, want));
	if (!written)
		__sync_fetch_and_add(&lost.faults, 1);
	return 0;
}

#endif
