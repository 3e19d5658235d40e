// SPDX-License-Identifier: Apache-2.0
// The break, the allocator, thread stacks, named memory.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "truth.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA           0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

ANON_SITE(labelled)

SITE static char *site_break(intptr_t by)
{
	char *was = sbrk(by);
	KEEP();
	if (was == (char *)-1)
		die("sbrk");
	return was;
}

SITE static char *site_other_break(intptr_t by)
{
	char *was = sbrk(by);
	KEEP();
	if (was == (char *)-1)
		die("sbrk");
	return was;
}

static void break_up_and_down(void)
{
	pid_t me = getpid();
	size_t len = 12 * MiB;
	must("the break starts at a page", 0, (uintptr_t)sbrk(0) % PAGE);
	char *a = small_pages(site_break((intptr_t)len), len);
	touch(a, len / 2);
	phase("grown");
	holds(me, "site_break", a, len, len / 2);
	stand();

	site_break(-(intptr_t)(8 * MiB));
	char *b = small_pages(site_other_break((intptr_t)(2 * MiB)), 2 * MiB);
	touch(b, MiB);
	phase("cut, and grown by another");
	holds(me, "site_break", a, 4 * MiB, 4 * MiB);
	holds(me, "site_other_break", b, 2 * MiB, MiB);
	stand();

	// Not by whole pages: the kernel rounds the break up.
	site_break(-(intptr_t)(3 * MiB + 100));
	phase("cut within a page");
	holds(me, "site_break", a, 3 * MiB, 3 * MiB);
	gone(me, "site_other_break");
	stand();
}

SITE static char *site_large_block(size_t len)
{
	char *p = malloc(len);
	KEEP();
	if (!p)
		die("malloc");
	return p;
}

SITE static char *site_regrown_block(char *p, size_t len)
{
	p = realloc(p, len);
	KEEP();
	if (!p)
		die("realloc");
	return p;
}

// glibc maps a large block by itself, one page more than asked, header first: it is its caller's,
// not the arena's.
static void large_blocks(void)
{
	pid_t me = getpid();
	size_t len = 40 * MiB;
	char *p = site_large_block(len);
	char *a = (char *)((uintptr_t)p / PAGE * PAGE);
	small_pages(a, len + PAGE);
	touch(p, len);
	phase("allocated");
	holds(me, "site_large_block", a, len + PAGE, present(me, a, len + PAGE));
	must("all that was written is there", len, present(me, a, len));
	stand();

	p = site_regrown_block(p, 2 * len);
	a = (char *)((uintptr_t)p / PAGE * PAGE);
	phase("grown by realloc");
	holds(me, "site_large_block", a, 2 * len + PAGE, present(me, a, 2 * len + PAGE));
	gone(me, "site_regrown_block");
	stand();

	free(p);
	phase("freed");
	stand();
}

SITE static char *site_small_block(void)
{
	char *p = malloc(100);
	KEEP();
	if (!p)
		die("malloc");
	*p = 1;
	return p;
}

static void small_blocks(void)
{
	pid_t me = getpid();
	for (int i = 0; i < 200000; i++)
		site_small_block();
	char *heap;
	size_t len;
	must("glibc's arena is the heap", true, vma_of(me, "[heap]", &heap, &len));
	phase("an arena of small blocks");
	kind_within(me, "arena", "site_small_block", present(me, heap, len), present(me, heap, len));
	stand();
}

static sem_t standing, leave;

static void *stand_on_a_stack(void *arg)
{
	volatile char much[256 << 10];
	touch((void *)much, sizeof much);
	*(void **)arg = (void *)much;
	sem_post(&standing);
	sem_wait(&leave);
	return NULL;
}

SITE static void site_thread(pthread_t *thread, void **where)
{
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 4 * MiB);
	int failed = pthread_create(thread, &attr, stand_on_a_stack, where);
	KEEP();
	if (failed)
		die("pthread_create");
}

static void thread_stacks(void)
{
	enum { THREADS = 8 };
	pid_t me = getpid();
	pthread_t threads[THREADS];
	void *where[THREADS];
	sem_init(&standing, 0, 0);
	sem_init(&leave, 0, 0);
	for (int i = 0; i < THREADS; i++) {
		site_thread(&threads[i], &where[i]);
		sem_wait(&standing);
	}
	// glibc keeps a stack, its guard and the thread's own block in one mapping below 4 MiB + a
	// page of guard.
	size_t threads_hold = 0;
	for (int i = 0; i < THREADS; i++) {
		char *around = (char *)((uintptr_t)where[i] / PAGE * PAGE);
		threads_hold += present(me, around, 264 << 10 & ~(PAGE - 1));
	}
	char *own;
	size_t own_len;
	must("a main stack", true, vma_of(me, "[stack]", &own, &own_len));
	phase("eight stacks in use");
	kind_within(me, "stack", "site_thread", threads_hold,
		    threads_hold + THREADS * 4 * PAGE + present(me, own, own_len));
	stand();

	for (int i = 0; i < THREADS; i++)
		sem_post(&leave);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void named_memory(void)
{
	pid_t me = getpid();
	size_t len = 8 * MiB;
	char *a = small_pages(site_labelled(NULL, len, 0), len);
	touch(a, len / 2);
	if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, a, len, "truth-label")) {
		if (errno == EINVAL)
			cannot("this kernel doesn't name anonymous memory (CONFIG_ANON_VMA_NAME)");
		die("PR_SET_VMA_ANON_NAME");
	}
	phase("named");
	holds(me, "site_labelled", a, len, len / 2);
	also_named("truth-label");
	stand();

	munmap(a + len / 4, len / 4);
	phase("cut");
	holds(me, "site_labelled", a, len / 4, len / 4);
	holds(me, "site_labelled", a + len / 2, len / 2, 0);
	stand();
}

const struct play HEAPS[] = {{"break_up_and_down", break_up_and_down}, {"large_blocks", large_blocks},
			     {"small_blocks", small_blocks},           {"thread_stacks", thread_stacks},
			     {"named_memory", named_memory},           {0}};
