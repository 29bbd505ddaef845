//! Gives the library the name under which the loader of the system looks for it: the one that programs linked against libtidesdb 9 expect. On
//! Windows that is the name of its file. Compiles the parts that must be C.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let vendor = std::env::var("CARGO_CFG_TARGET_VENDOR").unwrap_or_default();
    match (&*system, &*vendor) {
        ("windows", _) => {}
        (_, "apple") => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libtidesdb.9.dylib");
        }
        _ => println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtidesdb.so.9"),
    }
    let mut build = cc::Build::new();
    build.files(FILES).flag_if_supported("-fvisibility=hidden").warnings(true).extra_warnings(true);
    build.compile("tidesdb_capi_c");
}

const FILES: [&str; 2] = ["src/log_write.c", "src/stream.c"];
