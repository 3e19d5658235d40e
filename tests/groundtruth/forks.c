// SPDX-License-Identifier: Apache-2.0
// Families: a page is everybody's until somebody writes to it, and the oldest space that has it
// owns it.
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "truth.h"

ANON_SITE(family)
ANON_SITE(estate)

static const size_t LEN = 16 * MiB;

static uintptr_t write_a_quarter(int step, void *at)
{
	(void)step;
	touch(at, LEN / 4);
	return 0;
}

struct line {
	char *at;
	struct child next;
};

static uintptr_t have_a_child(int step, void *arg)
{
	struct line *line = arg;
	if (step == 0)
		child_fork(&line->next, write_a_quarter, line->at);
	else
		touch(line->at + LEN / 2, LEN / 2);
	return (uintptr_t)line->next.pid;
}

static void three_generations(void)
{
	pid_t me = getpid();
	struct child c;
	struct line line = {.at = small_pages(site_family(NULL, LEN, 0), LEN)};
	touch(line.at, LEN);
	child_open(&line.next);
	child_start(&c, have_a_child, &line);
	line.next.pid = (pid_t)c.told;
	child_hear(&line.next);
	phase("the youngest wrote a quarter");
	holds(me, "site_family", line.at, LEN, LEN);
	holds_alone(c.pid, "site_family", line.at, LEN, 0);
	wide_bounds_will_do();
	holds_alone(line.next.pid, "site_family", line.at, LEN, LEN / 4);
	wide_bounds_will_do();
	joint(c.pid, "anon", LEN);
	joint(line.next.pid, "anon", LEN - LEN / 4);
	stand();

	child_step(&c);
	phase("the middle one wrote half");
	holds(me, "site_family", line.at, LEN, LEN);
	holds_alone(c.pid, "site_family", line.at, LEN, LEN / 2);
	wide_bounds_will_do();
	holds_alone(line.next.pid, "site_family", line.at, LEN, LEN / 4);
	wide_bounds_will_do();
	stand();

	child_stop(&line.next);
	child_stop(&c);
	phase("the oldest is alone");
	holds(me, "site_family", line.at, LEN, LEN);
	stand();
}

static uintptr_t survive(int step, void *arg)
{
	(void)step, (void)arg;
	prctl(PR_SET_PDEATHSIG, 0);
	return (uintptr_t)getpid();
}

static uintptr_t bequeath(int step, void *arg)
{
	(void)step;
	char *at = small_pages(site_estate(NULL, LEN, 0), LEN);
	touch(at, LEN);
	child_fork(arg, survive, NULL);
	return (uintptr_t)at;
}

static void the_parent_dies_first(void)
{
	struct child parent, heir;
	child_open(&heir);
	child_start(&parent, bequeath, &heir);
	child_hear(&heir);
	heir.pid = (pid_t)heir.told;
	char *at = (char *)parent.told;
	phase("both live");
	holds(parent.pid, "site_estate", at, LEN, LEN);
	holds_alone(heir.pid, "site_estate", at, LEN, 0);
	wide_bounds_will_do();
	joint(heir.pid, "anon", LEN);
	stand();

	child_stop(&parent);
	phase("the heir owns all");
	holds(heir.pid, "site_estate", at, LEN, LEN);
	stand();

	child_stop(&heir);
	phase("nobody is left");
	stand();
}

static uintptr_t let_go(int step, void *at)
{
	if (step == 1)
		munmap((char *)at + LEN / 2, LEN / 2);
	if (step == 2)
		munmap(at, LEN / 2);
	return 0;
}

static void the_child_unmaps(void)
{
	pid_t me = getpid();
	struct child c;
	char *at = small_pages(site_family(NULL, LEN, 0), LEN);
	touch(at, LEN);
	child_start(&c, let_go, at);
	phase("inherited");
	holds(me, "site_family", at, LEN, LEN);
	holds_alone(c.pid, "site_family", at, LEN, 0);
	joint(c.pid, "anon", LEN);
	stand();

	child_step(&c);
	phase("half let go");
	holds(me, "site_family", at, LEN, LEN);
	holds_alone(c.pid, "site_family", at, LEN / 2, 0);
	joint(c.pid, "anon", LEN / 2);
	stand();

	child_step(&c);
	phase("all let go");
	holds(me, "site_family", at, LEN, LEN);
	gone(c.pid, "site_family");
	stand();
	child_stop(&c);
}

static uintptr_t write_all(int step, void *at)
{
	(void)step;
	touch(at, LEN);
	return 0;
}

static void both_write(void)
{
	pid_t me = getpid();
	struct child c;
	char *at = small_pages(site_family(NULL, LEN, 0), LEN);
	touch(at, LEN);
	child_start(&c, write_all, at);
	touch(at, LEN);
	phase("each has its own");
	holds(me, "site_family", at, LEN, LEN);
	holds_alone(c.pid, "site_family", at, LEN, LEN);
	stand();

	child_stop(&c);
	phase("alone");
	holds(me, "site_family", at, LEN, LEN);
	stand();
}

static size_t written;

static uintptr_t write_some(int step, void *at)
{
	(void)step;
	touch(at, written);
	return 0;
}

// A server that forks its workers: what is common is the oldest one's, however many have it.
static void preforked(void)
{
	enum { WORKERS = 8 };
	pid_t me = getpid();
	struct child workers[WORKERS];
	char *at = small_pages(site_family(NULL, LEN, 0), LEN);
	touch(at, LEN);
	for (size_t i = 0; i < WORKERS; i++) {
		written = i * MiB;
		child_start(&workers[i], write_some, at);
	}
	phase("each worker wrote another part");
	holds(me, "site_family", at, LEN, LEN);
	for (size_t i = 0; i < WORKERS; i++) {
		holds_alone(workers[i].pid, "site_family", at, LEN, i * MiB);
		wide_bounds_will_do();
		joint(workers[i].pid, "anon", LEN - i * MiB);
	}
	stand();

	munmap(at, LEN / 2);
	phase("the parent let half go");
	holds(me, "site_family", at + LEN / 2, LEN / 2, LEN / 2);
	// The first worker wrote nothing, and has all of what was common.
	inherits(workers[0].pid, "site_family", at, LEN, LEN / 2);
	wide_bounds_will_do();
	joint(workers[0].pid, "anon", LEN / 2);
	for (size_t i = 1; i < WORKERS; i++) {
		holds_alone(workers[i].pid, "site_family", at, LEN, i * MiB);
		wide_bounds_will_do();
	}
	stand();

	for (size_t i = 0; i < WORKERS; i++)
		child_stop(&workers[i]);
	phase("without workers");
	holds(me, "site_family", at + LEN / 2, LEN / 2, LEN / 2);
	stand();
}

const struct play FORKS[] = {{"three_generations", three_generations},
			     {"the_parent_dies_first", the_parent_dies_first},
			     {"the_child_unmaps", the_child_unmaps},
			     {"both_write", both_write},
			     {"preforked", preforked},
			     {0}};
