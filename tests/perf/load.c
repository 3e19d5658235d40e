/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cost of memprov is measured with. One program, one load a subcommand; numbers go to standard output, one
 * `name value` a line. Times are CPU time of the thread, so that other work on the machine costs caches only.
 *
 *   sleepers N         N processes of their own (exec) that sleep; ends with its input
 *   busy F M V S       for S seconds: F forks/s, M mmap+munmap pairs/s, and one process of V mappings
 *   calls              nanoseconds of a pair of mmap and munmap, and of a getppid: bursts with pauses, the median
 *   faults R           nanoseconds of a fault: R rounds over 64 MiB of 4 KiB pages, dropped after each
 *   touch SEED PAGES S functions touch shares of PAGES pages, known from the seed, over S seconds; ends with its input
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t clock_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void rest(uint64_t until)
{
	struct timespec at = {until / 1000000000, until % 1000000000};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
		;
}

static void say(const char *line)
{
	puts(line);
	fflush(stdout);
}

static void wait_for_input(void)
{
	char byte;

	while (read(0, &byte, 1) > 0)
		;
}

/* A child that ends with its parent. */
static pid_t child(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		fail("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
	}
	return pid;
}

static int sleepers(int count, const char *self)
{
	for (int i = 0; i < count; i++) {
		if (child() == 0) {
			execl(self, self, "sleeper", NULL);
			fail("exec");
		}
	}
	sleep(1);
	say("ready");
	wait_for_input();
	return 0;
}

/* A heap of a megabyte, as a small service has it. */
static _Noreturn void sleeper(void)
{
	memset(malloc(1 << 20), 1, 1 << 20);
	for (;;)
		pause();
}

static void *pages(size_t count)
{
	void *at = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		fail("mmap");
	return at;
}

static void pair(void)
{
	if (munmap(pages(1), PAGE))
		fail("munmap");
}

static void one_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		fail("fork");
}

/* Does `work` so many times a second, in steps of 10 ms; says how often it was. */
static void at_rate(const char *name, long rate, long seconds, void (*work)(void))
{
	uint64_t begin = clock_of(CLOCK_MONOTONIC);
	long done = 0;

	for (long step = 1; step <= seconds * 100; step++) {
		for (; done < rate * step / 100; done++)
			work();
		rest(begin + step * 10000000);
	}
	printf("%s %.0f\n", name, done * 1e9 / (clock_of(CLOCK_MONOTONIC) - begin));
	fflush(stdout);
}

static void many_mappings(long count)
{
	char *at = pages(count);

	/* Neighbours differ, so that they are not merged. */
	for (long i = 0; i < count; i += 2)
		if (mprotect(at + i * PAGE, PAGE, PROT_READ))
			fail("mprotect");
	for (long i = 1; i < count; i += 2)
		at[i * PAGE] = 1;
}

