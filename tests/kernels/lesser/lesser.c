// SPDX-License-Identifier: Apache-2.0
// Runs a program without what it takes to load BPF programs. usage: lesser PROGRAM ARGUMENT…
#include <linux/capability.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

// <linux/capability.h> of Debian 11 doesn't have these.
#define PERFMON 38
#define BPF 39

int main(int argc, char **argv)
{
	static const unsigned long rights[] = {CAP_SYS_ADMIN, PERFMON, BPF};

	for (size_t i = 0; i < sizeof(rights) / sizeof(*rights); i++)
		if (prctl(PR_CAPBSET_DROP, rights[i], 0, 0, 0)) {
			perror("prctl(PR_CAPBSET_DROP)");
			return 1;
		}
	if (argc > 1)
		execvp(argv[1], argv + 1);
	perror("exec");
	return 1;
}
