// SPDX-License-Identifier: Apache-2.0
// What the demo programs have in common: they live as long as their standard input, so that none outlives its launcher.
#ifndef DEMO_H
#define DEMO_H

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// A function of the table must not be inlined, and its call no tail call.
#define OWNER  __attribute__((noinline, noclone, used))
#define KEEP() __asm__ volatile("" ::: "memory")

static inline void or_die(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

// Waits, and ends the program once standard input is at its end.
static inline void rest(int milliseconds)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};
	char c;
	if (poll(&input, 1, milliseconds) == 1 && read(0, &c, 1) <= 0)
		exit(0);
}

#endif
