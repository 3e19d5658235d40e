// SPDX-License-Identifier: Apache-2.0
// Memory of which a known part is used: 16 MiB over and over, and 112 MiB never again. Each is a mapping of its own function,
// and with an argument a file named after it: who doesn't see calls knows one from the other, too.
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define PAGE 4096UL
#define HOT (16 * MIB)
#define COLD (56 * MIB)
// qemu keeps translations, and sets no accessed bit again while it has one: to unmap more than 33 pages makes it drop all.
#define FLUSH (64 * PAGE)

static int named;

static inline __attribute__((always_inline)) volatile char *map(size_t length, const char *name)
{
	int file = named ? memfd_create(name, 0) : -1;
	int flags = named ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

	if (named && ftruncate(file, (off_t)length))
		__builtin_trap();
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, file, 0);

	if (memory == MAP_FAILED || madvise(memory, length, MADV_NOHUGEPAGE))
		__builtin_trap();
	memset(memory, 1, length);
	return memory;
}

__attribute__((noinline)) volatile char *cold_memory(void)
{
	volatile char *memory = map(COLD, __func__);
	__asm__ volatile("" ::: "memory");
	return memory;
}

__attribute__((noinline)) volatile char *hot_memory(void)
{
	volatile char *memory = map(HOT, __func__);
	__asm__ volatile("" ::: "memory");
	return memory;
}

int main(int argc, char **argv)
{
	(void)argv;
	named = argc > 1;
	// Who watches `hot` finds it with all that it maps, however slow the guest is.
	prctl(PR_SET_NAME, "cold");
	// Cold memory lies on both sides: no end of a range tells where the hot one is.
	cold_memory();
	volatile char *hot = hot_memory();
	cold_memory();
	volatile char *flush = map(FLUSH, "flush");
	prctl(PR_SET_NAME, "hot");

	for (;;) {
		for (size_t at = 0; at < HOT; at += PAGE)
			hot[at]++;
		for (size_t at = 0; at < FLUSH; at += PAGE)
			flush[at] = 1;
		madvise((void *)flush, FLUSH, MADV_DONTNEED);
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
}
