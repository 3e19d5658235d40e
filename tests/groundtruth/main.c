// SPDX-License-Identifier: Apache-2.0
// truth --list | CASE
#include <stdio.h>
#include <string.h>

#include "truth.h"

static const struct play *const ALL[] = {MAPPINGS, MOVES, HEAPS, PROCESSES, FORKS, OBJECTS, PAGES, COMPAT};

int main(int argc, char **argv)
{
	if (argc >= 3 && !strcmp(argv[1], "--after-exec")) {
		after_exec(argv[2], argv + 3);
		return 0;
	}
	bool list = argc == 2 && !strcmp(argv[1], "--list");
	for (size_t i = 0; argc == 2 && i < sizeof ALL / sizeof *ALL; i++)
		for (const struct play *p = ALL[i]; p->name; p++) {
			if (list) {
				puts(p->name);
			} else if (!strcmp(argv[1], p->name)) {
				stand(); // ready: whoever watches from the start is here now
				p->run();
				return 0;
			}
		}
	if (list)
		return 0;
	fprintf(stderr, "usage: truth --list | CASE\n");
	return 2;
}