static int busy(long forks, long maps, long mappings, long seconds)
{
	pid_t one, two, three = child();

	if (three == 0) {
		many_mappings(mappings);
		say("ready");
		for (;;)
			pause();
	}
	one = child();
	if (one == 0) {
		at_rate("forks_per_second", forks, seconds, one_fork);
		_exit(0);
	}
	two = child();
	if (two == 0) {
		at_rate("maps_per_second", maps, seconds, pair);
		_exit(0);
	}
	waitpid(one, NULL, 0);
	waitpid(two, NULL, 0);
	wait_for_input();
	kill(three, SIGKILL);
	return 0;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void ppid(void)
{
	syscall(SYS_getppid);
}

/* Short bursts, so that neither a ring nor a budget of the agent is used up, and what it does is what it always does. */
static void median_of(const char *name, int bursts, int calls, void (*call)(void))
{
	double times[bursts];

	for (int i = 0; i < bursts; i++) {
		uint64_t begin = clock_of(CLOCK_THREAD_CPUTIME_ID);

		for (int j = 0; j < calls; j++)
			call();
		times[i] = (double)(clock_of(CLOCK_THREAD_CPUTIME_ID) - begin) / calls;
		rest(clock_of(CLOCK_MONOTONIC) + 25000000);
	}
	qsort(times, bursts, sizeof(*times), ascending);
	printf("%s %.1f\n", name, times[bursts / 2]);
}

static int calls(void)
{
	/* A stack of some depth, as a real program has it. */
	char *deep = alloca(6000);

	memset(deep, 1, 6000);
	median_of("pair_ns", 40, 300, pair);
	median_of("getppid_ns", 40, 10000, ppid);
	return deep[17] != 1;
}

static int faults(int rounds)
{
	size_t count = 16384;
	char *at = pages(count);
	uint64_t spent = 0;

	madvise(at, count * PAGE, MADV_NOHUGEPAGE);
	for (int i = 0; i < rounds; i++) {
		uint64_t begin = clock_of(CLOCK_THREAD_CPUTIME_ID);

		for (size_t page = 0; page < count; page++)
			at[page * PAGE] = 1;
		spent += clock_of(CLOCK_THREAD_CPUTIME_ID) - begin;
		madvise(at, count * PAGE, MADV_DONTNEED);
	}
	printf("fault_ns %.2f\n", (double)spent / rounds / count);
	return 0;
}

#define TOUCHER(name)                                          \
	static __attribute__((noinline)) void name(char *page) \
	{                                                      \
		*(volatile char *)page = #name[0];             \
		__asm__ volatile("" ::: "memory");             \
	}
TOUCHER(touch_half)
TOUCHER(touch_quarter)
TOUCHER(touch_eighth)
TOUCHER(touch_small_1)
TOUCHER(touch_small_2)
TOUCHER(touch_small_3)
TOUCHER(touch_small_4)
TOUCHER(touch_small_5)
TOUCHER(touch_small_6)
TOUCHER(touch_small_7)
TOUCHER(touch_small_8)

static const struct toucher {
	const char *name;
	void (*touch)(char *page);
	int weight;
} touchers[] = {
	{"touch_half", touch_half, 64},      {"touch_quarter", touch_quarter, 32}, {"touch_eighth", touch_eighth, 16},
	{"touch_small_1", touch_small_1, 4}, {"touch_small_2", touch_small_2, 3},  {"touch_small_3", touch_small_3, 2},
	{"touch_small_4", touch_small_4, 2}, {"touch_small_5", touch_small_5, 2},  {"touch_small_6", touch_small_6, 1},
	{"touch_small_7", touch_small_7, 1}, {"touch_small_8", touch_small_8, 1},
};
#define TOUCHERS (sizeof(touchers) / sizeof(*touchers))

/* Prints what each function has touched: all faults recorded. */
static int touch(unsigned seed, long count, long seconds)
{
	char *at = pages(count);
	long touched[TOUCHERS] = {0};
	uint64_t begin;

	madvise(at, count * PAGE, MADV_NOHUGEPAGE);
	/* The agent has this mapping by now. */
	say("ready");
	if (getchar() != 'g')
		return 1;
	srandom(seed);
	begin = clock_of(CLOCK_MONOTONIC);
	for (long page = 0; page < count;) {
		/* Runs of pages by one function, as buffers are filled. */
		long run = 1 + random() % 32, lot = random() % 128;
		size_t who = 0;

		while (lot >= touchers[who].weight)
			lot -= touchers[who++].weight;
		for (; run-- > 0 && page < count; page++, touched[who]++)
			touchers[who].touch(at + page * PAGE);
		if (page % 64 < 32)
			rest(begin + (uint64_t)(seconds * 1e9 * page / count));
	}
	for (size_t i = 0; i < TOUCHERS; i++)
		printf("%s %ld\n", touchers[i].name, touched[i]);
	say("done");
	wait_for_input();
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	long n[4] = {0};

	for (int i = 2; i < argc && i < 6; i++)
		n[i - 2] = atol(argv[i]);
	if (!strcmp(what, "sleepers"))
		return sleepers(n[0], argv[0]);
	if (!strcmp(what, "sleeper"))
		sleeper();
	if (!strcmp(what, "busy"))
		return busy(n[0], n[1], n[2], n[3]);
	if (!strcmp(what, "calls"))
		return calls();
	if (!strcmp(what, "faults"))
		return faults(n[0]);
	if (!strcmp(what, "touch"))
		return touch(n[0], n[1], n[2]);
	fprintf(stderr, "%s: which load?\n", argv[0]);
	return 2;
}
