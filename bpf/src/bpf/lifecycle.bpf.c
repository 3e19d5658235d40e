// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The hooks. Each is a thin twin of others: the loader switches on one mechanism for calls (fentry, tp_btf or tp), the
 * process hooks, and the fault hooks if they are asked for.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "abi.h"
#include "state.h"
#include "stack.h"
#include "calls.h"
#include "faults.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Put the types of the rings into the skeleton. */
struct call_record abi_call_record = {};
struct name_record abi_name_record = {};
struct side_head abi_side_head = {};
enum record_flag abi_record_flag = 0;
enum side_flag abi_side_flag = 0;

/*
 * 1. fentry and fexit. The i386 functions may be absent; the loader asks BTF. The functions' argument is the saved
 * registers, but Linux 5.10 does not know its type everywhere; ctx[1] is what they return.
 */

#define FENTRY(function, call, compat)                                            \
	SEC("fentry/" #function)                                                  \
	int BPF_PROG(enter_##function)                                            \
	{                                                                         \
		return enter(CURRENT(), call);                                    \
	}                                                                         \
	SEC("fexit/" #function)                                                   \
	int leave_##function(unsigned long long *ctx)                             \
	{                                                                         \
		struct pt_regs copy;                                              \
                                                                                  \
		return leave(CURRENT(), call, compat, saved_regs(&copy), ctx[1]); \
	}

/* All of the clone family, by every ABI. */
SEC("fentry/kernel_clone")
int BPF_PROG(enter_kernel_clone)
{
	return enter(CURRENT(), CALL_CLONE);
}

FENTRY(__x64_sys_mmap, CALL_MMAP, false)
FENTRY(__x64_sys_munmap, CALL_MUNMAP, false)
FENTRY(__x64_sys_mremap, CALL_MREMAP, false)
FENTRY(__x64_sys_brk, CALL_BRK, false)
FENTRY(__x64_sys_shmat, CALL_SHMAT, false)
FENTRY(__x64_sys_shmdt, CALL_SHMDT, false)
FENTRY(__x64_sys_prctl, CALL_PRCTL, false)
FENTRY(__ia32_sys_mmap_pgoff, CALL_MMAP2, true)
FENTRY(__ia32_compat_sys_ia32_mmap, CALL_OLD_MMAP, true)
FENTRY(__ia32_sys_munmap, CALL_MUNMAP, true)
FENTRY(__ia32_sys_mremap, CALL_MREMAP, true)
FENTRY(__ia32_sys_brk, CALL_BRK, true)
FENTRY(__ia32_compat_sys_shmat, CALL_SHMAT, true)
FENTRY(__ia32_sys_shmdt, CALL_SHMDT, true)
FENTRY(__ia32_compat_sys_ipc, CALL_IPC, true)
FENTRY(__ia32_sys_prctl, CALL_PRCTL, true)

/* 2. BTF tracepoints of every system call. */

/* Which call this is by the two ABIs; most are none by either. */
struct numbered {
	enum call native, compat;
};

static __always_inline struct numbered numbered(long id)
{
	return (struct numbered){native_call(id), compat_call(id)};
}

static __always_inline bool in_compat_call(struct task_struct *task)
{
	return READ_TASK(task, thread_info.status) & TS_COMPAT;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(enter_any, struct pt_regs *regs, long id)
{
	struct numbered is = numbered(id);
	struct task_struct *task;
	enum call call;

	if (is.native == CALL_NONE && is.compat == CALL_NONE)
		return 0;
	task = CURRENT();
	call = in_compat_call(task) ? is.compat : is.native;
	return call == CALL_NONE ? 0 : enter(task, call);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(leave_any, struct pt_regs *regs, long ret)
{
	struct numbered is = numbered(regs->orig_ax);
	struct task_struct *task;
	enum call call;
	bool compat;

	if (is.native == CALL_NONE && is.compat == CALL_NONE)
		return 0;
	task = CURRENT();
	compat = in_compat_call(task);
	call = compat ? is.compat : is.native;
	return call == CALL_NONE || call == CALL_CLONE ? 0 : leave(task, call, compat, regs, ret);
}

/* Counts the host's calls for a moment, alone, so that the loader can choose between 2 and 3. */

__u64 counted_calls = 0;
__u64 counted_watched = 0;

SEC("tp_btf/sys_enter")
int BPF_PROG(count_any, struct pt_regs *regs, long id)
{
	__sync_fetch_and_add(&counted_calls, 1);
	if (native_call(id) != CALL_NONE)
		__sync_fetch_and_add(&counted_watched, 1);
	return 0;
}

/* 3. Perf tracepoints of the named calls. They do not fire for i386 calls. */

#define TP_ENTER(name, call)                   \
	SEC("tp/syscalls/sys_enter_" #name)    \
	int tp_enter_##name(void *ctx)         \
	{                                      \
		return enter(CURRENT(), call); \
	}
#define TP(name, call)                                                             \
	TP_ENTER(name, call)                                                       \
	SEC("tp/syscalls/sys_exit_" #name)                                         \
	int tp_leave_##name(struct trace_event_raw_sys_exit *ctx)                  \
	{                                                                          \
		struct pt_regs copy;                                               \
                                                                                   \
		return leave(CURRENT(), call, false, saved_regs(&copy), ctx->ret); \
	}

TP(mmap, CALL_MMAP)
TP(munmap, CALL_MUNMAP)
TP(mremap, CALL_MREMAP)
TP(brk, CALL_BRK)
TP(shmat, CALL_SHMAT)
TP(shmdt, CALL_SHMDT)
TP(prctl, CALL_PRCTL)
TP_ENTER(clone, CALL_CLONE)
TP_ENTER(clone3, CALL_CLONE)
TP_ENTER(fork, CALL_CLONE)
TP_ENTER(vfork, CALL_CLONE)

/* Processes. */

static __always_inline void write_process(enum record_kind kind, __u32 tgid, __u32 tid, struct call_record *r)
{
	if (!r->head.begin)
		r->head.begin = bpf_ktime_get_ns();
	r->head.kind = kind;
	r->head.tgid = tgid;
	r->head.tid = tid;
	write_record(NULL, r, NULL);
}

/*
 * In the parent, before the child can run. The address space was copied since the call began, which is unknown where its
 * entry was not seen.
 */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	__u32 tgid = parent->tgid, born = child->tgid;
	struct call_record r = {};
	struct thread *thread;
	__u8 one = 1;

	if (!child->mm || !watched(tgid))
		return 0;
	thread = thread_of(parent, id_of(parent));
	if (thread) {
		r.head.begin = thread->cloning;
		thread->cloning = 0;
	}
	if (born == tgid)
		return 0;
	/* A child that finds no room goes unseen: the parent's epoch says that something did. */
	if (!scope_all && bpf_map_update_elem(&selected, &born, &one, BPF_ANY))
		lose_record(tgid);
	r.a = born;
	r.b = child->start_boottime;
	r.head.flags = child->mm == parent->mm ? RECORD_SHARES : 0;
	write_process(RECORD_FORK, tgid, parent->pid, &r);
	return 0;
}

/* The thread that called exec has the leader's pid by now; what it had before is free. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(execed, struct task_struct *task, int old_pid)
{
	__u32 tgid = task->tgid;
	__u64 old = (__u64)tgid << 32 | (__u32)old_pid;
	struct call_record r = {};

	if (!watched(tgid))
		return 0;
	if (old_pid != task->pid)
		forget_thread(old);
	write_process(RECORD_EXEC, tgid, task->pid, &r);
	return 0;
}

/* Its arguments by hand: the second, group_dead, may be read only where it exists. */
SEC("tp_btf/sched_process_exit")
int exited(unsigned long long *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	__u32 tgid = task->tgid;
	__u64 id = (__u64)tgid << 32 | (__u32)task->pid;
	struct call_record r = {};

	if (!watched(tgid))
		return 0;
	forget_thread(id);
	if (exit_tells_group) {
		if (!(bool)ctx[1])
			return 0;
	} else if (task->signal->live.counter > 0) {
		return 0;
	}
	bpf_map_delete_elem(&touch, &tgid);
	/* Two last threads may both see none alive; of a selected group only one can deselect it. */
	if (!scope_all && bpf_map_delete_elem(&selected, &tgid))
		return 0;
	write_process(RECORD_EXIT, tgid, task->pid, &r);
	return 0;
}

/* First touch. */

SEC("tp_btf/page_fault_user")
int BPF_PROG(user_fault, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	return fault(address, error);
}

/* The kernel touches user memory for a system call; the stack is that of the caller. */
SEC("tp_btf/page_fault_kernel")
int BPF_PROG(kernel_fault, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	return fault(address, error);
}
