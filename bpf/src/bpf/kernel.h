/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types that the programs read, with offsets relocated at load (CO-RE), and the constants of the
 * user-space ABI that they decode.
 */
#ifndef MEMPROV_KERNEL_H
#define MEMPROV_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false, true };

#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY, BPF_NOEXIST };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};
/* Only to ask whether a helper exists; the loader relocates the question. */
enum bpf_func_id___ask {
	BPF_FUNC_get_current_task_btf___ask = 1,
	BPF_FUNC_task_pt_regs___ask,
};
#define HAS_HELPER(name) bpf_core_enum_value_exists(enum bpf_func_id___ask, BPF_FUNC_##name##___ask)

/*
 * The current task, and a field of it or of its address space. Since Linux 5.11 the verifier knows its type and lets it be
 * loaded from, before each field takes a call.
 */
#define CURRENT() \
	(HAS_HELPER(get_current_task_btf) ? bpf_get_current_task_btf() : (struct task_struct *)bpf_get_current_task())
#define READ_TASK(task, field) (HAS_HELPER(get_current_task_btf) ? (task)->field : BPF_CORE_READ(task, field))
#define READ_TASK_MM(task, field) \
	(HAS_HELPER(get_current_task_btf) ? (task)->mm->field : BPF_CORE_READ(task, mm, field))

/*
 * arch/x86/include/asm/ptrace.h. The layout is user-space ABI, so it is not relocated. Above the 16 bits of a selector
 * lies what FRED adds (Linux 6.9).
 */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip;
	__u16 cs, cs_more[3];
	unsigned long flags, sp, ss;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_info {
	__u32 status;
};

struct thread_struct {
	unsigned long fsbase;
};

struct mm_struct {
	unsigned long brk;
	unsigned long start_stack;
};

struct atomic_count {
	int counter;
};

struct signal_struct {
	struct atomic_count live;
};

struct task_struct {
	struct thread_info thread_info;
	void *stack;
	struct mm_struct *mm;
	int pid;
	int tgid;
	__u64 start_boottime;
	struct signal_struct *signal;
	int pagefault_disabled;
	struct thread_struct thread;
};

struct trace_event_raw_sys_exit {
	long id;
	long ret;
};

#pragma clang attribute pop

/* arch/x86/include/asm/thread_info.h: the current system call came by the i386 ABI. */
#define TS_COMPAT 2
/* arch/x86/include/asm/unistd.h: the bit that tells an x32 call from a native one. */
#define X32_BIT 0x40000000
/* arch/x86/include/asm/page_64_types.h, without KASAN. */
#define THREAD_SIZE 16384
/* arch/x86/include/asm/segment.h: the selector of 32-bit user code. */
#define USER32_CS 0x23

#define PAGE_SIZE 4096UL
#define MAX_ERRNO 4095UL

#define MAP_FIXED            0x10
#define MAP_FIXED_NOREPLACE  0x100000
#define PR_SET_VMA           0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#define IPC_SHMAT            21
#define IPC_SHMDT            22

#endif
