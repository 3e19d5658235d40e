// SPDX-License-Identifier: Apache-2.0
// mremap: bytes that move belong to whoever mapped them.
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "truth.h"

ANON_SITE(cargo)
ANON_SITE(bystander)

SITE static char *site_moving(void *from, size_t len, size_t to, int flags, void *target)
{
	// By number: the wrapper leaves the fifth argument out where it thinks that it isn't read.
	long p = syscall(SYS_mremap, from, len, to, flags, target);
	KEEP();
	if (p == -1)
		die("mremap");
	return (char *)p;
}

SITE static char *site_object(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	KEEP();
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void remap_over_another(void)
{
	pid_t me = getpid();
	size_t len = 16 * MiB;
	char *field = site_bystander(NULL, 4 * len, 0);
	munmap(field, 4 * len);
	char *high = small_pages(site_cargo(field + 3 * len, len, MAP_FIXED_NOREPLACE), len);
	char *low = small_pages(site_bystander(field, len, MAP_FIXED_NOREPLACE), len);
	touch(high, len);
	touch(low, len / 2);
	phase("apart");
	holds(me, "site_cargo", high, len, len);
	holds(me, "site_bystander", low, len, len / 2);
	stand();

	// Downward, onto the second half of the other and beyond its end.
	char *moved = site_moving(high, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, low + len / 2);
	phase("moved down over the other");
	holds(me, "site_cargo", moved, len, len);
	holds(me, "site_bystander", low, len / 2, len / 2);
	gone(me, "site_moving");
	stand();
}

static void remap_and_leave(void)
{
	pid_t me = getpid();
	size_t len = 16 * MiB;
	char *a = small_pages(site_cargo(NULL, len, 0), len);
	touch(a, len);
	char *b = site_moving(a, len, len, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	phase("the shell stays");
	holds(me, "site_cargo", a, len, 0);
	holds(me, "site_cargo", b, len, len);
	stand();

	touch(a, len / 4);
	munmap(b, len / 2);
	phase("the shell is used again");
	holds(me, "site_cargo", a, len, len / 4);
	holds(me, "site_cargo", b + len / 2, len / 2, len / 2);
	stand();
}

// old_size 0 maps a shared object a second time.
static void remap_a_copy(void)
{
	pid_t me = getpid();
	size_t len = 8 * MiB;
	char *a = site_object(len);
	touch(a, len / 2);
	char *b = site_moving(a, 0, len, MREMAP_MAYMOVE, NULL);
	touch(b, len / 4);
	phase("twice in one space");
	holds(me, "site_object", a, len, len / 2);
	holds(me, "site_object", b, len, len / 4);
	stand();

	munmap(a, len);
	phase("only the copy");
	holds(me, "site_object", b, len, len / 4);
	stand();
}

static void grow_and_shrink(void)
{
	pid_t me = getpid();
	size_t len = 16 * MiB;
	char *field = site_bystander(NULL, 4 * len, 0);
	munmap(field, 4 * len);
	char *a = small_pages(site_cargo(field, len, MAP_FIXED_NOREPLACE), len);
	touch(a, len);
	a = site_moving(a, len, 2 * len, 0, NULL);
	touch(a + len, MiB);
	phase("grown in place");
	holds(me, "site_cargo", a, 2 * len, len + MiB);
	gone(me, "site_moving");
	stand();

	char *wall = site_bystander(a + 2 * len, PAGE, MAP_FIXED_NOREPLACE);
	char *b = site_moving(a, 2 * len, 3 * len, MREMAP_MAYMOVE, NULL);
	must("it had to move", true, a != b);
	touch(b + 2 * len, len);
	phase("grown past a neighbour");
	holds(me, "site_cargo", b, 3 * len, 2 * len + MiB);
	holds(me, "site_bystander", wall, PAGE, 0);
	stand();

	b = site_moving(b, 3 * len, len / 2, 0, NULL);
	phase("shrunk");
	holds(me, "site_cargo", b, len / 2, len / 2);
	holds(me, "site_bystander", wall, PAGE, 0);
	stand();
}

const struct play MOVES[] = {{"remap_over_another", remap_over_another},
			     {"remap_and_leave", remap_and_leave},
			     {"remap_a_copy", remap_a_copy},
			     {"grow_and_shrink", grow_and_shrink},
			     {0}};
