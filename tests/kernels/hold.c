// SPDX-License-Identifier: Apache-2.0
// hold [anon MIB | map FILE | open FILE]...: has memory until it is killed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *mapped(size_t len, int flags, int fd)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (at == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return at;
}

static void hold(const char *how, const char *what)
{
	if (!strcmp(how, "anon")) {
		size_t len = strtoul(what, NULL, 10) << 20;
		memset(mapped(len, MAP_PRIVATE | MAP_ANONYMOUS, -1), 1, len);
		return;
	}
	struct stat file;
	int fd = open(what, O_RDWR);
	if (fd < 0 || fstat(fd, &file)) {
		perror(what);
		exit(1);
	}
	if (!strcmp(how, "map")) {
		const volatile char *at = mapped((size_t)file.st_size, MAP_SHARED, fd);
		for (off_t offset = 0; offset < file.st_size; offset += 4096)
			(void)at[offset];
	}
}

int main(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i += 2)
		hold(argv[i], argv[i + 1]);
	puts("holds");
	fflush(stdout);
	for (;;)
		pause();
}
