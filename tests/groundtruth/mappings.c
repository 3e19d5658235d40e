// SPDX-License-Identifier: Apache-2.0
// Mappings that come, go, fail and fall to pieces.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "truth.h"

ANON_SITE(first)
ANON_SITE(second)
ANON_SITE(stable)
ANON_SITE(churning)
ANON_SITE(comb)

// The same addresses change hands ten thousand times between two call sites.
static void free_and_reuse(void)
{
	pid_t me = getpid();
	size_t len = 4 * MiB, hot = 3 * PAGE;
	char *at = site_first(NULL, len, 0);
	munmap(at, len);
	for (int round = 0; round < 10000; round++) {
		char *p = round % 2 ? site_second(at, len, MAP_FIXED_NOREPLACE)
				    : site_first(at, len, MAP_FIXED_NOREPLACE);
		touch(small_pages(p, len), hot);
		if (round < 9999 && munmap(p, len))
			die("munmap");
	}
	phase("the second came last");
	gone(me, "site_first");
	holds(me, "site_second", at, len, hot);
	stand();

	munmap(at, len);
	touch(small_pages(site_first(at, len, MAP_FIXED_NOREPLACE), len), 2 * MiB);
	phase("the first is back");
	holds(me, "site_first", at, len, 2 * MiB);
	stand();

	munmap(at, len);
	phase("nobody is left");
	stand();
}

// A piece out of the middle is unmapped, another is mapped over.
static void cut_and_cover(void)
{
	pid_t me = getpid();
	size_t len = 48 * MiB;
	char *a = small_pages(site_first(NULL, len, 0), len);
	touch(a, len);
	phase("whole");
	holds(me, "site_first", a, len, len);
	stand();

	if (munmap(a + 8 * MiB, 8 * MiB))
		die("munmap");
	phase("cut");
	holds_among(me, "site_first", a, len, 40 * MiB, 40 * MiB);
	stand();

	char *b = small_pages(site_second(a + 24 * MiB, 8 * MiB, MAP_FIXED), 8 * MiB);
	touch(b, MiB);
	phase("covered");
	holds(me, "site_first", a, 8 * MiB, 8 * MiB);
	holds(me, "site_first", a + 16 * MiB, 8 * MiB, 8 * MiB);
	holds(me, "site_first", a + 32 * MiB, 16 * MiB, 16 * MiB);
	holds(me, "site_second", b, 8 * MiB, MiB);
	stand();

	// Over the seam: the end of one owner, all of the other, and the hole.
	if (munmap(a + 4 * MiB, 36 * MiB))
		die("munmap");
	phase("cut across owners");
	holds(me, "site_first", a, 4 * MiB, 4 * MiB);
	holds(me, "site_first", a + 40 * MiB, 8 * MiB, 8 * MiB);
	gone(me, "site_second");
	stand();
}

SITE static void *site_refused(void *at, size_t len, int flags, int fd)
{
	void *p = mmap(at, len, PROT_READ | PROT_WRITE, flags, fd, 0);
	KEEP();
	return p;
}

SITE static void *site_grow_beyond(void *from, size_t len, size_t to, void *target)
{
	void *p = mremap(from, len, to, MREMAP_MAYMOVE | MREMAP_FIXED, target);
	KEEP();
	return p;
}

// What is left in a range after a call failed is what the kernel says: some failures destroy first.
static void holds_what_is_left(const char *site, char *at, size_t len)
{
	holds_among(getpid(), site, at, len, mapped(getpid(), at, len), present(getpid(), at, len));
}

static void failing_calls(void)
{
	pid_t me = getpid();
	size_t len = 16 * MiB, beyond = (size_t)1 << 44;
	char *a = small_pages(site_first(NULL, len, 0), len);
	touch(a, len);

	if (site_refused(a, len, MAP_PRIVATE | MAP_FIXED, 9999) != MAP_FAILED || errno != EBADF)
		die("a bad descriptor was accepted");
	if (site_refused(a, len, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1) != MAP_FAILED ||
	    errno != EEXIST)
		die("NOREPLACE replaced");
	if (site_refused(NULL, beyond, MAP_PRIVATE | MAP_ANONYMOUS, -1) != MAP_FAILED || errno != ENOMEM)
		die("16 TiB were promised");
	if (!munmap(a + 1, PAGE) || !munmap(a, 0))
		die("munmap accepted nonsense");
	phase("harmless failures");
	holds(me, "site_first", a, len, len);
	gone(me, "site_refused");
	stand();

	// Too much to promise, over a live mapping: Linux before 6.12 has unmapped it by then.
	char *low = aligned_up((char *)((size_t)1 << 40), PAGE);
	char *b = small_pages(site_second(low, len, MAP_FIXED_NOREPLACE), len);
	touch(b, len);
	if (site_refused(low, beyond, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1) != MAP_FAILED)
		die("16 TiB were promised");
	phase("mmap over a live mapping failed");
	holds(me, "site_first", a, len, len);
	holds_what_is_left("site_second", low, len);
	stand();

	// mremap clears its target before it finds that it can't grow.
	if (site_grow_beyond(a, len, beyond, low) != MAP_FAILED)
		die("mremap grew to 16 TiB");
	phase("mremap onto a live mapping failed");
	holds_what_is_left("site_first", a, len);
	holds_what_is_left("site_second", low, len);
	gone(me, "site_grow_beyond");
	stand();

	// madvise over a hole fails and does its work all the same.
	if (munmap(a + 4 * MiB, PAGE))
		die("munmap");
	if (!madvise(a, 8 * MiB, MADV_DONTNEED) || errno != ENOMEM)
		die("madvise didn't see the hole");
	phase("madvise over a hole failed");
	holds_among(me, "site_first", a, len, len - PAGE, 8 * MiB);
	holds_what_is_left("site_second", low, len);
	stand();
}

