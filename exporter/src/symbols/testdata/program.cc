#include <vector>
namespace cache {
struct Pool {
  char *grow(unsigned long n) __attribute__((noinline));
};
char *Pool::grow(unsigned long n) {
  char *p = new char[n - 256];
  __asm__ volatile("" : "+r"(p)::"memory");
  return p;
}
} // namespace cache
int main() {
  cache::Pool pool;
  char *p = pool.grow(0x123000);
  __asm__ volatile("" : "+r"(p)::"memory");
  return 0;
}
