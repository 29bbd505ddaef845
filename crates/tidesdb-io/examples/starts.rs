//! Counts the starts of a process that fail: `cargo run -p tidesdb-io --example starts [THREADS STARTS]`. Wine 8.0 refuses a few.

use std::process::Command;
use std::thread;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args == ["nothing"] {
        return Ok(());
    }
    let number = |i: usize, default| args.get(i).map_or(Ok(default), |arg| arg.parse::<usize>());
    let (threads, starts, me) = (number(0, 4)?, number(1, 200)?, std::env::current_exe()?);
    let failed = || (0..starts).filter(|_| Command::new(&me).arg("nothing").output().is_err()).count();
    let failed: usize = thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(failed)).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(starts)).sum()
    });
    println!("{failed} of {} starts failed", threads * starts);
    Ok(())
}