// Every second page is unmapped: thirty thousand pieces of one owner.
static void thirty_thousand_pieces(void)
{
	pid_t me = getpid();
	size_t pieces = 30000, len = 2 * pieces * PAGE;
	char *a = small_pages(site_comb(NULL, len, 0), len);
	touch_every(a, len, 4 * PAGE);
	for (size_t i = 0; i < pieces; i++)
		if (munmap(a + (2 * i + 1) * PAGE, PAGE))
			die("munmap");
	phase("a comb");
	holds_among(me, "site_comb", a, len, len / 2, len / 4);
	stand();

	char *b = small_pages(site_second(a + PAGE, PAGE, MAP_FIXED_NOREPLACE), PAGE);
	touch(b, PAGE);
	phase("one gap filled by another");
	holds(me, "site_comb", a, PAGE, PAGE);
	holds_among(me, "site_comb", a + 2 * PAGE, len - 2 * PAGE, len / 2 - PAGE, len / 4 - PAGE);
	holds(me, "site_second", b, PAGE, PAGE);
	stand();

	munmap(a, len);
	phase("no teeth");
	stand();
}

static atomic_bool stop_churning;

static void *churn_on(void *arg)
{
	(void)arg;
	for (size_t i = 0; !stop_churning; i++) {
		size_t len = (1 + i % 7) * MiB;
		munmap(site_churning(NULL, len, 0), len);
		usleep(200);
	}
	return NULL;
}

// A mapping that stays keeps its owner however much comes and goes beside it.
static void churn(void)
{
	pid_t me = getpid();
	size_t len = 24 * MiB;
	char *a = small_pages(site_stable(NULL, len, 0), len);
	touch(a, len / 2);
	for (size_t i = 0; i < 40000; i++) {
		size_t much = (1 + i % 16) * PAGE;
		char *p = site_churning(NULL, much, 0);
		touch(p, PAGE);
		munmap(p, much);
	}
	phase("after the storm");
	holds(me, "site_stable", a, len, len / 2);
	gone(me, "site_churning");
	stand();

	pthread_t thread;
	if (pthread_create(&thread, NULL, churn_on, NULL))
		die("pthread_create");
	phase("in a steady wind");
	holds(me, "site_stable", a, len, len / 2);
	bounds_will_do();
	comes_and_goes(me, "site_churning", 7 * MiB);
	stand_busy();

	stop_churning = true;
	pthread_join(thread, NULL);
	phase("calm");
	holds(me, "site_stable", a, len, len / 2);
	gone(me, "site_churning");
	stand();
}

SITE static char *site_downwards(char *at, size_t len)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_GROWSDOWN;
	char *p = mmap(at, len, PROT_READ | PROT_WRITE, flags, -1, 0);
	KEEP();
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

// The kernel makes a mapping longer where somebody faults right below it: no call tells.
static void grown_down(void)
{
	pid_t me = getpid();
	size_t room = 64 * MiB, len = 16 * PAGE, more = 4 * MiB;
	char *bottom = site_first(NULL, room, 0);
	munmap(bottom, room);
	char *a = small_pages(site_downwards(bottom + room - len, len), len);
	touch(a, len);
	phase("as it was mapped");
	holds(me, "site_downwards", a, len, len);
	stand();

	for (size_t at = PAGE; at <= more; at += PAGE)
		touch(a - at, PAGE);
	phase("as far as it was used");
	holds(me, "site_downwards", a - more, len + more, len + more);
	stand();

	munmap(a - more, more / 2);
	char *b = small_pages(site_second(a - more, PAGE, MAP_FIXED_NOREPLACE), PAGE);
	touch(b, PAGE);
	phase("cut, and another below");
	holds(me, "site_downwards", a - more / 2, len + more / 2, len + more / 2);
	holds(me, "site_second", b, PAGE, PAGE);
	stand();
}

const struct play MAPPINGS[] = {{"free_and_reuse", free_and_reuse},
				{"cut_and_cover", cut_and_cover},
				{"failing_calls", failing_calls},
				{"thirty_thousand_pieces", thirty_thousand_pieces},
				{"churn", churn},
				{"grown_down", grown_down},
				{0}};
