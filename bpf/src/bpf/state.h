/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs share: whom they watch, what each may write, and what was lost. */
#ifndef MEMPROV_STATE_H
#define MEMPROV_STATE_H

#define WAKE_BAND 65536

/* Set by the loader before load. */
const volatile __u8 scope_all = 0;
const volatile __u32 except_tgid = 0;
const volatile __u32 hash_seed = 0;
/* Bytes in a ring above which its reader is woken: a quarter of it. */
const volatile __u64 lifecycle_wake = 0;
const volatile __u64 stacks_wake = 0;
/* Probability × 2^32 that a reservation is treated as failed. */
const volatile __u64 inject_lifecycle = 0;
const volatile __u64 inject_stacks = 0;
const volatile __u64 inject_faults = 0;
/* sched_process_exit says whether the whole group is dead (Linux 6.17). */
const volatile __u8 exit_tells_group = 0;
/* Tracing programs may keep data with a task (Linux 5.13): `thread_data`, else `threads`. */
const volatile __u8 task_data = 0;

/*
 * Budgets of one thread group: a unit costs so many nanoseconds of credit, and credit is given for so many
 * nanoseconds ahead. 100,000 records at 50,000/s, 50,000 stacks at 20,000/s, 2,000 faults at 1,000/s; and for all
 * faults of one CPU 20,000 at 10,000/s.
 */
const volatile __u64 record_cost = 20000, record_credit = 2000000000;
const volatile __u64 stack_cost = 50000, stack_credit = 2500000000;
const volatile __u64 fault_cost = 1000000, fault_credit = 2000000000;
const volatile __u64 cpu_fault_cost = 100000, cpu_fault_credit = 2000000000;

struct loss_totals lost = {};

/* The loader sets the sizes of both. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} lifecycle SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} stacks SEC(".maps");

/* Watched thread groups, where not all are. A plain hash: an entry must never be evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
	__uint(map_flags, 1 /* BPF_F_NO_PREALLOC */);
} selected SEC(".maps");

/*
 * Thread groups that wrote or lost something lately. LRU: an idle one comes back with full buckets, and a loss that is
 * evicted unread is still in the totals, whose gap then names nobody.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct space);
} spaces SEC(".maps");

struct thread {
	/* When the call in flight began; 0: none is. */
	__u64 begin;
	__u64 brk;
	/* When the clone in flight began; 0: none is. */
	__u64 cloning;
	/* What the thread has drawn from the buckets of its space and not used yet. */
	__u32 records;
	__u32 stacks;
};

/*
 * Threads that made a call. An entry stays for the life of its thread, because writing it in place is cheaper than
 * inserting and deleting it. With the task it is found for a quarter of what a look-up in a hash costs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, 1 /* BPF_F_NO_PREALLOC */);
	__type(key, int);
	__type(value, struct thread);
} thread_data SEC(".maps");

/* The same by pid_tgid. Preallocated: programs run where allocation may fail. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u64);
	__type(value, struct thread);
} threads SEC(".maps");

/* pid_tgid of the current task, as the initial pid namespace has them. */
static __always_inline __u64 id_of(struct task_struct *task)
{
	if (HAS_HELPER(get_current_task_btf))
		return (__u64)task->tgid << 32 | (__u32)task->pid;
	return bpf_get_current_pid_tgid();
}

/* What is kept of the current thread; NULL: nothing yet. */
static __always_inline struct thread *thread_of(struct task_struct *task, __u64 id)
{
	if (task_data)
		return bpf_task_storage_get(&thread_data, task, NULL, 0);
	return bpf_map_lookup_elem(&threads, &id);
}

/* The same, made if there is nothing; NULL: no room. */
static __always_inline struct thread *make_thread(struct task_struct *task, __u64 id)
{
	struct thread fresh = {};

	if (task_data)
		return bpf_task_storage_get(&thread_data, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	bpf_map_update_elem(&threads, &id, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&threads, &id);
}

/* A thread of a number is gone. What is kept with the task goes with it. */
static __always_inline void forget_thread(__u64 id)
{
	if (!task_data)
		bpf_map_delete_elem(&threads, &id);
}

static __always_inline bool watched(__u32 tgid)
{
	if (scope_all)
		return tgid != except_tgid;
	return bpf_map_lookup_elem(&selected, &tgid) != NULL;
}

static __always_inline struct space *space_of(__u32 tgid)
{
	struct space *space = bpf_map_lookup_elem(&spaces, &tgid);

	if (!space) {
		struct space fresh = {};

		bpf_map_update_elem(&spaces, &tgid, &fresh, BPF_NOEXIST);
		space = bpf_map_lookup_elem(&spaces, &tgid);
	}
	return space;
}

/* A thread draws so many credits at once, so as not to look for its space at every record. */
#define DRAW 64

/* Pays `cost` from the bucket at `until`. Two CPUs at once may pay once: a budget, not a count. */
static __always_inline bool pay(__u64 *until, __u64 now, __u64 cost, __u64 credit)
{
	__u64 paid = *until;

	if (paid > now + credit)
		return false;
	*until = (paid > now ? paid : now) + cost;
	return true;
}

static __always_inline bool unlucky(__u64 probability)
{
	return probability && bpf_get_prandom_u32() < probability;
}

/* A lifecycle record is lost: first the space's epoch, then the total, so that a reader of the total finds it. */
static __always_inline void lose_record(__u32 tgid)
{
	struct space *space = space_of(tgid);

	if (space)
		__sync_fetch_and_add(&space->lost, 1);
	__sync_fetch_and_add(&lost.lifecycle, 1);
}

/*
 * Wakes the reader when the ring's fill passes `level`. A band and no exact crossing, because of other CPUs; and no
 * more than a band, because each wake-up costs an interrupt. Else the reader comes by itself, on its timer.
 */
static __always_inline __u64 wake_flag(void *ring, __u64 level)
{
	__u64 above = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) - level;

	return above < WAKE_BAND ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* The same for records of calls. One in eight looks: a band holds hundreds of them. */
static __always_inline __u64 record_wake_flag(const struct thread *thread)
{
	return thread && thread->records & 7 ? BPF_RB_NO_WAKEUP : wake_flag(&lifecycle, lifecycle_wake);
}

#endif
