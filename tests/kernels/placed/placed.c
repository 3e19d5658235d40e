// SPDX-License-Identifier: Apache-2.0
// Memory of which every page lies on a known node, and a thread on the second one that is busy a third of its time.
// usage: placed [large|wrong]
// Says `holds`. With SIGUSR1 what lies on the first node moves to the second; then it says `moved`.
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define PAGE 4096UL
#define SIZE (8 * MIB)
// More than is counted page by page.
#define LARGE (128 * MIB)

static void must(long good)
{
	if (!good)
		__builtin_trap();
}

// Nodes as bits: 1 is the first, 2 the second.
static void bind_range(volatile char *memory, size_t length, int mode, unsigned long nodes, unsigned flags)
{
	must(syscall(SYS_mbind, memory, length, mode, &nodes, 8 * sizeof(nodes), flags) == 0);
}

static void touch_on(volatile char *memory, size_t length, unsigned long nodes)
{
	must(syscall(SYS_set_mempolicy, MPOL_BIND, &nodes, 8 * sizeof(nodes)) == 0);
	for (size_t at = 0; at < length; at += PAGE)
		memory[at] = 1;
	must(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0) == 0);
}

static inline __attribute__((always_inline)) volatile char *map(volatile char *at, size_t length)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
	char *memory = mmap((void *)at, length, PROT_READ | PROT_WRITE, flags, -1, 0);

	must(memory != MAP_FAILED && madvise(memory, length, MADV_NOHUGEPAGE) == 0);
	return memory;
}

#define MAPPED_BY(name) \
	__attribute__((noinline)) volatile char *name(volatile char *at, size_t length) \
	{ \
		volatile char *memory = map(at, length); \
		__asm__ volatile("" ::: "memory"); \
		return memory; \
	}
MAPPED_BY(on_the_first)
MAPPED_BY(on_the_second)
MAPPED_BY(on_both_in_turn)
MAPPED_BY(left_neighbour)
MAPPED_BY(right_neighbour)
MAPPED_BY(too_many_pages)

static volatile sig_atomic_t told;

static void tell(int signal)
{
	told = signal;
}

static void say(const char *text)
{
	must(write(1, text, strlen(text)) > 0);
}

int main(int argc, char **argv)
{
	cpu_set_t cpus;
	CPU_ZERO(&cpus);
	CPU_SET(1, &cpus);
	must(sched_setaffinity(0, sizeof(cpus), &cpus) == 0);
	must(signal(SIGUSR1, tell) != SIG_ERR);

	volatile char *first = NULL;
	if (argc > 1 && !strcmp(argv[1], "wrong")) {
		first = on_the_first(NULL, 4 * SIZE);
		bind_range(first, 4 * SIZE, MPOL_BIND, 1, 0);
		memset((void *)first, 1, 4 * SIZE);
	} else if (argc > 1) {
		// Three pages of four, in no order that has a period.
		volatile char *memory = too_many_pages(NULL, LARGE);
		unsigned random = 1;
		for (size_t at = 0; at < LARGE; at += PAGE) {
			random = random * 1664525 + 1013904223;
			touch_on(memory + at, PAGE, random >> 30 ? 2 : 1);
		}
	} else {
		first = on_the_first(NULL, SIZE);
		bind_range(first, SIZE, MPOL_BIND, 1, 0);
		memset((void *)first, 1, SIZE);
		volatile char *second = on_the_second(NULL, SIZE);
		bind_range(second, SIZE, MPOL_BIND, 2, 0);
		memset((void *)second, 1, SIZE);
		volatile char *both = on_both_in_turn(NULL, SIZE);
		bind_range(both, SIZE, MPOL_INTERLEAVE, 3, 0);
		memset((void *)both, 1, SIZE);
		// Two that are one mapping to the kernel: alike, side by side, and touched under a policy of the thread.
		volatile char *room = map(NULL, 4 * MIB);
		volatile char *left = left_neighbour(room + MIB, MIB), *right = right_neighbour(room + 2 * MIB, MIB);
		munmap((void *)room, MIB);
		munmap((void *)(room + 3 * MIB), MIB);
		touch_on(left, MIB, 1);
		touch_on(right, MIB, 2);
	}
	say("holds\n");
	for (volatile unsigned long work = 0;; work++) {
		if (work % 100000 == 0)
			nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
		if (told && first) {
			told = 0;
			bind_range(first, argc > 1 ? 4 * SIZE : SIZE, MPOL_BIND, 2, MPOL_MF_MOVE | MPOL_MF_STRICT);
			say("moved\n");
		}
	}
}
