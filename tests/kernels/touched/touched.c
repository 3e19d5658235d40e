// SPDX-License-Identifier: Apache-2.0
// Waits for SIGUSR1, touches 1,200 pages of the first node and 800 of the second, each once, reads 100 that nobody ever wrote,
// says `touched`, and keeps all of it until it is killed.
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL
#define FIRST 1200
#define SECOND 800
#define READ 100

static void must(long good)
{
	if (!good)
		__builtin_trap();
}

static inline __attribute__((always_inline)) volatile char *map(size_t pages)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);

	must(memory != MAP_FAILED && madvise(memory, pages * PAGE, MADV_NOHUGEPAGE) == 0);
	return memory;
}

static void bind_range(volatile char *memory, size_t pages, unsigned long node)
{
	must(syscall(SYS_mbind, memory, pages * PAGE, MPOL_BIND, &node, 8 * sizeof(node), 0) == 0);
}

__attribute__((noinline)) volatile char *touched_memory(void)
{
	volatile char *memory = map(FIRST + SECOND);
	__asm__ volatile("" ::: "memory");
	return memory;
}

__attribute__((noinline)) volatile char *read_memory(void)
{
	volatile char *memory = map(READ);
	__asm__ volatile("" ::: "memory");
	return memory;
}

int main(void)
{
	sigset_t go;
	int signal;
	sigemptyset(&go);
	sigaddset(&go, SIGUSR1);
	must(sigprocmask(SIG_BLOCK, &go, NULL) == 0);
	must(sigwait(&go, &signal) == 0);

	volatile char *memory = touched_memory(), *zero = read_memory();
	bind_range(memory, FIRST, 1);
	bind_range(memory + FIRST * PAGE, SECOND, 2);
	for (size_t page = 0; page < FIRST + SECOND; page++)
		memory[page * PAGE] = 1;
	for (size_t page = 0; page < READ; page++)
		(void)zero[page * PAGE];
	must(write(1, "touched\n", strlen("touched\n")) > 0);
	for (;;)
		pause();
}
