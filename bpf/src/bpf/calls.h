/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* System calls that change an address space: which they are, and what is written of each. One body for every hook. */
#ifndef MEMPROV_CALLS_H
#define MEMPROV_CALLS_H

enum call {
	CALL_NONE,
	CALL_MMAP,
	/* i386: the offset is in pages. */
	CALL_MMAP2,
	/* i386: the arguments are in memory. */
	CALL_OLD_MMAP,
	CALL_MUNMAP,
	CALL_MREMAP,
	CALL_BRK,
	CALL_SHMAT,
	CALL_SHMDT,
	/* i386: SysV calls behind one number. */
	CALL_IPC,
	CALL_PRCTL,
	/* Any of the clone family. Its end is the hook of fork. */
	CALL_CLONE,
};

/* arch/x86/entry/syscalls/syscall_64.tbl; x32 uses the same numbers for these. */
static __always_inline enum call native_call(long id)
{
	switch (id & ~X32_BIT) {
	case 9:
		return CALL_MMAP;
	case 11:
		return CALL_MUNMAP;
	case 12:
		return CALL_BRK;
	case 25:
		return CALL_MREMAP;
	case 30:
		return CALL_SHMAT;
	case 56:
	case 57:
	case 58:
	case 435:
		return CALL_CLONE;
	case 67:
		return CALL_SHMDT;
	case 157:
		return CALL_PRCTL;
	}
	return CALL_NONE;
}

/* arch/x86/entry/syscalls/syscall_32.tbl */
static __always_inline enum call compat_call(long id)
{
	switch (id) {
	case 2:
	case 120:
	case 190:
	case 435:
		return CALL_CLONE;
	case 45:
		return CALL_BRK;
	case 90:
		return CALL_OLD_MMAP;
	case 91:
		return CALL_MUNMAP;
	case 117:
		return CALL_IPC;
	case 163:
		return CALL_MREMAP;
	case 172:
		return CALL_PRCTL;
	case 192:
		return CALL_MMAP2;
	case 397:
		return CALL_SHMAT;
	case 398:
		return CALL_SHMDT;
	}
	return CALL_NONE;
}

static __always_inline void lose_half(__u32 tgid)
{
	__sync_fetch_and_add(&lost.halves, 1);
	lose_record(tgid);
}

/*
 * A hook is skipped where a thread is preempted in it and another one comes to it on that CPU (recursion misses; since
 * programs run preemptible, in kernels that preempt). One half of a call then shows that the other was missed, and
 * whose it was. The loader reads the kernel's count of misses for the case that both were.
 */
static __always_inline int enter(struct task_struct *task, enum call call)
{
	__u64 id = id_of(task);
	struct thread *thread;

	if (!watched(id >> 32))
		return 0;
	thread = thread_of(task, id);
	if (!thread)
		thread = make_thread(task, id);
	/* The end of the call will find nothing either, and count it. */
	if (!thread) {
		__sync_fetch_and_add(&lost.threads_full, 1);
		return 0;
	}
	if (call == CALL_CLONE) {
		thread->cloning = bpf_ktime_get_ns();
		return 0;
	}
	/* The end of its last call was missed. */
	if (thread->begin)
		lose_half(id >> 32);
	if (call == CALL_BRK)
		thread->brk = READ_TASK_MM(task, brk);
	thread->begin = bpf_ktime_get_ns();
	return 0;
}

/* Writes one stack; the three sizes differ in nothing but the reservation. */
#define WRITE_STACK(size, read)                                                            \
	({                                                                                 \
		struct side_##size *side = bpf_ringbuf_reserve(&stacks, sizeof(*side), 0); \
		__u32 bytes = 0;                                                           \
		if (side) {                                                                \
			bytes = read;                                                      \
			if (bytes) {                                                       \
				fill_side(&side->head, begin, regs);                       \
				side->head.kind = SIDE_STACK;                              \
				side->head.bytes = bytes;                                  \
				if (known || bytes < want)                                 \
					side->head.flags |= SIDE_COMPLETE;                 \
				bpf_ringbuf_submit(side, wake_flag(&stacks, stacks_wake)); \
			} else {                                                           \
				bpf_ringbuf_discard(side, BPF_RB_NO_WAKEUP);               \
			}                                                                  \
		}                                                                          \
		bytes != 0;                                                                \
	})

