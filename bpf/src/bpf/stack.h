/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copying the top of the current thread's user stack. */
#ifndef MEMPROV_STACK_H
#define MEMPROV_STACK_H

/*
 * How many bytes to copy from sp. A read that runs off the end of a stack fails as a whole, so the end is looked for:
 * frames of the first thread lie below start_stack, those of other threads below their TCB (%fs, which is in the
 * same mapping). `*known`: the copy will end there.
 */
static __always_inline __u32 stack_bytes(__u64 sp, bool *known)
{
	struct task_struct *task = CURRENT();
	__u64 top = READ_TASK_MM(task, start_stack);
	__u64 tcb = READ_TASK(task, thread.fsbase);

	/* In 64 bits, so that an end below sp is far away. */
	*known = true;
	if (top - sp < STACK_BYTES)
		return top - sp;
	if (tcb - sp < STACK_BYTES)
		return tcb - sp;
	*known = false;
	return STACK_BYTES;
}

/*
 * The registers that a thread entered the kernel with, as the kernel saved them. Before Linux 5.15 there is no helper to
 * ask (and no FRED that would move them): they are copied. NULL: they could not be.
 */
static __always_inline const struct pt_regs *saved_regs(struct pt_regs *copy)
{
	const void *at;

	if (HAS_HELPER(task_pt_regs))
		return (const struct pt_regs *)bpf_task_pt_regs(CURRENT());
	at = READ_TASK(CURRENT(), stack) + THREAD_SIZE - sizeof(struct pt_regs);
	return bpf_probe_read_kernel(copy, sizeof(*copy), at) ? NULL : copy;
}

static __always_inline void fill_side(struct side_head *side, __u64 when, const struct pt_regs *regs)
{
	__u64 id = bpf_get_current_pid_tgid();

	side->when = when;
	side->tgid = id >> 32;
	side->tid = id;
	side->ip = regs->ip;
	side->sp = regs->sp;
	side->bp = regs->bp;
	side->error = 0;
	side->address = 0;
	side->threshold = 0;
	side->flags = regs->cs == USER32_CS ? SIDE_COMPAT : 0;
	side->bytes = 0;
}

/*
 * A side record with room for 2, 4 or 8 KiB of stack: a reservation's size must be a constant, and a ring of 16 MiB
 * holds four times as many stacks of 2 KiB.
 */
#define SIDE_TYPE(size)                \
	struct side_##size {           \
		struct side_head head; \
		__u8 stack[size];      \
	};
SIDE_TYPE(2048)
SIDE_TYPE(4096)
SIDE_TYPE(8192)

/*
 * Copies `want` bytes from sp, more than a page; where they cannot be read at once, the pages that can be, up to the
 * first that cannot. Returns how many bytes.
 */
static __always_inline __u32 copy_pages(struct side_8192 *side, __u64 sp, __u32 want)
{
	__u32 done = PAGE_SIZE - (sp & (PAGE_SIZE - 1));

	if (want > STACK_BYTES)
		want = STACK_BYTES;
	if (!bpf_probe_read_user(side->stack, want, (void *)sp))
		return want;
	/* Two or three pages hold them, and one of the three cannot be read. */
	if (bpf_probe_read_user(side->stack, done, (void *)sp))
		return 0;
	if (!bpf_probe_read_user(side->stack + done, PAGE_SIZE, (void *)(sp + done)))
		done += PAGE_SIZE;
	return done < want ? done : want;
}

#endif
