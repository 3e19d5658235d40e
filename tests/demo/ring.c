// SPDX-License-Identifier: Apache-2.0
// Two processes with one ring of 32 MiB between them: it is there once.
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "demo.h"

static const size_t RING = 32 << 20, RECORD = 256 << 10;

OWNER static char *shared_ring(void)
{
	char *ring = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	KEEP();
	or_die(ring != MAP_FAILED, "mmap");
	return ring;
}

OWNER static char *reader_copy(void)
{
	char *copy = malloc(RECORD);
	KEEP();
	or_die(copy != NULL, "malloc");
	return copy;
}

static void read_on(const char *ring)
{
	char *copy = reader_copy();
	for (size_t at = 0;; at = (at + RECORD) % RING) {
		memcpy(copy, ring + at, RECORD);
		rest(100);
	}
}

static void write_on(char *ring)
{
	for (size_t at = 0;; at = (at + RECORD) % RING) {
		memset(ring + at, (int)(at / RECORD) + 1, RECORD);
		rest(100);
	}
}

int main(void)
{
	char *ring = shared_ring();
	pid_t reader = fork();
	or_die(reader >= 0, "fork");
	if (!reader) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "ring-reader");
		read_on(ring);
	}
	prctl(PR_SET_NAME, "ring-writer");
	write_on(ring);
}
