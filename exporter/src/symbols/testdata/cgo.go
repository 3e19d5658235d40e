package main

/*
#include <sys/mman.h>

__attribute__((noinline)) static char *site_in_c(void) {
  char *p = mmap(0, 0x123000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  __asm__ volatile("" : "+r"(p)::"memory");
  return p;
}
*/
import "C"

//go:noinline
func call() *C.char { return C.site_in_c() }

func main() {
	if call() == nil {
		panic("no memory")
	}
}