static __always_inline bool write_stack(__u64 begin, const struct pt_regs *regs)
{
	bool known;
	__u32 want = stack_bytes(regs->sp, &known);

	if (want <= 2048)
		return WRITE_STACK(2048, bpf_probe_read_user(side->stack, want, (void *)regs->sp) ? 0 : want);
	if (want <= 4096)
		return WRITE_STACK(4096, bpf_probe_read_user(side->stack, want, (void *)regs->sp) ? 0 : want);
	return WRITE_STACK(8192, copy_pages(side, regs->sp, want));
}

/*
 * Whether a thread may write one more stack, out of its own credit or its space's. A call's beginning is near enough
 * to now, and saves reading the clock.
 */
static __always_inline bool may_take_stack(struct thread *thread, __u32 tgid, __u64 begin)
{
	struct space *space;

	if (!thread->stacks) {
		space = space_of(tgid);
		if (!space || !pay(&space->stacks_until, begin, DRAW * stack_cost, stack_credit))
			return false;
		thread->stacks = DRAW;
	}
	thread->stacks--;
	return !unlucky(inject_stacks);
}

/* The same for a record. `thread`: NULL for an event that is no call. */
static __always_inline bool may_write(struct thread *thread, __u32 tgid, __u64 begin)
{
	__u32 draw = thread ? DRAW : 1;
	struct space *space;

	if (!thread || !thread->records) {
		space = space_of(tgid);
		if (!space || !pay(&space->records_until, begin, draw * record_cost, record_credit))
			return false;
		if (thread)
			thread->records = DRAW;
	}
	if (thread)
		thread->records--;
	return !unlucky(inject_lifecycle);
}

/* Takes the stack that belongs to a record, and returns the flag that says so. */
static __always_inline __u32 take_stack(struct thread *thread, const struct record_head *head,
					const struct pt_regs *regs)
{
	if (may_take_stack(thread, head->tgid, head->begin) && write_stack(head->begin, regs))
		return RECORD_STACK;
	__sync_fetch_and_add(&lost.stacks, 1);
	return RECORD_STACK_LOST;
}

/* Writes a record of a call or a process; `regs`: take the stack of these registers first. */
static __always_inline void write_record(struct thread *thread, struct call_record *made, const struct pt_regs *regs)
{
	struct call_record *record = NULL;
	bool may = may_write(thread, made->head.tgid, made->head.begin);

	if (may && thread && regs)
		made->head.flags |= take_stack(thread, &made->head, regs);
	if (may)
		record = bpf_ringbuf_reserve(&lifecycle, sizeof(*record), 0);
	if (!record) {
		lose_record(made->head.tgid);
		return;
	}
	*record = *made;
	/* Stamped in the ring: what ended before an instant was reserved before it, so a reader can tell. */
	record->head.end = bpf_ktime_get_ns();
	bpf_ringbuf_submit(record, record_wake_flag(thread));
}

static __always_inline void write_name(struct thread *thread, struct record_head *head, __u64 address, __u64 length,
				       __u64 name)
{
	struct name_record *record = NULL;
	long read = 0;

	if (may_write(thread, head->tgid, head->begin))
		record = bpf_ringbuf_reserve(&lifecycle, sizeof(*record), 0);
	if (!record) {
		lose_record(head->tgid);
		return;
	}
	record->head = *head;
	record->address = address;
	record->length = length;
	__builtin_memset(record->name, 0, NAME_BYTES);
	if (!name) {
		record->head.flags |= RECORD_NAME_NONE;
	} else {
		read = bpf_probe_read_user_str(record->name, NAME_BYTES, (void *)name);
		/* A full buffer may hold a whole name or a part of one. */
		if (read < 0 || read == NAME_BYTES)
			record->head.flags |= RECORD_NAME_CUT;
	}
	record->head.end = bpf_ktime_get_ns();
	bpf_ringbuf_submit(record, record_wake_flag(thread));
}

