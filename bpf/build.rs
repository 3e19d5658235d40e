//! Compiles the BPF programs and generates their skeleton into `OUT_DIR`.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// One object each.
const OBJECTS: [&str; 2] = ["lifecycle", "regions"];
const HEADERS: [&str; 7] =
    ["abi.h", "calls.h", "faults.h", "kernel.h", "regions.h", "stack.h", "state.h"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    for object in OBJECTS {
        let source = format!("src/bpf/{object}.bpf.c");
        SkeletonBuilder::new()
            .source(&source)
            .clang(env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang-19")))
            .clang_args(["-D__TARGET_ARCH_x86", "-Wall", "-Werror"])
            .build_and_generate(out.join(format!("{object}.skel.rs")))?;
        println!("cargo::rerun-if-changed={source}");
    }
    for header in HEADERS {
        println!("cargo::rerun-if-changed=src/bpf/{header}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    Ok(())
}
