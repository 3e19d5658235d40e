/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs write into the two rings. Fixed-width integers and enums of four bytes, no implicit padding;
 * the loader takes these types from the skeleton and asserts the same sizes.
 *
 * A stack and its record name each other by (tid, begin): a thread enters one system call at one instant.
 */
#ifndef MEMPROV_ABI_H
#define MEMPROV_ABI_H

/* Most bytes of stack that are copied. */
#define STACK_BYTES 8192
/* Bytes of a name with its NUL that fit in a record; longer ones are marked RECORD_NAME_CUT. */
#define NAME_BYTES 40

enum record_kind {
	RECORD_MMAP = 1,
	RECORD_MUNMAP,
	RECORD_MREMAP,
	RECORD_BRK,
	RECORD_SHMAT,
	RECORD_SHMDT,
	RECORD_NAME,
	RECORD_FORK,
	RECORD_EXEC,
	RECORD_EXIT,
};

/* Bits of record_head.flags. */
enum record_flag {
	/* The call returned an error. */
	RECORD_FAILED = 1,
	/* A stack went before this record. */
	RECORD_STACK = 2,
	/* A stack should have, and was lost. */
	RECORD_STACK_LOST = 4,
	/* RECORD_FORK: the child shares the parent's address space. */
	RECORD_SHARES = 8,
	/* RECORD_NAME: the name did not fit or could not be read. */
	RECORD_NAME_CUT = 16,
	/* RECORD_NAME: the name was cleared (a null pointer). */
	RECORD_NAME_NONE = 32,
};

/* CLOCK_MONOTONIC nanoseconds; tgid and tid as the initial pid namespace has them. */
struct record_head {
	__u64 begin;
	__u64 end;
	__u32 tgid;
	__u32 tid;
	enum record_kind kind;
	__u32 flags;
};

/*
 * The call as it was made, not rounded. What the fields hold, by kind:
 *
 *          a          b        c            d          prot   bits
 * MMAP     address    length   offset (B)   -          prot   flags
 * MUNMAP   address    length   -            -          -      -
 * MREMAP   old        old_len  new          new_len    -      flags
 * BRK      old end    new end  -            -          -      -
 * SHMAT    address    -        -            -          -      flags
 * SHMDT    address    -        -            -          -      -
 * FORK     child tgid child's start_boottime (ns)
 *
 * An address that the kernel chose is the one it returned; in a failed call it is the one that was asked for.
 */
struct call_record {
	struct record_head head;
	__u64 a;
	__u64 b;
	__u64 c;
	__u64 d;
	__u32 prot;
	__u32 bits;
};

/* RECORD_NAME: the range as it was given, and the name, NUL-terminated. */
struct name_record {
	struct record_head head;
	__u64 address;
	__u64 length;
	char name[NAME_BYTES];
};

enum side_kind {
	SIDE_STACK = 1,
	SIDE_FAULT,
};

/* Bits of side_head.flags. */
enum side_flag {
	/* The thread was in 32-bit code. */
	SIDE_COMPAT = 1,
	/* The copy ends where the stack does. */
	SIDE_COMPLETE = 2,
};

/* A stack or a fault in the second ring; `bytes` of user stack follow it, from sp upward. */
struct side_head {
	/* SIDE_STACK: record_head.begin of its record. SIDE_FAULT: when the fault was taken. */
	__u64 when;
	__u32 tgid;
	__u32 tid;
	enum side_kind kind;
	__u32 flags;
	__u32 bytes;
	/* SIDE_FAULT: the processor's error code. */
	__u32 error;
	/* SIDE_FAULT: the address, and the bound that the page's hash was below. */
	__u64 address;
	__u64 threshold;
	__u64 ip;
	__u64 sp;
	__u64 bp;
};

_Static_assert(sizeof(struct record_head) == 32, "record_head is wire format");
_Static_assert(sizeof(struct call_record) == 72, "call_record is wire format");
_Static_assert(sizeof(struct name_record) == 88, "name_record is wire format");
_Static_assert(sizeof(struct side_head) == 72, "side_head is wire format");

/* What was lost since load, by stream. Each is bumped after the space that it happened in. */
struct loss_totals {
	__u64 lifecycle;
	__u64 stacks;
	__u64 faults;
	/* Calls that found no room in `threads`. */
	__u64 threads_full;
	/* Part of `lifecycle`: calls with one end that was not seen. */
	__u64 halves;
};

/* What is kept of one thread group. */
struct space {
	/* Token buckets, each as the instant until which its past use is paid for. */
	__u64 records_until;
	__u64 stacks_until;
	__u64 faults_until;
	/* Lifecycle records lost so far: its loss epoch. */
	__u64 lost;
};

#endif