/*
 * The end of a call that began with enter(). `regs`: the thread's user registers, NULL where they cannot be read: but for
 * ax, they still hold what the call was made with.
 */
static __always_inline int leave(struct task_struct *task, enum call call, bool compat, const struct pt_regs *regs,
				 __u64 ret)
{
	__u64 id = id_of(task), a, b, c, d, e, f;
	struct thread *thread = thread_of(task, id);
	bool failed = ret >= -MAX_ERRNO, stack = false;
	struct call_record r = {};
	__u32 word[6];

	if (!thread || !thread->begin) {
		/*
		 * Its beginning was missed, or was before the hooks. Not so where it failed: what seccomp denies has an
		 * end only.
		 */
		if (!failed && watched(id >> 32))
			lose_half(id >> 32);
		return 0;
	}
	r.head.begin = thread->begin;
	thread->begin = 0;
	r.head.tgid = id >> 32;
	r.head.tid = id;
	r.head.flags = failed ? RECORD_FAILED : 0;
	if (!regs) {
		lose_record(r.head.tgid);
		return 0;
	}
	if (compat) {
		a = (__u32)regs->bx, b = (__u32)regs->cx, c = (__u32)regs->dx;
		d = (__u32)regs->si, e = (__u32)regs->di, f = (__u32)regs->bp;
	} else {
		a = regs->di, b = regs->si, c = regs->dx, d = regs->r10, e = regs->r8, f = regs->r9;
	}

	if (call == CALL_OLD_MMAP) {
		if (bpf_probe_read_user(word, sizeof(word), (void *)a)) {
			if (!failed)
				lose_record(r.head.tgid);
			return 0;
		}
		a = word[0], b = word[1], c = word[2], d = word[3], f = word[5];
		call = CALL_MMAP;
	} else if (call == CALL_MMAP2) {
		f *= PAGE_SIZE;
		call = CALL_MMAP;
	} else if (call == CALL_IPC) {
		if (failed)
			return 0;
		if ((a & 0xffff) == IPC_SHMAT) {
			if (bpf_probe_read_user(word, sizeof(word[0]), (void *)d)) {
				lose_record(r.head.tgid);
				return 0;
			}
			ret = word[0];
			call = CALL_SHMAT;
		} else if ((a & 0xffff) == IPC_SHMDT) {
			a = e;
			call = CALL_SHMDT;
		}
	}

	switch (call) {
	case CALL_MMAP:
		/* Only a mapping that replaces something can fail and still change something. */
		if (failed && (d & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != MAP_FIXED)
			return 0;
		r.head.kind = RECORD_MMAP;
		r.a = failed ? a : ret;
		r.b = b;
		r.c = f;
		r.prot = c;
		r.bits = d;
		stack = !failed;
		break;
	case CALL_MUNMAP:
		r.head.kind = RECORD_MUNMAP;
		r.a = a;
		r.b = b;
		break;
	case CALL_MREMAP:
		r.head.kind = RECORD_MREMAP;
		r.a = a;
		r.b = b;
		r.c = failed ? e : ret;
		r.d = c;
		r.bits = d;
		stack = !failed && (r.c != r.a || r.d > r.b);
		break;
	case CALL_BRK:
		if (failed || ret == thread->brk)
			return 0;
		r.head.kind = RECORD_BRK;
		r.a = thread->brk;
		r.b = ret;
		stack = r.b > r.a;
		break;
	case CALL_SHMAT:
		if (failed)
			return 0;
		r.head.kind = RECORD_SHMAT;
		r.a = ret;
		r.bits = c;
		stack = true;
		break;
	case CALL_SHMDT:
		if (failed)
			return 0;
		r.head.kind = RECORD_SHMDT;
		r.a = a;
		break;
	case CALL_PRCTL:
		if (failed || a != PR_SET_VMA || b != PR_SET_VMA_ANON_NAME)
			return 0;
		r.head.kind = RECORD_NAME;
		write_name(thread, &r.head, c, d, e);
		return 0;
	default:
		return 0;
	}
	write_record(thread, &r, stack ? regs : NULL);
	return 0;
}

#endif
