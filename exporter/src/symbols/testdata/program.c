// Ways to map memory, one for each argument. No function here has a frame pointer.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define STAY(x) __asm__ volatile("" : "+r"(x)::"memory")
enum { LEN = 0x123000 };

NOINLINE static void *direct(void) {
  void *p = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  STAY(p);
  return p;
}
NOINLINE static void *large(void) {
  void *p = malloc(LEN - 256);
  STAY(p);
  return p;
}
NOINLINE static void *small(void) {
  void *p = malloc(100);
  STAY(p);
  return p;
}
NOINLINE void *xmalloc(size_t n) {
  void *p = malloc(n);
  STAY(p);
  return p;
}
NOINLINE static void *wrapped(void) {
  void *p = xmalloc(LEN - 256);
  STAY(p);
  return p;
}
NOINLINE static void *deep(int n) {
  void *pad[8] = {0}, *p = n ? deep(n - 1) : direct();
  for (int i = 0; i < 8; i++) STAY(pad[i]);
  STAY(p);
  return p;
}
static void handler(int s) {
  (void)s;
  void *p = direct();
  STAY(p);
}
NOINLINE static void *signalled(void) {
  signal(SIGUSR1, handler);
  raise(SIGUSR1);
  void *p = 0;
  STAY(p);
  return p;
}
static void *thread(void *f) {
  void *p = ((void *(*)(void))f)();
  STAY(p);
  return p;
}
NOINLINE static void *in_thread(void *(*f)(void)) {
  pthread_t t;
  void *p = 0;
  if (!pthread_create(&t, 0, thread, f)) pthread_join(t, &p);
  STAY(p);
  return p;
}
// push rbp; mov rbp,rsp; call rdi; pop rbp; ret: what a runtime with frame pointers generates.
NOINLINE static void *generated(int named) {
  static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
  char *c = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(c + 256, code, sizeof code);
  if (named) {
    char name[64];
    snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
    FILE *f = fopen(name, "w");
    fprintf(f, "%lx 8 LApp;::compiled\n", (long)c + 256);
    fclose(f);
  }
  void *p = ((void *(*)(void *(*)(void)))(c + 256))(direct);
  STAY(p);
  return p;
}

int main(int argc, char **argv) {
  const char *w = argc > 1 ? argv[1] : "";
  void *p = 0;
  if (!strcmp(w, "direct")) p = direct();
  if (!strcmp(w, "large")) p = large();
  if (!strcmp(w, "small")) p = small();
  if (!strcmp(w, "wrapped")) p = wrapped();
  if (!strcmp(w, "deep")) p = deep(atoi(argv[2]));
  if (!strcmp(w, "signalled")) p = signalled();
  if (!strcmp(w, "thread-direct")) p = in_thread(direct);
  if (!strcmp(w, "thread-small")) p = in_thread(small);
  if (!strcmp(w, "generated")) p = generated(0);
  if (!strcmp(w, "generated-named")) p = generated(1);
  STAY(p);
  return 0;
}
