use std::hint::black_box;
mod store {
    pub struct Table;
    impl Table {
        #[inline(never)]
        pub fn reserve(&self, n: usize) -> Vec<u8> {
            std::hint::black_box(Vec::with_capacity(std::hint::black_box(n)))
        }
    }
}
#[inline(never)]
fn load() -> usize {
    black_box(store::Table.reserve(0x123000 - 256).capacity())
}
fn main() {
    black_box(load());
}
