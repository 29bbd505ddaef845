//! T50: the whole engine under a deterministic simulation, threads included. A case is a seed, which decides the settings, the clients, the
//! faults and each switch between threads. Needs a build with `--cfg simulated`, which `cargo xtask sim` makes.

#[cfg(not(simulated))]
pub(crate) fn runner() -> std::process::ExitCode {
    eprintln!("error: this build has no simulation; `cargo xtask sim` makes one that has");
    std::process::ExitCode::from(2)
}

#[cfg(simulated)]
pub(crate) use simulated::runner;

#[cfg(simulated)]
mod simulated {
    use std::collections::BTreeMap;
    use std::fs;
    use std::io::Read;
    use std::path::{Path, PathBuf};
    use std::process::{Child, ExitCode, Stdio};
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use clap::Parser;
    use testkit::report::{enough, exit, line};
    use testkit::sim::plan::{PARTS, Plan};
    use testkit::sim::{self, Report};
    use testkit::{process, rng::Rng};
    use tidesdb_io::{Clock, RealClock};
    use tidesdb_sync::scheduler::{Settings, Strategy};

    /// Real time after which a run is taken for hanging: a thread waits outside of the scheduler.
    const HANGS: Duration = Duration::from_secs(300);
    /// Real time for making a failure smaller.
    const SHRINK: Duration = Duration::from_secs(120);
    /// Failures after which a run ends.
    const VIOLATIONS_MAX: u64 = 5;
    const STRATEGIES: [&str; 3] = ["walk", "priorities", "turns"];

    #[derive(Parser, Clone)]
    struct Args {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of seeds.
        #[arg(long, default_value_t = 1)]
        seeds: u64,
        /// Runs seeds for so many minutes instead.
        #[arg(long)]
        minutes: Option<u64>,
        /// Chooses threads in this way, whatever the seed.
        #[arg(long, value_parser = STRATEGIES)]
        strategy: Option<String>,
        /// Decides the switches between threads instead of the seed.
        #[arg(long)]
        schedule: Option<u64>,
        /// Steps of each client.
        #[arg(long)]
        steps: Option<u64>,
        /// Parts that are left out.
        #[arg(long, value_delimiter = ',', value_parser = PARTS)]
        off: Vec<String>,
        /// Seeds that run at the same time.
        #[arg(long, default_value_t = 2)]
        jobs: u64,
        /// One of so many seeds runs twice, and must do the same again.
        #[arg(long, default_value_t = 10)]
        again: u64,
        /// Adds the counts to this file, and continues with the seed after its last one.
        #[arg(long)]
        soak: Option<PathBuf>,
        /// Writes all steps of one seed to this file.
        #[arg(long)]
        trace: Option<PathBuf>,
        /// Ends at the first failure and does not make it smaller.
        #[arg(long)]
        find: bool,
        /// Runs the seed in this process.
        #[arg(long, hide = true)]
        child: bool,
    }

    pub(crate) fn runner() -> ExitCode {
        let args: Args = process::arguments();
        if args.child { child(&args) } else { parent(&args) }
    }

    /// Figures of a child by name.
    type Figures = BTreeMap<String, u64>;

    // The child.

