// SPDX-License-Identifier: Apache-2.0
// Other processes of a case: they work in steps and stand still between them.
#define _GNU_SOURCE
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "truth.h"

void child_open(struct child *c)
{
	if (pipe(c->to) || pipe(c->from))
		die("pipe");
}

void child_serve(struct child *c, body *run, void *arg)
{
	// End of file on `to` ends a child too: nothing of a case outlives it.
	close(c->to[1]);
	char order = 's';
	for (int step = 0; order == 's'; step++) {
		uintptr_t told = run(step, arg);
		if (write(c->from[1], &told, sizeof told) != (ssize_t)sizeof told)
			break;
		if (read(c->to[0], &order, 1) != 1)
			break;
	}
	_exit(0);
}

void child_fork(struct child *c, body *run, void *arg)
{
	c->pid = fork();
	if (c->pid < 0)
		die("fork");
	if (!c->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		child_serve(c, run, arg);
	}
}

void child_hear(struct child *c)
{
	if (read(c->from[0], &c->told, sizeof c->told) != (ssize_t)sizeof c->told)
		die("a child is silent");
}

void child_start(struct child *c, body *run, void *arg)
{
	child_open(c);
	child_fork(c, run, arg);
	child_hear(c);
}

void child_step(struct child *c)
{
	if (write(c->to[1], "s", 1) != 1)
		die("order a step");
	child_hear(c);
}

void child_stop(struct child *c)
{
	if (write(c->to[1], "q", 1) != 1)
		die("order the end");
	// Another process' child is waited for by looking: a second is more than it needs.
	if (waitpid(c->pid, NULL, __WALL) < 0)
		for (int i = 0; i < 1000 && !kill(c->pid, 0); i++)
			usleep(1000);
	died(c->pid);
	for (int i = 0; i < 2; i++) {
		close(c->to[i]);
		close(c->from[i]);
	}
}
