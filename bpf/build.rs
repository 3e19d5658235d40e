//! Compiles the BPF programs and generates their skeleton into `OUT_DIR`.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCES: [&str; 7] =
    ["abi.h", "calls.h", "faults.h", "kernel.h", "lifecycle.bpf.c", "stack.h", "state.h"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    SkeletonBuilder::new()
        .source("src/bpf/lifecycle.bpf.c")
        .clang(env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang-19")))
        .clang_args(["-D__TARGET_ARCH_x86", "-Wall", "-Werror"])
        .build_and_generate(out.join("lifecycle.skel.rs"))?;
    for source in SOURCES {
        println!("cargo::rerun-if-changed=src/bpf/{source}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    Ok(())
}
