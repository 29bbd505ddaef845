//! The runners. Each finds cases that nobody thought of, reports what breaks a promise, and prints the command that shows it again.

use std::process::ExitCode;

macro_rules! runners {
    ($($(#[$only:meta])? $name:ident,)*) => {
        $($(#[$only])? mod $name;)*

        /// The names of the runners, with what each does.
        pub(crate) const ALL: &[(&str, fn() -> ExitCode)] =
            &[$($(#[$only])? (stringify!($name), $name::runner)),*];
    };
}

runners! {
    beside,
    crash,
    descriptors,
    faults,
    #[cfg(unix)] // two of its targets are the C library's, which is built there only
    fuzz,
    invariants,
    isolation,
    kill,
    latency,
    memory,
    metamorphic,
    model,
    order,
    races,
    reopen,
    #[cfg(unix)] // it mounts a device
    sectors,
    sweep,
    tmpfs,
}
