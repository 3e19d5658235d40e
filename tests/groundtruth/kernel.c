// SPDX-License-Identifier: Apache-2.0
// What the kernel says of a process' memory: pagemap and smaps
// (Documentation/admin-guide/mm/pagemap.rst, filesystems/proc.rst).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "truth.h"

#define PRESENT   (1ull << 63)
#define SWAPPED   (1ull << 62)
#define EXCLUSIVE (1ull << 56)

// One's own files go by the thread: a group whose leader has exited has none under its own number.
static int open_proc(pid_t pid, const char *file)
{
	char path[64];
	if (pid == getpid())
		snprintf(path, sizeof path, "/proc/thread-self/%s", file);
	else
		snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

static size_t pages_with(pid_t pid, const void *at, size_t len, uint64_t mask, uint64_t value)
{
	static uint64_t words[512];
	int fd = open_proc(pid, "pagemap");
	size_t n = 0, left = len / PAGE, page = (uintptr_t)at / PAGE;
	while (left) {
		size_t ask = left < 512 ? left : 512;
		ssize_t got = pread(fd, words, ask * 8, (off_t)(page * 8));
		if (got <= 0 || got % 8)
			die("pread pagemap");
		for (size_t i = 0; i < (size_t)got / 8; i++)
			n += (words[i] & mask) == value;
		left -= (size_t)got / 8;
		page += (size_t)got / 8;
	}
	close(fd);
	return n * PAGE;
}

size_t present(pid_t pid, const void *at, size_t len)
{
	return pages_with(pid, at, len, PRESENT, PRESENT);
}

size_t in_swap(pid_t pid, const void *at, size_t len)
{
	return pages_with(pid, at, len, SWAPPED, SWAPPED);
}

size_t common(pid_t pid, const void *at, size_t len)
{
	return pages_with(pid, at, len, PRESENT | EXCLUSIVE, PRESENT);
}

// Calls `each` for every line of a file of /proc, without allocating.
static void lines(pid_t pid, const char *file, void (*each)(char *line, void *with), void *with)
{
	static char text[1 << 16];
	int fd = open_proc(pid, file);
	size_t have = 0;
	ssize_t got;
	while ((got = read(fd, text + have, sizeof text - have - 1)) > 0) {
		have += (size_t)got;
		text[have] = 0;
		char *start = text, *end;
		while ((end = strchr(start, '\n'))) {
			*end = 0;
			each(start, with);
			start = end + 1;
		}
		have -= (size_t)(start - text);
		memmove(text, start, have);
	}
	if (got < 0)
		die(file);
	close(fd);
}

struct range {
	uintptr_t from, to;
	size_t sum;
	bool inside, whole;
	const char *name;
	uintptr_t found, found_end;
};

static bool header(const char *line, uintptr_t *from, uintptr_t *to)
{
	return sscanf(line, "%lx-%lx ", from, to) == 2;
}

static void add_mapped(char *line, void *with)
{
	struct range *r = with;
	uintptr_t from, to;
	if (!header(line, &from, &to))
		return;
	if (from < r->from)
		from = r->from;
	if (to > r->to)
		to = r->to;
	if (from < to)
		r->sum += to - from;
}

size_t mapped(pid_t pid, const void *at, size_t len)
{
	struct range r = {.from = (uintptr_t)at, .to = (uintptr_t)at + len};
	lines(pid, "maps", add_mapped, &r);
	return r.sum;
}

static void add_rss(char *line, void *with)
{
	struct range *r = with;
	uintptr_t from, to;
	size_t kib;
	if (header(line, &from, &to)) {
		r->inside = from < r->to && r->from < to;
		if (r->inside && (from < r->from || to > r->to))
			r->whole = false;
	} else if (r->inside && sscanf(line, "Rss: %zu kB", &kib) == 1) {
		r->sum += kib * 1024;
	}
}

// Rss of the mappings in a range; not `whole` where the kernel keeps one that reaches beyond it.
size_t rss_between(pid_t pid, const void *at, size_t len, bool *whole)
{
	struct range r = {.from = (uintptr_t)at, .to = (uintptr_t)at + len, .whole = true};
	lines(pid, "smaps", add_rss, &r);
	*whole = r.whole;
	return r.sum;
}

static void find_named(char *line, void *with)
{
	struct range *r = with;
	uintptr_t from, to;
	size_t length = strlen(line), wanted = strlen(r->name);
	if (!r->found && header(line, &from, &to) && length >= wanted && !strcmp(line + length - wanted, r->name)) {
		r->found = from;
		r->found_end = to;
	}
}

bool vma_of(pid_t pid, const char *name, char **at, size_t *len)
{
	struct range r = {.name = name};
	lines(pid, "maps", find_named, &r);
	*at = (char *)r.found;
	*len = r.found_end - r.found;
	return r.found != 0;
}

void touch_every(void *at, size_t len, size_t stride)
{
	for (size_t i = 0; i < len; i += stride)
		((volatile char *)at)[i] = 1;
}

void touch(void *at, size_t len)
{
	touch_every(at, len, PAGE);
}

void look(const void *at, size_t len, size_t stride)
{
	for (size_t i = 0; i < len; i += stride)
		(void)((const volatile char *)at)[i];
}

char *aligned_up(char *at, size_t to)
{
	return (char *)(((uintptr_t)at + to - 1) / to * to);
}

char *small_pages(char *at, size_t len)
{
	// EINVAL where the kernel is built without huge pages: then all pages are small.
	if (madvise(at, len, MADV_NOHUGEPAGE) && errno != EINVAL)
		die("MADV_NOHUGEPAGE");
	return at;
}

void fixed_name(const char *name, char *path, size_t room)
{
	const char *dir = getenv("TRUTH_DIR");
	snprintf(path, room, "%s/%s", dir ? dir : "/tmp", name);
}

int file_of(size_t len, const char *name)
{
	static char chunk[1 << 16];
	char path[4096];
	fixed_name(name, path, sizeof path);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		die(path);
	memset(chunk, 7, sizeof chunk);
	for (size_t done = 0; done < len; done += sizeof chunk)
		if (write(fd, chunk, sizeof chunk) != (ssize_t)sizeof chunk)
			die("write file");
	return fd;
}
