// SPDX-License-Identifier: Apache-2.0
// Pages that aren't what they seem: huge, collapsed, zero, swapped out.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "truth.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

ANON_SITE(huge)
ANON_SITE(zero)
ANON_SITE(cold)

// One byte touched, two MiB resident; then parts of huge pages go.
static void huge_pages(void)
{
	pid_t me = getpid();
	size_t len = 32 * MiB, span = len + HUGE;
	char *field = small_pages(site_huge(NULL, span, 0), span);
	char *a = aligned_up(field, HUGE);
	if (madvise(a, len, MADV_HUGEPAGE))
		cannot("this kernel has no huge pages");
	touch_every(a, len / 2, HUGE);
	if (present(me, a, len) != len / 2)
		cannot("the kernel gave small pages where huge ones were asked for");
	phase("one touch each");
	holds(me, "site_huge", field, span, len / 2);
	stand();

	munmap(a + HUGE + MiB, MiB / 2);
	phase("cut out of a huge page");
	holds_among(me, "site_huge", field, span, span - MiB / 2, len / 2 - MiB / 2);
	stand();

	madvise(a + 2 * HUGE, MiB, MADV_DONTNEED);
	phase("half a huge page dropped");
	holds_among(me, "site_huge", field, span, span - MiB / 2, len / 2 - MiB / 2 - MiB);
	stand();
}

// A collapse makes memory resident that nobody touched, without a fault.
static void collapse(void)
{
	pid_t me = getpid();
	size_t len = 16 * MiB, span = len + HUGE;
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
		die("PR_SET_THP_DISABLE");
	char *field = site_huge(NULL, span, 0);
	char *a = aligned_up(field, HUGE);
	touch(a, len / 2);
	touch_every(a + len / 2, len / 2, 8 * PAGE);
	phase("small pages");
	holds(me, "site_huge", field, span, len / 2 + len / 16);
	stand();

	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	if (madvise(a, len / 2, MADV_COLLAPSE)) {
		if (errno == EINVAL)
			cannot("MADV_COLLAPSE needs Linux 6.1 with huge pages");
		if (errno == EAGAIN || errno == ENOMEM || errno == EBUSY)
			cannot("the kernel found no huge page to collapse into");
		die("MADV_COLLAPSE");
	}
	phase("the full half collapsed");
	holds(me, "site_huge", field, span, len / 2 + len / 16);
	stand();

	if (madvise(a + len / 2, len / 2, MADV_COLLAPSE))
		cannot("the kernel found no huge page to collapse into");
	phase("the sparse half collapsed");
	holds(me, "site_huge", field, span, len);
	stand();
}

// Reading maps the zero page, small or huge: present, and not resident.
static void zero_pages(void)
{
	pid_t me = getpid();
	size_t len = 16 * MiB, span = len + 3 * HUGE;
	char *field = site_zero(NULL, span, 0);
	char *a = aligned_up(field + PAGE, HUGE);
	// Fences keep the kernel from merging the middle with a neighbour.
	if (mprotect(field, (size_t)(a - field), PROT_NONE) ||
	    mprotect(a + len, (size_t)(field + span - a) - len, PROT_NONE))
		die("mprotect");
	small_pages(a, len / 2);
	madvise(a + len / 2, len / 2, MADV_HUGEPAGE);
	look(a, len, PAGE);
	phase("only read");
	holds(me, "site_zero", field, (size_t)(a - field), 0);
	holds_counted(me, "site_zero", a, len / 2, 0);
	holds_counted(me, "site_zero", a + len / 2, len / 2, 0);
	holds(me, "site_zero", a + len, (size_t)(field + span - a) - len, 0);
	stand();

	touch(a, MiB);
	phase("a part written");
	holds(me, "site_zero", field, (size_t)(a - field), 0);
	holds_counted(me, "site_zero", a, len / 2, MiB);
	holds_counted(me, "site_zero", a + len / 2, len / 2, 0);
	holds(me, "site_zero", a + len, (size_t)(field + span - a) - len, 0);
	stand();
}

static bool swap_is_on(void)
{
	char text[512];
	int fd = open("/proc/swaps", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	close(fd);
	text[n < 0 ? 0 : n] = 0;
	char *first = strchr(text, '\n');
	return first && first[1];
}

static void paged_out(void)
{
	pid_t me = getpid();
	size_t len = 16 * MiB;
	if (!swap_is_on())
		cannot("this host has no swap");
	char *a = small_pages(site_cold(NULL, len, 0), len);
	for (size_t i = 0; i < len; i += sizeof(size_t)) // nothing that a compressing swap could call a repeated word
		*(volatile size_t *)(a + i) = i * 2654435761u;
	if (madvise(a, len / 2, MADV_PAGEOUT))
		cannot("this kernel has no MADV_PAGEOUT");
	if (!in_swap(me, a, len))
		cannot("the kernel kept every page in memory");
	phase("paged out");
	must("in memory or in swap", len, present(me, a, len) + in_swap(me, a, len));
	holds(me, "site_cold", a, len, present(me, a, len));
	swapped(in_swap(me, a, len));
	stand();

	look(a, len, PAGE);
	phase("paged in");
	must("left in swap", 0, in_swap(me, a, len));
	holds(me, "site_cold", a, len, len);
	stand();
}

const struct play PAGES[] = {
	{"huge_pages", huge_pages}, {"collapse", collapse}, {"zero_pages", zero_pages}, {"paged_out", paged_out}, {0}};
