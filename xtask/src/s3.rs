//! `cargo xtask s3`: tests object stores in S3 with servers on this machine.
//!
//! The first is `s3s-fs` of the crate registry, which keeps objects as files and heeds `If-Match` and `If-None-Match`. The second is `moto`, a server in
//! Python, if it is there: it lists unfinished uploads, and speaks TLS with a certificate that this command makes.

use crate::cargo::{Cargo, Done, said, shown, target, works};
use crate::ctests::SANITIZE;
use crate::install::{self, CRATE, Shape};
use crate::tools::Tool;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const S3S: Tool = Tool { name: "s3s-fs", version: "0.14.1", flags: "--features binary" };

/// The keys that the servers take.
const KEYS: [&str; 2] = ["the-access-key", "the/secret+key"];
const BUCKET: &str = "tests";

/// The tests that `moto` passes, too: not those with many requests, for which it is too slow.
const MOTO: [&str; 3] = ["tests::s3::calls", "conditional_put", "a_put_with_a_condition"];

/// What a run does.
struct Plan {
    only: Option<String>,
    mib: String,
    kills: String,
    filter: Option<String>,
}

/// Runs the tests.
///
/// # Errors
/// The first failure.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let plan = parse(args)?;
    let does = |part: &str| plan.only.as_deref().is_none_or(|only| only == part);
    let folder = target(root).join("s3");
    install::emptied(&folder)?;
    if does("s3s") {
        let server = Server::s3s(root, &folder)?;
        // It lists no uploads, and makes buckets with the first object.
        let mut args = ["--skip", "unfinished_uploads", "--skip", "a_bucket_that_does_not_exist"]
            .map(str::to_owned)
            .to_vec();
        args.push(plan.filter.clone().unwrap_or_else(|| "s3".to_owned()));
        tests(root, &server, &plan, &args)?;
    }
    if does("moto") {
        match Server::moto(&folder, None)? {
            Some(server) => tests(root, &server, &plan, &MOTO.map(str::to_owned))?,
            None => println!("SKIPPED moto: pip install 'moto[server]'"),
        }
    }
    if does("c") {
        c(root, &folder)?;
    }
    if does("program") {
        program(root, &folder)?;
    }
    if does("lint") {
        // The usual stage does without the client.
        for package in ["tidesdb-objects --features s3", "tidesdb-s3", "tidesdb-cli --features s3"] {
            Cargo::new(&format!("clippy -p {package} --all-targets -- -D warnings")).run(root)?;
        }
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Plan, String> {
    let mut plan = Plan { only: None, mib: "1024".to_owned(), kills: "50".to_owned(), filter: None };
    let mut args = args.iter();
    while let Some(key) = args.next() {
        let mut value = || args.next().cloned().ok_or(format!("`{key}` needs a value"));
        match key.as_str() {
            "--only" => plan.only = Some(value()?),
            "--mib" => plan.mib = value()?,
            "--kills" => plan.kills = value()?,
            other if other.starts_with('-') => {
                return Err(format!("unknown option `{other}`; the options are --only, --mib and --kills"));
            }
            filter => plan.filter = Some(filter.to_owned()),
        }
    }
    let known = ["s3s", "moto", "c", "program", "lint"];
    match &plan.only {
        Some(only) if !known.contains(&only.as_str()) => {
            Err(format!("--only {only}: the parts are {}", known.join(", ")))
        }
        _ => Ok(plan),
    }
}

/// Runs the tests of the crate with a server.
fn tests(root: &Path, server: &Server, plan: &Plan, args: &[String]) -> Done {
    Cargo::new(
        "test -p tidesdb-objects --features s3 --lib -- --include-ignored --nocapture --test-threads 2",
    )
    .args(args)
    .env("TIDESDB_S3_ENDPOINT", &format!("http://{}", server.address))
    .env("TIDESDB_S3_KEY", KEYS[0])
    .env("TIDESDB_S3_SECRET", KEYS[1])
    .env("TIDESDB_S3_MIB", &plan.mib)
    .env("TIDESDB_S3_KILLS", &plan.kills)
    .run(root)
}

/// A server, which ends with this value.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// Returns an address that nobody listens on.
fn free() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map_err(|error| format!("no free port: {error}"))
}

impl Server {
    /// Starts `s3s-fs`.
    fn s3s(root: &Path, folder: &Path) -> Result<Server, String> {
        let (program, objects, address) = (S3S.install(root)?, folder.join("objects"), free()?);
        std::fs::create_dir_all(objects.join(BUCKET))
            .map_err(|error| format!("{}: {error}", objects.display()))?;
        let mut command = Command::new(program);
        command.args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--access-key", KEYS[0], "--secret-key", KEYS[1]]).arg(objects);
        Self::start(command, address)
    }

