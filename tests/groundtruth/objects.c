// SPDX-License-Identifier: Apache-2.0
// Memory with a name in the kernel: files, memfds, System V segments, shared anonymous objects.
#define _GNU_SOURCE
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "truth.h"

static const size_t LEN = 8 * MiB;

SITE static char *site_attach(int id)
{
	char *p = shmat(id, NULL, 0);
	KEEP();
	if (p == (char *)-1)
		die("shmat");
	return p;
}

static uintptr_t attach_and_detach(int step, void *arg)
{
	static char *at;
	if (step == 1) {
		at = site_attach(*(int *)arg);
		touch(at, LEN / 2);
	}
	if (step == 2)
		shmdt(at);
	return (uintptr_t)at;
}

static void sysv_segment(void)
{
	pid_t me = getpid();
	struct child c;
	int id = shmget(IPC_PRIVATE, LEN, 0600);
	if (id < 0)
		die("shmget");
	child_start(&c, attach_and_detach, &id);
	char *at = site_attach(id);
	// Marked for removal while attached: it ends with its last user, whatever becomes of this
	// program.
	if (shmctl(id, IPC_RMID, NULL))
		die("IPC_RMID");
	touch(at, LEN / 4);
	phase("attached by one");
	holds(me, "site_attach", at, LEN, LEN / 4);
	also_named("SYSV");
	stand();

	child_step(&c);
	phase("attached by two");
	must("the child's part", LEN / 2, present(c.pid, (char *)c.told, LEN));
	shared("site_attach", "SYSV", LEN / 2, 2);
	joint(me, "shmem", LEN / 4);
	joint(c.pid, "shmem", LEN / 2);
	stand();

	child_step(&c);
	phase("detached by one");
	holds(me, "site_attach", at, LEN, LEN / 4);
	also_named("SYSV");
	stand();

	shmdt(at);
	phase("detached by both");
	stand();
	child_stop(&c);
}

ANON_SITE(under)

SITE static char *site_over(int id, char *at)
{
	char *p = shmat(id, at, SHM_REMAP);
	KEEP();
	if (p == (char *)-1)
		die("SHM_REMAP");
	return p;
}

// A segment that takes the place of what is there: as much as it is long, which the call doesn't tell.
static void attach_over(void)
{
	pid_t me = getpid();
	int id = shmget(IPC_PRIVATE, LEN, 0600);
	if (id < 0)
		die("shmget");
	char *a = small_pages(site_under(NULL, 4 * LEN, 0), 4 * LEN);
	touch(a, 4 * LEN);
	char *s = site_over(id, a + LEN);
	if (shmctl(id, IPC_RMID, NULL))
		die("IPC_RMID");
	touch(s, LEN / 2);
	phase("attached over a quarter");
	holds(me, "site_under", a, LEN, LEN);
	holds(me, "site_under", a + 2 * LEN, 2 * LEN, 2 * LEN);
	holds(me, "site_over", s, LEN, LEN / 2);
	stand();

	munmap(s + MiB, MiB);
	munmap(a + 3 * LEN, MiB);
	phase("cut");
	holds(me, "site_under", a, LEN, LEN);
	holds_among(me, "site_under", a + 2 * LEN, 2 * LEN, 2 * LEN - MiB, 2 * LEN - MiB);
	holds_among(me, "site_over", s, LEN, LEN - MiB, LEN / 2 - MiB);
	stand();

	shmdt(s);
	phase("detached");
	holds(me, "site_under", a, LEN, LEN);
	holds_among(me, "site_under", a + 2 * LEN, 2 * LEN, 2 * LEN - MiB, 2 * LEN - MiB);
	gone(me, "site_over");
	stand();

	phase("two at once");
	holds(me, "site_under", a, LEN, LEN);
	holds_among(me, "site_under", a + 2 * LEN, 2 * LEN, 2 * LEN - MiB, 2 * LEN - MiB);
	for (int i = 1; i <= 2; i++) {
		id = shmget(IPC_PRIVATE, LEN, 0600);
		if (id < 0)
			die("shmget");
		s = site_attach(id);
		if (shmctl(id, IPC_RMID, NULL))
			die("IPC_RMID");
		touch(s, i * MiB);
		holds(me, "site_attach", s, LEN, i * MiB);
	}
	stand();
}

SITE static char *site_object_file(int fd, int flags)
{
	char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags, fd, 0);
	KEEP();
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static uintptr_t map_half(int step, void *arg)
{
	static char *at;
	if (step == 1) {
		at = site_object_file(*(int *)arg, MAP_SHARED);
		touch(at + LEN / 4, LEN / 2);
	}
	return (uintptr_t)at;
}

