// SPDX-License-Identifier: Apache-2.0
// Spaces and the processes that have them: shared by two, replaced by exec, left by their leader.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "truth.h"

ANON_SITE(host)
ANON_SITE(lodger)
ANON_SITE(before)
ANON_SITE(after)
ANON_SITE(keeper)
ANON_SITE(offspring)
ANON_SITE(leader)
ANON_SITE(follower)

static const size_t LEN = 8 * MiB;
static char *host_at;
static struct child lodger;

static uintptr_t lodge(int step, void *arg)
{
	(void)step, (void)arg;
	char *at = small_pages(site_lodger(NULL, LEN, 0), LEN);
	touch(at, LEN / 2);
	return (uintptr_t)at;
}

static int lodging(void *arg)
{
	child_serve(arg, lodge, NULL);
	return 0;
}

static uintptr_t give_lodging(int step, void *arg)
{
	(void)step, (void)arg;
	static char stack[64 << 10] __attribute__((aligned(16)));
	host_at = small_pages(site_host(NULL, LEN, 0), LEN);
	touch(host_at, LEN);
	int pid = clone(lodging, stack + sizeof stack, CLONE_VM | SIGCHLD, &lodger);
	if (pid < 0)
		die("clone");
	return (uintptr_t)pid;
}

static uintptr_t tell_host_at(int step, void *arg)
{
	return step ? (uintptr_t)host_at : give_lodging(step, arg);
}

// Two processes in one space: both hold the same bytes, once. The space is there until the last has
// left.
static void one_space_two_processes(void)
{
	struct child host;
	child_open(&lodger);
	child_start(&host, tell_host_at, NULL);
	lodger.pid = (pid_t)host.told;
	child_hear(&lodger);
	child_step(&host);
	char *theirs = (char *)lodger.told;
	host_at = (char *)host.told;
	phase("two in one space");
	holds(host.pid, "site_host", host_at, LEN, LEN);
	holds(host.pid, "site_lodger", theirs, LEN, LEN / 2);
	stand();

	child_stop(&host);
	phase("the first has left");
	holds(lodger.pid, "site_host", host_at, LEN, LEN);
	holds(lodger.pid, "site_lodger", theirs, LEN, LEN / 2);
	stand();

	child_stop(&lodger);
	phase("nobody is left");
	stand();
}

static void execute(char *const args[])
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n <= 0)
		die("readlink");
	self[n] = 0;
	execv(self, args);
	die("execv");
}

// exec ends every mapping of the old program.
static void exec_replaces(void)
{
	char *a = small_pages(site_before(NULL, LEN, 0), LEN);
	touch(a, LEN);
	phase("the old program");
	holds(getpid(), "site_before", a, LEN, LEN);
	stand();
	execute((char *[]){"truth", "--after-exec", "exec_replaces", NULL});
}

static void replaced(void)
{
	char *a = small_pages(site_after(NULL, LEN, 0), LEN);
	touch(a, LEN / 4);
	phase("the new program");
	gone(getpid(), "site_before");
	holds(getpid(), "site_after", a, LEN, LEN / 4);
	stand();
}

static uintptr_t grow_up(int step, void *arg)
{
	(void)step, (void)arg;
	char *a = small_pages(site_offspring(NULL, LEN, 0), LEN);
	touch(a, LEN / 8);
	return (uintptr_t)a;
}

static void vfork_and_exec(void)
{
	struct child c;
	char to[16], from[16];
	char *a = small_pages(site_keeper(NULL, LEN, 0), LEN);
	touch(a, LEN);
	child_open(&c);
	snprintf(to, sizeof to, "%d", c.to[0]);
	snprintf(from, sizeof from, "%d", c.from[1]);
	fcntl(c.to[1], F_SETFD, FD_CLOEXEC);
	fcntl(c.from[0], F_SETFD, FD_CLOEXEC);
	char *args[] = {"truth", "--after-exec", "vfork_and_exec", to, from, NULL};
	c.pid = vfork();
	if (c.pid < 0)
		die("vfork");
	if (!c.pid)
		execute(args);
	child_hear(&c);
	phase("a child of its own program");
	holds(getpid(), "site_keeper", a, LEN, LEN);
	holds(c.pid, "site_offspring", (char *)c.told, LEN, LEN / 8);
	gone(c.pid, "site_keeper");
	stand();

	child_stop(&c);
	phase("the child has gone");
	holds(getpid(), "site_keeper", a, LEN, LEN);
	stand();
}

static void wait_until_the_leader_is_a_zombie(void)
{
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
	for (int i = 0; i < 5000; i++, usleep(1000)) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			die(path);
		ssize_t n = read(fd, text, sizeof text - 1);
		close(fd);
		text[n < 0 ? 0 : n] = 0;
		char *end = strrchr(text, ')');
		if (end && end[1] == ' ' && end[2] == 'Z')
			return;
	}
	die("the leader lives on");
}

static void *carry_on(void *led)
{
	pid_t me = getpid();
	wait_until_the_leader_is_a_zombie();
	char *a = small_pages(site_follower(NULL, LEN, 0), LEN);
	touch(a, LEN / 2);
	phase("the leader has exited");
	holds(me, "site_leader", led, LEN, LEN);
	holds(me, "site_follower", a, LEN, LEN / 2);
	stand();

	munmap(led, LEN);
	phase("its mapping too");
	holds(me, "site_follower", a, LEN, LEN / 2);
	stand();
	_exit(0);
}

static void zombie_leader(void)
{
	pthread_t thread;
	char *a = small_pages(site_leader(NULL, LEN, 0), LEN);
	touch(a, LEN);
	phase("led");
	holds(getpid(), "site_leader", a, LEN, LEN);
	stand();
	if (pthread_create(&thread, NULL, carry_on, a))
		die("pthread_create");
	pthread_exit(NULL);
}

void after_exec(const char *name, char **arg)
{
	if (!strcmp(name, "exec_replaces")) {
		replaced();
	} else if (!strcmp(name, "vfork_and_exec") && arg[0] && arg[1]) {
		struct child c = {.to = {atoi(arg[0]), -1}, .from = {-1, atoi(arg[1])}};
		child_serve(&c, grow_up, NULL);
	}
}

const struct play PROCESSES[] = {{"one_space_two_processes", one_space_two_processes},
				 {"exec_replaces", exec_replaces},
				 {"vfork_and_exec", vfork_and_exec},
				 {"zombie_leader", zombie_leader},
				 {0}};