    fn child(args: &Args) -> ExitCode {
        let mut settings = Settings::drawn(args.schedule.unwrap_or(args.seed));
        settings.trace = args.trace.is_some();
        if let Some(strategy) = &args.strategy {
            settings.strategy = match strategy.as_str() {
                "walk" => Strategy::Walk { one_in: 2 },
                "priorities" => Strategy::Priorities { changes: 10 },
                _ => Strategy::Turns { preemptions: 20 },
            };
        }
        let Report { outcome, figures, violation } =
            sim::run(Plan::new(args.seed, args.steps, args.off.clone()), settings);
        if let Some(path) = &args.trace
            && let Err(e) = fs::write(path, outcome.trace.join("\n") + "\n")
        {
            eprintln!("error: write {}: {e}", path.display());
        }
        println!("hash={:016x}", outcome.hash);
        let counted = [
            ("seed", args.seed),
            ("steps", outcome.steps),
            ("switches", outcome.switches),
            ("threads", outcome.threads as u64),
            ("virtual_us", outcome.time.as_micros() as u64),
            ("longest_wait_us", outcome.longest_wait.0.as_micros() as u64),
            ("commits", figures.commits),
            ("reads", figures.reads),
            ("transactions", figures.transactions),
            ("flushes", figures.flushes),
            ("merges", figures.merges),
            ("moved", figures.moved),
            ("recoveries", figures.recoveries),
            ("generations", figures.generations),
        ];
        println!("{}", line("sim", &counted));
        match &violation {
            None => println!("passed"),
            Some(what) => println!("wrong: {what}"),
        }
        // Threads of a run that has failed wait for ever.
        std::process::exit(i32::from(violation.is_some()));
    }

