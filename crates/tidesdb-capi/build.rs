//! Names the shared library as programs linked against libtidesdb 9 know it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtidesdb.so.9");
}
