// SPDX-License-Identifier: Apache-2.0
// A server that forgets to free its sessions: about 40 MiB a minute.
#include <string.h>

#include "demo.h"

struct session {
	struct session *previous;
	char state[192 << 10];
};

static struct session *newest;

OWNER static void leak_session(void)
{
	struct session *session = malloc(sizeof *session);
	KEEP();
	or_die(session != NULL, "malloc");
	memset(session->state, 1, sizeof session->state);
	session->previous = newest;
	newest = session;
}

OWNER static void serve_request(void)
{
	leak_session();
	KEEP();
}

int main(void)
{
	for (;;) {
		serve_request();
		rest(300);
	}
}