    /// Starts `moto_server`, if it is there, with or without a certificate and its key.
    fn moto(folder: &Path, tls: Option<&(PathBuf, PathBuf)>) -> Result<Option<Server>, String> {
        if !works("moto_server", &["--help"]) {
            return Ok(None);
        }
        let address = free()?;
        let mut command = Command::new("moto_server");
        command.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]).current_dir(folder);
        if let Some((certificate, key)) = tls {
            command.arg("-s").arg("-c").arg(certificate).arg("-k").arg(key);
        }
        let server = Self::start(command, address)?;
        if tls.is_none() {
            server.make_bucket()?;
        }
        Ok(Some(server))
    }

    fn start(mut command: Command, address: SocketAddr) -> Result<Server, String> {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("cannot start ({error}): {command:?}"))?;
        let server = Server { child, address };
        for _ in 0..600 {
            if TcpStream::connect(address).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("does not answer: {command:?}"))
    }

    /// Makes the bucket in a server that checks no signatures.
    fn make_bucket(&self) -> Done {
        let talk = || {
            let mut stream = TcpStream::connect(self.address)?;
            let head =
                format!("PUT /{BUCKET} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
            stream.write_all(head.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = talk().map_err(|error: std::io::Error| format!("moto: {error}"))?;
        if answer.contains(" 200 ") { Ok(()) } else { Err(format!("moto makes no bucket: {answer}")) }
    }
}

/// Installs both libraries, and runs the program in C: against `s3s-fs`, plain and with sanitizers, without the library for S3, and against `moto` with TLS.
fn c(root: &Path, folder: &Path) -> Done {
    let prefix = folder.join("prefix");
    install::install(root, &prefix, &Shape { s3: true, ..Shape::default() })?;
    let (program, sanitized, lib) = (folder.join("s3"), folder.join("s3-asan"), prefix.join("lib"));
    for (program, flags) in [(&program, &[][..]), (&sanitized, &SANITIZE[..])] {
        let mut compile = Command::new("cc");
        compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]).args(flags);
        compile.arg("-I").arg(prefix.join("include")).arg(root.join(CRATE).join("c-tests/s3/main.c"));
        compile.arg("-L").arg(&lib).arg("-ltidesdb").arg(format!("-Wl,-rpath,{}", lib.display()));
        said(compile.arg("-o").arg(program))?;
    }
    let work = folder.join("work");
    let run_with = |command: &mut Command, args: &[&str]| {
        install::emptied(&work)?;
        shown(command.args(args).current_dir(&work))
    };
    let run = |args: &[&str]| run_with(&mut Command::new(&program), args);
    let server = Server::s3s(root, folder)?;
    let address = server.address.to_string();
    let all = ["all", &address, KEYS[0], KEYS[1]];
    run(&all)?;
    run_with(&mut Command::new(&sanitized), &all)?;
    let tls = certificate(folder)?;
    match Server::moto(folder, Some(&tls))? {
        Some(server) => run(&["tls", &server.address.to_string(), &tls.0.display().to_string()])?,
        None => println!("SKIPPED TLS: pip install 'moto[server]'"),
    }
    let (there, away) = (lib.join("libtidesdb_s3.so"), folder.join("libtidesdb_s3.so"));
    std::fs::rename(&there, &away).map_err(|error| format!("{}: {error}", there.display()))?;
    run(&["missing"])?;
    run_with(Command::new(&program).env("TIDESDB_S3_LIBRARY", &away), &all)
}

/// Runs the program with its feature: the drill of `docs/how-to/backup.md`, in a bucket.
fn program(root: &Path, folder: &Path) -> Done {
    Cargo::new("build -p tidesdb-cli --features s3").run(root)?;
    let (server, work) = (Server::s3s(root, folder)?, folder.join("drill"));
    install::emptied(&work)?;
    let tidesdb = |line: &str| {
        let mut command = Command::new(target(root).join("debug/tidesdb"));
        command.args(line.split(' ')).current_dir(&work).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ENDPOINT_URL", format!("http://{}", server.address));
        said(command.env("AWS_ACCESS_KEY_ID", KEYS[0]).env("AWS_SECRET_ACCESS_KEY", KEYS[1]))
    };
    let store = format!("--store s3://{BUCKET}/farm");
    tidesdb("put --db farm.db cows 12")?;
    tidesdb(&format!("generations create --db farm.db {store}"))?;
    tidesdb("put --db farm.db cows 13")?;
    tidesdb(&format!("generations create --db farm.db {store} --prove"))?;
    std::fs::rename(work.join("farm.db"), work.join("lost.db")).map_err(|error| error.to_string())?;
    tidesdb(&format!("generations restore {store} farm.db"))?;
    tidesdb(&format!("generations restore {store} --generation 1 before.db"))?;
    tidesdb(&format!("generations prove {store} 1"))?;
    for (db, cows) in [("farm.db", "13"), ("before.db", "12")] {
        let found = tidesdb(&format!("get --db {db} cows"))?;
        if found.trim() != cows {
            return Err(format!("{db} has {found} cows"));
        }
    }
    let pruned = tidesdb(&format!("generations prune {store} --keep-last 1"))?;
    let list = tidesdb(&format!("generations list {store}"))?;
    if !list.starts_with("generation 2 ") || list.lines().count() != 1 {
        return Err(format!("after a prune ({pruned}) there are {list}"));
    }
    println!("  the program: made, proved, restored and pruned generations in a bucket");
    Ok(())
}

/// Makes a certificate for this machine, which signs itself. Returns it and its key.
fn certificate(folder: &Path) -> Result<(PathBuf, PathBuf), String> {
    let made = (folder.join("cert.pem"), folder.join("key.pem"));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    command.args([
        "-addext",
        "subjectAltName=IP:127.0.0.1,DNS:localhost",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]);
    command.arg("-keyout").arg(&made.1).arg("-out").arg(&made.0);
    said(&mut command)?;
    Ok(made)
}