static void memfd(void)
{
	pid_t me = getpid();
	struct child c;
	int fd = memfd_create("truth-memfd", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)LEN))
		die("memfd_create");
	child_start(&c, map_half, &fd);
	char *at = site_object_file(fd, MAP_SHARED);
	touch(at, LEN / 2);
	phase("mapped by one");
	holds(me, "site_object_file", at, LEN, LEN / 2);
	also_named("truth-memfd");
	stand();

	child_step(&c);
	phase("overlapping in two");
	must("the child's part", LEN / 2, present(c.pid, (char *)c.told, LEN));
	shared("site_object_file", "truth-memfd", LEN - LEN / 4, 2);
	joint(me, "shmem", LEN / 2);
	joint(c.pid, "shmem", LEN / 2);
	stand();

	child_stop(&c);
	phase("one again");
	holds(me, "site_object_file", at, LEN, LEN / 2);
	also_named("truth-memfd");
	stand();
}

static int file_on_disk(const char *name)
{
	struct statfs fs;
	int fd = file_of(LEN, name);
	if (fstatfs(fd, &fs))
		die("fstatfs");
	if (fs.f_type == TMPFS_MAGIC)
		cannot("TRUTH_DIR is on tmpfs, its files are no file pages");
	return fd;
}

// A page of a private file mapping is the file's until written, then anonymous; its owner stays.
static void private_file(void)
{
	pid_t me = getpid();
	int fd = file_on_disk("private-pages.bin");
	char *at = site_object_file(fd, MAP_PRIVATE);
	look(at, LEN, PAGE);
	phase("read");
	holds(me, "site_object_file", at, LEN, LEN);
	also_named("private-pages.bin");
	stand();

	touch(at, LEN / 4);
	phase("a quarter written");
	holds(me, "site_object_file", at, LEN, LEN);
	also_named("private-pages.bin");
	stand();

	madvise(at, LEN / 2, MADV_DONTNEED);
	phase("half dropped");
	holds(me, "site_object_file", at, LEN, LEN / 2);
	also_named("private-pages.bin");
	stand();
}

static uintptr_t look_at_all(int step, void *arg)
{
	static char *at;
	if (step == 1) {
		at = site_object_file(*(int *)arg, MAP_SHARED);
		look(at, LEN, PAGE);
	}
	return (uintptr_t)at;
}

static void shared_file(void)
{
	pid_t me = getpid();
	struct child c;
	int fd = file_on_disk("shared-pages.bin");
	child_start(&c, look_at_all, &fd);
	char *at = site_object_file(fd, MAP_SHARED);
	look(at, LEN, PAGE);
	phase("mapped by one");
	holds(me, "site_object_file", at, LEN, LEN);
	also_named("shared-pages.bin");
	stand();

	child_step(&c);
	must("the child's part", LEN, present(c.pid, (char *)c.told, LEN));
	phase("mapped by two");
	shared("site_object_file", "shared-pages.bin", LEN, 2);
	joint(me, "file", LEN);
	joint(c.pid, "file", LEN);
	stand();

	munmap(at, LEN);
	phase("only the other");
	gone(me, "site_object_file");
	also_named("shared-pages.bin");
	holds(c.pid, "site_object_file", (char *)c.told, LEN, LEN);
	also_named("shared-pages.bin");
	stand();
	child_stop(&c);
}

SITE static char *site_pool(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	KEEP();
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static size_t pool_len;

static uintptr_t use_the_pool(int step, void *at)
{
	(void)step;
	touch(at, pool_len);
	return 0;
}

// Buffers shared by a whole server: there once, however many map them. TRUTH_POOL_MIB sizes them.
static void pool(void)
{
	enum { WORKERS = 17 };
	const char *asked = getenv("TRUTH_POOL_MIB");
	struct child workers[WORKERS];
	pool_len = (asked ? (size_t)atoi(asked) : 64) * MiB;
	char *at = site_pool(pool_len);
	for (int i = 0; i < WORKERS; i++)
		child_start(&workers[i], use_the_pool, at);
	touch(at, pool_len);
	phase("eighteen share a pool");
	must("all is there", pool_len, present(workers[WORKERS - 1].pid, at, pool_len));
	shared("site_pool", NULL, pool_len, WORKERS + 1);
	stand();

	for (int i = 0; i < WORKERS; i++)
		child_stop(&workers[i]);
	phase("one has it alone");
	holds(getpid(), "site_pool", at, pool_len, pool_len);
	stand();
}

const struct play OBJECTS[] = {{"sysv_segment", sysv_segment},
			       {"attach_over", attach_over},
			       {"memfd", memfd},
			       {"private_file", private_file},
			       {"shared_file", shared_file},
			       {"pool", pool},
			       {0}};
