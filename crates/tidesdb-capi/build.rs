//! Sets the soname that programs linked against libtidesdb 9 expect, and compiles the part that must be C.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/log_write.c");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtidesdb.so.9");
    cc::Build::new().file("src/log_write.c").warnings(true).extra_warnings(true).compile("tidesdb_log_write");
}
