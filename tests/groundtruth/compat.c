// SPDX-License-Identifier: Apache-2.0
// System calls by int 0x80, as 32-bit programs make them and any program may: addresses below 4
// GiB. Numbers: arch/x86/entry/syscalls/syscall_32.tbl.
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "truth.h"

#if defined(__x86_64__)

enum { COMPAT_BRK = 45, COMPAT_MUNMAP = 91, COMPAT_MMAP2 = 192 };

// The stack pointer stays where unwinding expects it: %rbp, the sixth argument, is saved in a
// register.
static inline __attribute__((always_inline)) uint32_t compat(uint32_t nr, uint32_t a, uint32_t b, uint32_t c,
							     uint32_t d, uint32_t e)
{
	uint32_t ret;
	__asm__ volatile("mov %%rbp, %%r12\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "int $0x80\n\t"
			 "mov %%r12, %%rbp"
			 : "=a"(ret)
			 : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "r8", "r9", "r10", "r11", "r12", "memory", "cc");
	return ret;
}

SITE static char *site_compat(size_t len)
{
	uint32_t at = compat(COMPAT_MMAP2, 0, (uint32_t)len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     (uint32_t)-1);
	KEEP();
	if (at > (uint32_t)-4096)
		cannot("this kernel refuses int 0x80");
	return (char *)(uintptr_t)at;
}

SITE static void site_compat_break(char *to)
{
	uint32_t now = compat(COMPAT_BRK, (uint32_t)(uintptr_t)to, 0, 0, 0, 0);
	KEEP();
	must("the new break", (uintptr_t)to, now);
}

static void compat_calls(void)
{
	pid_t me = getpid();
	size_t len = 8 * MiB;
	char *a = small_pages(site_compat(len), len);
	touch(a, len);
	phase("mapped");
	holds(me, "site_compat", a, len, len);
	stand();

	if (compat(COMPAT_MUNMAP, (uint32_t)(uintptr_t)a + len / 2, len / 2, 0, 0, 0))
		die("munmap");
	phase("half unmapped");
	holds(me, "site_compat", a, len / 2, len / 2);
	stand();

	if (compat(COMPAT_MUNMAP, (uint32_t)(uintptr_t)a, len / 2, 0, 0, 0))
		die("munmap");
	phase("unmapped");
	stand();
}

// Only a program at fixed addresses has its break below 4 GiB.
static void compat_break(void)
{
	pid_t me = getpid();
	char *start = sbrk(0);
	if ((uintptr_t)start >> 31)
		cannot("the break lies too high: build with -no-pie");
	site_compat_break(start + 4 * MiB);
	touch(small_pages(start, 4 * MiB), 2 * MiB);
	phase("grown");
	holds(me, "site_compat_break", start, 4 * MiB, 2 * MiB);
	stand();

	site_compat_break(start + MiB);
	phase("cut");
	holds(me, "site_compat_break", start, MiB, MiB);
	stand();
}

#else

static void compat_calls(void)
{
	cannot("int 0x80 is x86's");
}

static void compat_break(void)
{
	cannot("int 0x80 is x86's");
}

#endif

const struct play COMPAT[] = {{"compat_calls", compat_calls}, {"compat_break", compat_break}, {0}};
