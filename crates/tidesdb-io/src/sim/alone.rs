//! Tests that look at their whole process.

use std::process::Command;

/// Names the test that a process was started for.
const INSIDE: &str = "TIDESDB_TEST_ALONE";

/// Runs `body`, a closure of a test function, in a process of its own: the test binary starts itself and runs only this test there.
///
/// For tests that look at something that all tests of a process share: heap, resident memory, descriptors, threads, processor time,
/// umask, environment. Other tests that run at the same time would change it.
///
/// ```
/// # use tidesdb_io::sim;
/// // #[test]
/// fn nothing_is_leaked() {
///     sim::alone(|| {
///         let before = tidesdb_io::anonymous_bytes();
///         // ...
///     });
/// }
/// ```
///
/// # Panics
/// Panics if the test fails there, or if there is no such test.
pub fn alone<F: FnOnce()>(body: F) {
    // `crate::module::test::{{closure}}`, where the test is `module::test`.
    let path = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    let name = path.split_once("::").map_or(path, |(_crate, name)| name);
    if cfg!(miri) || std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        return body();
    }
    let program = std::env::current_exe().expect("the test binary is known");
    let mut test = Command::new(program);
    test.args([name, "--exact", "--include-ignored", "--nocapture"]).env(INSIDE, name);
    let out = test.output().expect("the test binary runs");
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{name}: {}\n{said}", out.status);
    assert!(said.contains("1 passed"), "there is no test {name}:\n{said}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_runs_in_another_process() {
        let mut ran_here = false;
        alone(|| ran_here = true);
        assert!(ran_here == (cfg!(miri) || std::env::var_os(INSIDE).is_some()));
    }

    #[test]
    fn a_failure_is_that_of_the_test() {
        let result = std::panic::catch_unwind(|| alone(|| panic!("the body failed")));
        let panic = result.expect_err("it does not pass");
        if !cfg!(miri) && std::env::var_os(INSIDE).is_some() {
            std::panic::resume_unwind(panic);
        }
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(cfg!(miri) || text.contains("the body failed"), "{text}");
    }
}
