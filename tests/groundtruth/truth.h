// SPDX-License-Identifier: Apache-2.0
// A workload that knows what is true of its own memory, and proves it to itself before it says so.
//
// A case maps memory from functions named site_*, states after each phase what every site holds,
// and stands still. Each statement is compared with the kernel (pagemap, smaps) on the spot: an
// oracle that disagrees with the kernel ends the program with status 4. What is left is printed as
// one JSON line a phase; a line on standard input goes on. Nothing here calls malloc, so that
// [heap] belongs to the cases.
#ifndef TRUTH_H
#define TRUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>

#define PAGE ((size_t)4096)
#define MiB  ((size_t)1 << 20)
#define HUGE (2 * MiB)

// A function that asks the kernel for memory must stay in the stack under its own name.
#define SITE __attribute__((noinline, noclone, used))
// Stands between a call and the return, so that the call is no tail call.
#define KEEP() __asm__ volatile("" ::: "memory")

_Noreturn void die(const char *what);
// This case can't be played here: the reason goes to standard error, the status is 77.
_Noreturn void cannot(const char *why);

// --- what is true ---
void phase(const char *name);
// `site` of `pid` holds [at, at+len), `resident` bytes of it in memory. Pieces of one site add up.
void holds(pid_t pid, const char *site, const void *at, size_t len, size_t resident);
// The same for a span with holes, in which `reserved` bytes are mapped.
void holds_among(pid_t pid, const char *site, const void *at, size_t span, size_t reserved, size_t resident);
// The same where zero pages are mapped, which pagemap calls present and the kernel doesn't count:
// smaps is asked.
void holds_counted(pid_t pid, const char *site, const void *at, size_t len, size_t resident);
// The same where a relative has the pages too and owns what is common: `own` bytes are this
// process' alone.
void holds_alone(pid_t pid, const char *site, const void *at, size_t len, size_t own);
// The same where all of it is in memory, and `own` bytes fall to this process by its age.
void inherits(pid_t pid, const char *site, const void *at, size_t len, size_t own);
void gone(pid_t pid, const char *site);
// `site` maps and unmaps up to `most` bytes while the others stand still, and touches none of it.
void comes_and_goes(pid_t pid, const char *site, size_t most);
void died(pid_t pid);
// More about the site that was stated last: other names it may go by, swapped bytes, and whether
// bounds will do.
void also_named(const char *part_of_name);
void swapped(size_t bytes);
void bounds_will_do(void);
// And however far apart they are: of many relatives it is not known who has what in common.
void wide_bounds_will_do(void);
// An object mapped by `sharers` spaces, `resident` bytes of it in any of them; found by site or by
// part of its name.
void shared(const char *site, const char *name, size_t resident, int sharers);
// At least these bytes of one kind are in `pid` but owned elsewhere; the program's own libraries
// may add to them.
void joint(pid_t pid, const char *kind, size_t bytes);
// All rows of one kind in `pid` (arena, stack) hold between lo and hi; `site` made some of them.
void kind_within(pid_t pid, const char *kind, const char *site, size_t lo, size_t hi);
// Prints the phase and stands still until told to go on. A busy phase has a thread that doesn't.
void stand(void);
void stand_busy(void);

// --- the kernel's word ---
size_t present(pid_t pid, const void *at, size_t len);
size_t in_swap(pid_t pid, const void *at, size_t len);
size_t common(pid_t pid, const void *at,
	      size_t len); // present and mapped by others too (pagemap bit 56 clear)
size_t mapped(pid_t pid, const void *at, size_t len);
bool vma_of(pid_t pid, const char *name, char **at, size_t *len); // the first mapping of that name
void must(const char *what, size_t model, size_t kernel);

// --- small tools ---
void touch(void *at, size_t len);
void touch_every(void *at, size_t len, size_t stride);
void look(const void *at, size_t len, size_t stride);
char *aligned_up(char *at, size_t to);
int file_of(size_t len,
	    const char *name); // an unlinked-at-exit file of `len` written bytes in $TRUTH_DIR
void fixed_name(const char *name, char *path, size_t room);

// Anonymous private memory, a call site of its own each: the caller of mmap is site_NAME itself.
static inline __attribute__((always_inline)) char *map_anon(void *at, size_t len, int flags)
{
	char *p = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	KEEP();
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}
#define ANON_SITE(name)                                         \
	SITE char *site_##name(void *at, size_t len, int flags) \
	{                                                       \
		char *p = map_anon(at, len, flags);             \
		KEEP();                                         \
		return p;                                       \
	}
char *small_pages(char *at, size_t len);

// --- other processes ---
// A child runs body(0), tells its result, and again with 1, 2, … whenever it is asked for a step.
typedef uintptr_t body(int step, void *arg);
struct child {
	pid_t pid;
	int to[2], from[2];
	uintptr_t told;
};
void child_open(struct child *c);
void child_fork(struct child *c, body *run, void *arg);
void child_serve(struct child *c, body *run, void *arg); // in the child: never returns
void child_hear(struct child *c);
void child_start(struct child *c, body *run, void *arg);
void child_step(struct child *c);
void child_stop(struct child *c);

// --- cases ---
struct play {
	const char *name;
	void (*run)(void);
};
extern const struct play MAPPINGS[], MOVES[], HEAPS[], PROCESSES[], FORKS[], OBJECTS[], PAGES[], COMPAT[];
// What a program does that an exec case starts: `--after-exec NAME ARG`.
void after_exec(const char *name, char **arg);

#endif
