// SPDX-License-Identifier: Apache-2.0
// A cache that grows to 96 MiB and stays there, beside an index that reserves far more than it touches.
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "demo.h"

enum { ENTRIES = 192 };
static const size_t ENTRY = 512 << 10, INDEX = (size_t)4 << 30;

static char *entries[ENTRIES];

OWNER static char *reserve_index(void)
{
	char *index = mmap(NULL, INDEX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	KEEP();
	or_die(index != MAP_FAILED, "mmap");
	return index;
}

OWNER static char *cache_insert(void)
{
	char *entry = malloc(ENTRY);
	KEEP();
	or_die(entry != NULL, "malloc");
	return entry;
}

int main(void)
{
	char *index = reserve_index();
	for (unsigned round = 0;; round++) {
		char **entry = &entries[round % ENTRIES];
		if (!*entry)
			*entry = cache_insert();
		memset(*entry, (int)round, ENTRY);
		index[(size_t)(round % ENTRIES) * (64 << 10)] = 1;
		rest(100);
	}
}
