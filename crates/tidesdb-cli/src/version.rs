//! What `tidesdb --version` prints. `tidesdb -V` prints the first line only.

use tidesdb::Compression;

/// Returns the version, and what the program was built from, with and for.
pub(crate) fn long() -> String {
    let commit = match env!("TIDESDB_COMMIT") {
        "" => "unknown",
        commit => commit,
    };
    let (version, target) = (env!("CARGO_PKG_VERSION"), env!("TIDESDB_TARGET"));
    format!("{version}\ncommit: {commit}\nfeatures: {}\ntarget: {target}", features().join(" "))
}

/// Returns the names of the optional parts that are built in.
fn features() -> Vec<&'static str> {
    let compressions = [Compression::Lz4, Compression::Snappy, Compression::Zstd];
    let built_in = compressions.into_iter().filter(|compression| compression.is_built_in());
    let parts = [
        ("pages", cfg!(feature = "pages")),
        ("report", cfg!(feature = "report")),
        ("bench", cfg!(feature = "bench")),
        ("top", cfg!(feature = "top")),
    ];
    let parts = parts.into_iter().filter_map(|(name, built_in)| built_in.then_some(name));
    built_in.map(Compression::name).chain(parts).collect()
}
