// SPDX-License-Identifier: Apache-2.0
// The statements of a phase: kept entry by entry, proven against the kernel, printed as one line of
// JSON.
#define _GNU_SOURCE
#include "truth.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum about { OWNER, SHARED, JOINT, KIND };

struct entry {
	enum about about;
	pid_t pid;
	const char *site, *name, *kind;
	size_t reserved, most, resident, hi, swapped;
	bool has_swap, bounded, wide;
	int sharers;
};

static struct entry entries[64];
static size_t count;
static struct entry *last;
static const char *current = "ready";

void die(const char *what)
{
	dprintf(2, "truth: %s: %s\n", what, strerror(errno));
	_exit(3);
}

void cannot(const char *why)
{
	dprintf(2, "truth: %s\n", why);
	_exit(77);
}

void must(const char *what, size_t model, size_t kernel)
{
	if (model == kernel)
		return;
	dprintf(2, "truth: phase %s: %s: the oracle says %zu, the kernel %zu\n", current, what, model, kernel);
	_exit(4);
}

static void drop(size_t i)
{
	memmove(&entries[i], &entries[i + 1], (--count - i) * sizeof *entries);
}

static struct entry *add(struct entry e)
{
	if (count == sizeof entries / sizeof *entries)
		die("too many entries");
	entries[count] = e;
	last = &entries[count++];
	return last;
}

static struct entry *owner(pid_t pid, const char *site)
{
	for (size_t i = 0; i < count; i++)
		if (entries[i].about == OWNER && entries[i].pid == pid && !strcmp(entries[i].site, site))
			return last = &entries[i];
	return add((struct entry){.about = OWNER, .pid = pid, .site = site});
}

// A site once stated stays in the list: what nobody states again holds nothing.
void phase(const char *name)
{
	current = name;
	for (size_t i = 0; i < count;) {
		struct entry *e = &entries[i];
		if (e->about != OWNER) {
			drop(i);
			continue;
		}
		e->reserved = e->most = e->resident = e->swapped = 0;
		e->has_swap = e->bounded = e->wide = false;
		i++;
	}
}

void died(pid_t pid)
{
	for (size_t i = 0; i < count;)
		if (entries[i].pid == pid)
			drop(i);
		else
			i++;
}

size_t rss_between(pid_t pid, const void *at, size_t len, bool *whole);

void holds_among(pid_t pid, const char *site, const void *at, size_t span, size_t reserved, size_t resident)
{
	must(site, reserved, mapped(pid, at, span));
	must(site, resident, present(pid, at, span));
	bool whole;
	size_t rss = rss_between(pid, at, span, &whole);
	if (whole)
		must(site, resident, rss);
	struct entry *e = owner(pid, site);
	e->reserved += reserved;
	e->resident += resident;
}

void holds(pid_t pid, const char *site, const void *at, size_t len, size_t resident)
{
	holds_among(pid, site, at, len, len, resident);
}

void holds_counted(pid_t pid, const char *site, const void *at, size_t len, size_t resident)
{
	bool whole;
	size_t rss = rss_between(pid, at, len, &whole);
	must("mapping of its own", true, whole);
	must(site, resident, rss);
	struct entry *e = owner(pid, site);
	e->reserved += len;
	e->resident += resident;
}

void holds_alone(pid_t pid, const char *site, const void *at, size_t len, size_t own)
{
	must(site, len, mapped(pid, at, len));
	must(site, own, present(pid, at, len) - common(pid, at, len));
	struct entry *e = owner(pid, site);
	e->reserved += len;
	e->resident += own;
}

void inherits(pid_t pid, const char *site, const void *at, size_t len, size_t own)
{
	must(site, len, present(pid, at, len));
	struct entry *e = owner(pid, site);
	e->reserved += len;
	e->resident += own;
}

void gone(pid_t pid, const char *site)
{
	owner(pid, site);
}

void comes_and_goes(pid_t pid, const char *site, size_t most)
{
	owner(pid, site)->most = most;
}

void also_named(const char *part_of_name)
{
	last->name = part_of_name;
}

void swapped(size_t bytes)
{
	last->swapped = bytes;
	last->has_swap = true;
}

void bounds_will_do(void)
{
	last->bounded = true;
}

void wide_bounds_will_do(void)
{
	last->wide = true;
}

void shared(const char *site, const char *name, size_t resident, int sharers)
{
	for (size_t i = 0; i < count;)
		if (entries[i].about == OWNER && site && !strcmp(entries[i].site, site))
			drop(i);
		else
			i++;
	add((struct entry){.about = SHARED, .site = site, .name = name, .resident = resident, .sharers = sharers});
}

void joint(pid_t pid, const char *kind, size_t bytes)
{
	add((struct entry){.about = JOINT, .pid = pid, .kind = kind, .resident = bytes});
}

void kind_within(pid_t pid, const char *kind, const char *site, size_t lo, size_t hi)
{
	add((struct entry){.about = KIND, .pid = pid, .kind = kind, .site = site, .resident = lo, .hi = hi});
}

static char line[1 << 14];
static size_t used;

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line + used, sizeof line - used, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof line - used)
		die("line too long");
	used += (size_t)n;
}

static void put_entry(const struct entry *e)
{
	static const char *const ABOUT[] = {"owner", "shared", "joint", "kind"};
	put("{\"about\":\"%s\"", ABOUT[e->about]);
	if (e->pid)
		put(",\"pid\":%d", (int)e->pid);
	if (e->site)
		put(",\"site\":\"%s\"", e->site);
	if (e->name)
		put(",\"name\":\"%s\"", e->name);
	if (e->kind)
		put(",\"kind\":\"%s\"", e->kind);
	if (e->about == OWNER)
		put(",\"reserved\":%zu", e->reserved);
	if (e->most)
		put(",\"reserved_hi\":%zu", e->most);
	put(",\"resident\":%zu", e->resident);
	if (e->about == KIND)
		put(",\"resident_hi\":%zu", e->hi);
	if (e->about == SHARED)
		put(",\"sharers\":%d", e->sharers);
	if (e->has_swap)
		put(",\"swapped\":%zu", e->swapped);
	if (e->bounded)
		put(",\"inferred\":true");
	if (e->wide)
		put(",\"wide\":true");
	put("}");
}

static void say(bool busy)
{
	used = 0;
	put("{\"phase\":\"%s\",\"busy\":%s,\"owners\":[", current, busy ? "true" : "false");
	for (size_t i = 0; i < count; i++) {
		put("%s", i ? "," : "");
		put_entry(&entries[i]);
	}
	put("]}\n");
	if (write(1, line, used) != (ssize_t)used)
		die("write");
	char c = 0;
	ssize_t r;
	do
		r = read(0, &c, 1);
	while ((r == 1 && c != '\n') || (r < 0 && errno == EINTR));
	if (r <= 0)
		_exit(0);
}

void stand(void)
{
	say(false);
}

void stand_busy(void)
{
	say(true);
}
