//! Counts the starts of a program that fail: `cargo run -p tidesdb-io --example starts THREADS STARTS PROGRAM [ARG...]`. Wine 8.0 refuses a few.

use std::process::Command;
use std::thread;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [threads, starts, program, words @ ..] = &args[..] else {
        return Err("which program, how often, from how many threads?".into());
    };
    let (threads, starts): (usize, usize) = (threads.parse()?, starts.parse()?);
    let failed = || (0..starts).filter(|_| Command::new(program).args(words).output().is_err()).count();
    let failed: usize = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(failed)).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(starts)).sum()
    });
    println!("{failed} of {} starts failed", threads * starts);
    Ok(())
}