    /// Keeps this thread, and the processes that it starts, on one core: of the threads of a run only one runs at a
    /// time, and it goes on sooner there.
    #[cfg(target_os = "linux")]
    fn pin(job: u64) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut set = rustix::thread::CpuSet::new();
        set.set(job as usize % cores);
        let _ = rustix::thread::sched_setaffinity(None, &set); // it is only slower otherwise
    }

    // The parent.

    /// What a child has shown.
    struct Shown {
        hash: String,
        figures: Figures,
        wrong: Option<String>,
    }

    /// Runs a seed in a process of its own, so that what a process keeps cannot tell runs apart.
    fn run(args: &Args) -> Result<Shown, String> {
        let mut command = process::itself()?;
        command.args(["--child", "--seed", &args.seed.to_string()]);
        command.args(choices(args)).env("RUST_BACKTRACE", "1");
        if let Some(path) = &args.trace {
            command.arg("--trace").arg(path);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("start a run: {e}"))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let child = Mutex::new(child);
        let (end, ended) = channel();
        let (out, errors, status, hangs) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| watch(&child, ended));
            let errors = scope.spawn(|| text(err));
            let out = text(out);
            let errors = errors.join().unwrap_or_default();
            let status = child.lock().unwrap_or_else(PoisonError::into_inner).wait();
            drop(end);
            (out, errors, status, watch.join().unwrap_or(false))
        });
        let mut shown = Shown { hash: String::new(), figures: Figures::new(), wrong: None };
        for line in out.lines() {
            if let Some(hash) = line.strip_prefix("hash=") {
                shown.hash = hash.to_owned();
            }
            if line.starts_with("sim ") {
                shown.figures = figures(line.split(' '));
            }
        }
        let is_good = status.is_ok_and(|status| status.success()) && out.lines().any(|line| line == "passed");
        if !is_good {
            let wrong = out.split_once("wrong: ").map(|(_, what)| what.trim_end().to_owned());
            let wrong = wrong.filter(|_| !hangs).unwrap_or_else(|| match hangs {
                true => format!("a thread waits outside of the scheduler, or the run is too long: {HANGS:?}"),
                false => "the process ended".to_owned(),
            });
            let last: Vec<&str> = errors.lines().rev().take(60).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
            shown.wrong = Some(if last.is_empty() { wrong } else { format!("{wrong}\n{last}") });
        }
        Ok(shown)
    }

    fn text(pipe: Option<impl Read>) -> String {
        let mut bytes = Vec::new();
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Kills a child that takes too long, unless the other end of `ended` is dropped before. Returns true if it did.
    fn watch(child: &Mutex<Child>, ended: Receiver<()>) -> bool {
        // The other thread waits for the end of the output first, not for the lock.
        ended.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout)
            && child.lock().unwrap_or_else(PoisonError::into_inner).kill().is_ok()
    }

    /// Reads `name=number` where it occurs.
    fn figures<'t>(parts: impl Iterator<Item = &'t str>) -> Figures {
        let pairs = parts.filter_map(|part| part.split_once('='));
        pairs.filter_map(|(name, n)| Some((name.to_owned(), n.parse().ok()?))).collect()
    }

    /// The arguments that choose what a seed does.
    fn choices(args: &Args) -> Vec<String> {
        let mut out = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            out.extend(value.into_iter().flat_map(|value| [format!("--{name}"), value]));
        };
        add("strategy", args.strategy.clone());
        add("schedule", args.schedule.map(|n| n.to_string()));
        add("steps", args.steps.map(|n| n.to_string()));
        add("off", (!args.off.is_empty()).then(|| args.off.join(",")));
        out
    }

    fn command(args: &Args) -> String {
        let choices = choices(args).iter().map(|word| format!(" {word}")).collect::<String>();
        format!("cargo xtask sim --seed {}{choices}", args.seed)
    }

    /// Totals of a run, by name.
    #[derive(Default)]
    struct Totals {
        sums: Mutex<Figures>,
        violations: AtomicU64,
    }

    fn parent(args: &Args) -> ExitCode {
        let (clock, totals) = (RealClock::new(), Totals::default());
        let before = args.soak.as_deref().map(read_soak).unwrap_or_default();
        let first = before.get("next_seed").copied().unwrap_or(args.seed);
        let next = AtomicU64::new(first);
        let seeds = if args.minutes.is_some() { u64::MAX - first } else { args.seeds };
        let limit = args.minutes.map(|minutes| Duration::from_secs(60 * minutes));
        let is_over = || {
            let violations = totals.violations.load(SeqCst);
            violations >= VIOLATIONS_MAX
                || (args.find && violations > 0)
                || limit.is_some_and(|limit| clock.mono() >= limit)
        };
        std::thread::scope(|scope| {
            for job in 0..args.jobs.min(seeds).max(1) {
                let (next, totals, is_over) = (&next, &totals, &is_over);
                scope.spawn(move || {
                    #[cfg(target_os = "linux")]
                    pin(job);
                    while !is_over() {
                        let seed = next.fetch_add(1, SeqCst);
                        if seed - first >= seeds {
                            break;
                        }
                        one(&Args { seed, ..args.clone() }, totals);
                    }
                });
            }
        });
        let mut sums = std::mem::take(&mut *totals.sums.lock().unwrap_or_else(PoisonError::into_inner));
        sums.insert("violations".to_owned(), totals.violations.load(SeqCst));
        sums.insert("real_ms".to_owned(), clock.mono().as_millis() as u64);
        let figures: Vec<(&str, u64)> = sums.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        println!("{}", line("T50", &figures));
        if let Some(path) = &args.soak {
            write_soak(path, before, &sums, next.load(SeqCst));
        }
        let runs = sums.get("runs").copied().unwrap_or(0);
        // A run that has become smaller without anybody noticing finds nothing.
        let floors =
            [("flushes", runs * 2), ("merges", runs / 2), ("reads", runs * 20), ("recoveries", runs)];
        let floors: &[(&str, u64)] = if runs < 50 { &[] } else { &floors };
        exit(totals.violations.load(SeqCst) == 0 && enough("T50", &figures, floors))
    }

    fn one(args: &Args, totals: &Totals) {
        let untraced = Args { trace: None, ..args.clone() };
        let shown = match run(if args.seeds == 1 && args.minutes.is_none() { args } else { &untraced }) {
            Ok(shown) => shown,
            Err(e) => return violation(args, &e, totals),
        };
        add(totals, &shown.figures);
        if let Some(wrong) = shown.wrong {
            violation(args, &wrong, totals);
            if !args.find {
                shrink(&untraced, &wrong);
            }
            return;
        }
        if args.again != 0 && args.seed.is_multiple_of(args.again) {
            match run(&untraced) {
                Ok(second) if second.hash == shown.hash && second.figures == shown.figures => {
                    add(totals, &Figures::from([("compared".to_owned(), 1)]));
                }
                Ok(second) => {
                    let what = format!("two runs differ: {:?} and {:?}", shown.figures, second.figures);
                    violation(args, &what, totals);
                }
                Err(e) => violation(args, &e, totals),
            }
        }
    }

    fn violation(args: &Args, what: &str, totals: &Totals) {
        totals.violations.fetch_add(1, SeqCst);
        eprintln!("VIOLATION `{}`: {what}", command(args));
    }

    /// Adds the figures of a run.
    fn add(totals: &Totals, figures: &Figures) {
        let mut sums = totals.sums.lock().unwrap_or_else(PoisonError::into_inner);
        if figures.contains_key("seed") {
            count(&mut sums, "runs", 1);
        }
        for (name, n) in figures.iter().filter(|(name, _)| *name != "seed") {
            count(&mut sums, name, *n);
        }
    }

    /// Adds `n` to a sum; of the longest waits, the longer one stays.
    fn count(sums: &mut Figures, name: &str, n: u64) {
        let sum = sums.entry(name.to_owned()).or_default();
        *sum = if name == "longest_wait_us" { (*sum).max(n) } else { *sum + n };
    }

    /// Leaves out parts and steps as long as the seed fails, perhaps under another schedule. Prints the smallest command, and writes its steps.
    fn shrink(args: &Args, wrong: &str) {
        let clock = RealClock::new();
        let mut best = args.clone();
        let mut rng = Rng::new(args.seed);
        let fails = |candidate: &Args, rng: &mut Rng| {
            (0..4).find_map(|n| {
                if clock.mono() > SHRINK {
                    return None;
                }
                let schedule = if n == 0 { candidate.schedule } else { Some(rng.below(1 << 30)) };
                let tried = Args { schedule, ..candidate.clone() };
                run(&tried).ok()?.wrong.filter(|other| kind(other) == kind(wrong)).map(|_| tried)
            })
        };
        for part in PARTS {
            let off = best.off.iter().cloned().chain([part.to_owned()]).collect();
            if let Some(smaller) = fails(&Args { off, ..best.clone() }, &mut rng) {
                best = smaller;
            }
        }
        let mut steps = best.steps.unwrap_or(64);
        while steps > 2 {
            steps /= 2;
            match fails(&Args { steps: Some(steps), ..best.clone() }, &mut rng) {
                Some(smaller) => best = smaller,
                None => break,
            }
        }
        let path = std::env::temp_dir().join(format!("sim-{}.txt", args.seed));
        let traced = Args { trace: Some(path.clone()), ..best.clone() };
        let wrong = run(&traced).ok().and_then(|shown| shown.wrong).unwrap_or_default();
        let wrong = wrong.lines().next().unwrap_or_default();
        eprintln!("  smaller: `{}`: {wrong}\n  its steps: {}", command(&best), path.display());
    }

    /// The first words of a failure that are no names or numbers: another failure is not the same one made smaller.
    fn kind(wrong: &str) -> Vec<&str> {
        let words = wrong.split([' ', ':', ',', '"']).filter(|word| word.len() > 2);
        words.filter(|word| word.chars().all(|c| c.is_ascii_lowercase())).take(3).collect()
    }

    /// Reads the counts of earlier runs.
    fn read_soak(path: &Path) -> Figures {
        figures(fs::read_to_string(path).unwrap_or_default().lines())
    }

    fn write_soak(path: &Path, mut before: Figures, sums: &Figures, next: u64) {
        for (name, n) in sums {
            count(&mut before, name, *n);
        }
        before.insert("next_seed".to_owned(), next);
        let text: String = before.iter().map(|(name, n)| format!("{name}={n}\n")).collect();
        if let Err(e) = fs::write(path, text) {
            eprintln!("error: write {}: {e}", path.display());
        }
    }
}
