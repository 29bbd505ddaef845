//! The stage `c`: tests of the C library as C programs use it: installed, through its headers, linked by name.
//!
//! Layouts and symbols are compared with committed files. Three test programs run plain, with sanitizers and
//! under valgrind. The examples are built as users build them. The programs are instrumented, the library is
//! not.

use crate::cargo::{DIST, Done, said, shown, target, works};
use crate::install::{self, CRATE, Shape};
use crate::pages::{Fence, fences};
use crate::tree::Tree;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Allowed dependencies of the shared library.
const NEEDED: [&str; 3] = ["libc.so.6", "libm.so.6", "libgcc_s.so.1"];

/// Maximum size of each library in MiB. With debug information it is several times larger.
const LARGEST: [(&str, u64); 2] = [("libtidesdb.so.9", 6), ("libtidesdb.a", 24)];

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

pub(crate) const SANITIZE: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// The test programs: folders of `c-tests`. The first two test `db.h`, each of them all of it; the third tests `extended.h`.
const PROGRAMS: [&str; 3] = ["abi", "misuse", EXTENDED];
const EXTENDED: &str = "extended";

/// Valgrind runs one thread at a time. Without fair scheduling, threads that never wait block the others for
/// minutes.
const VALGRIND: [&str; 6] = [
    "--fair-sched=try",
    "--quiet",
    "--error-exitcode=1",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
];

/// System calls in the trace that counts syncs. The program marks begin and end by the last three.
const TRACED: &str = "trace=fsync,fdatasync,sync_file_range,msync,access,faccessat,faccessat2";

/// Settings of `sync/main.c`, which commits 20 times, and the expected number of syncs: `unified_memtable`, its
/// sync mode, sync mode of the family.
const SYNCS: [([&str; 3], usize); 6] = [
    (["0", "0", "0"], 0),
    (["0", "0", "1"], 20),
    (["0", "1", "0"], 0),
    (["1", "0", "1"], 20),
    (["1", "1", "0"], 20),
    (["1", "1", "1"], 20),
];

/// Expected output of the C program of the README.
pub(crate) const README_PRINTED: &str = "apple is durable\n";

/// Expected output of each example.
pub(crate) const PRINTED: [(&str, &str); 3] = [
    ("c", "apple is red\ncarrot is not there\nall:\n  apple = red\n  banana = yellow\n  cherry = black\n"),
    ("cpp", "apple is red\ncarrot is not there\nall:\n  apple = red\n  banana = yellow\n"),
    ("py", "apple is red\ncarrot is not there\nall:\n  apple = red\n  banana = yellow\n  nothing =\n"),
];

/// Returns the reason why the stage cannot run here, if there is one.
pub(crate) fn hindrance() -> Option<String> {
    let tools =
        [("cc", "--version"), ("nm", "--version"), ("readelf", "--version"), ("pkg-config", "--version")];
    let missing = tools.iter().find(|(tool, arg)| !works(tool, &[arg]))?.0;
    Some(format!("no {missing}: apt-get install build-essential pkg-config"))
}

/// Installs the library, built with `profile`, into its own folder and runs all checks.
///
/// # Errors
/// The first failure.
pub(crate) fn run(root: &Path, profile: &'static str) -> Done {
    let folder = target(root).join("ctests");
    install::remove(&folder)?;
    let house = House { source: root.join(CRATE), prefix: folder.join("prefix"), folder };
    install::install(root, &house.prefix, &Shape { profile, ..Shape::default() })?;
    house.headers()?;
    house.xxhash()?;
    house.layout()?;
    house.programs()?;
    house.symbols()?;
    house.link()?;
    house.syncs()?;
    house.dependencies()?;
    if profile == DIST {
        house.sizes()?;
    }
    house.readme()?;
    house.pages()?;
    house.examples()?;
    house.cpp()?;
    house.cmake()?;
    house.runs()
}

/// The folders of this stage.
struct House {
    source: PathBuf,
    prefix: PathBuf,
    folder: PathBuf,
}

impl House {
    fn tests(&self) -> PathBuf {
        self.source.join("c-tests")
    }

    fn built(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn compiler(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(WARNINGS).arg("-I").arg(self.prefix.join("include"));
        command
    }

    /// Adds the flags that link the shared library and find it at run time.
    fn link_to(&self, command: &mut Command) {
        let lib = self.prefix.join("lib");
        command.arg("-L").arg(&lib).arg("-ltidesdb").arg(format!("-Wl,-rpath,{}", lib.display()));
    }

    /// Compiles each header alone and after each other one, in both languages.
    fn headers(&self) -> Done {
        let names = ["db.h", "extended.h", "tidesdb.h", "objstore.h", "tidesdb_version.h"];
        for first in names {
            let lines: String = [first, names[0], names[1], names[2], names[3]]
                .map(|name| format!("#include <tidesdb/{name}>\n"))
                .concat();
            for (program, standard, end) in [("cc", "-std=c11", "c"), ("c++", "-std=c++11", "cpp")] {
                if !works(program, &["--version"]) {
                    continue;
                }
                let file = self.built(&format!("header.{end}"));
                fs::write(&file, &lines).map_err(|error| format!("{}: {error}", file.display()))?;
                let mut command = self.compiler(program);
                said(command.arg(standard).arg("-fsyntax-only").arg(&file))?;
            }
        }
        passed("headers in C11 and C++11, in any order")
    }

    /// Checks that `tidesdb/xxhash.h` includes the system's header, and that it says what to install if that is
    /// missing.
    fn xxhash(&self) -> Done {
        let file = self.built("xxhash.c");
        let text = "#define XXH_INLINE_ALL\n#include <tidesdb/xxhash.h>\n#include <tidesdb/tidesdb.h>\n\
                    int main(void) { return XXH64(\"\", 0, 0) != 0xEF46DB3751D8E999ULL; }\n";
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let include = self.prefix.join("include");
        let preprocess = |flags: &[&str], folder: &Path| {
            let mut command = Command::new("cc");
            said(command.arg("-E").args(flags).arg("-I").arg(folder).arg(&file))
        };
        let fails = |done: Result<String, String>, why: &str| match done {
            Err(error) if error.contains(why) => Ok(()),
            other => Err(format!("tidesdb/xxhash.h does not say `{why}`: {other:?}")),
        };
        fails(preprocess(&["-nostdinc"], &include), "install libxxhash-dev")?;
        if !works("cc", &["-E", "-include", "xxhash.h", "-x", "c", "/dev/null"]) {
            return skipped("tidesdb/xxhash.h", "apt-get install libxxhash-dev");
        }
        let inner = format!("-I{}", include.join("tidesdb").display());
        fails(preprocess(&[&inner], &include), "parent folder of tidesdb/")?;
        let program = self.built("xxhash");
        said(self.compiler("cc").arg("-std=c11").arg(&file).arg("-o").arg(&program))?;
        said(&mut Command::new(&program))?;
        passed("tidesdb/xxhash.h is the system's xxHash")
    }

    fn layout(&self) -> Done {
        let program = self.built("layout");
        let mut command = self.compiler("cc");
        said(command.arg("-std=c11").arg(self.tests().join("layout.c")).arg("-o").arg(&program))?;
        let golden = self.tests().join("layout.golden");
        let golden = fs::read_to_string(&golden).map_err(|error| format!("{}: {error}", golden.display()))?;
        let printed = said(&mut Command::new(&program))?;
        if let Some(line) = difference(&golden, &printed) {
            return Err(format!("layout.golden and the headers differ: {line}"));
        }
        passed(&format!("layout: {} sizes, offsets and constants", golden.lines().count()))?;
        self.short_layout()
    }

    /// Compares the headers with the list for addresses of 32 bits: at compile time, because the programs cannot be linked on every machine.
    fn short_layout(&self) -> Done {
        let golden = self.tests().join("layout32.golden");
        let golden = fs::read_to_string(&golden).map_err(|error| format!("{}: {error}", golden.display()))?;
        let file = self.built("layout32.c");
        install::write(&file, &assertions(&golden))?;
        let empty = ["-m32", "-fsyntax-only", "-include", "time.h", "-x", "c", "/dev/null"];
        let has_headers = |flags: &[&str]| works("cc", &[&empty[..], flags].concat());
        // Without the headers for 32 bits, those of 64 do. They include a list of the functions that the C library lacks.
        let stubs = self.built("m32");
        install::write(&stubs.join("gnu/stubs-32.h"), "")?;
        let folder = format!("/usr/include/{}", said(Command::new("cc").arg("-print-multiarch"))?.trim());
        let stubs = stubs.to_string_lossy();
        let borrowed = ["-isystem", &*stubs, "-isystem", &*folder];
        let Some(flags) = [&[][..], &borrowed[..]].into_iter().find(|flags| has_headers(flags)) else {
            return skipped("the layout for addresses of 32 bits", "apt-get install gcc-multilib");
        };
        let mut command = self.compiler("cc");
        said(command.args(["-m32", "-std=c11", "-fsyntax-only"]).args(flags).arg(&file))?;
        passed(&format!(
            "layout for addresses of 32 bits: {} sizes, offsets and constants",
            golden.lines().count()
        ))
    }

    /// Builds the test programs, plain and with sanitizers.
    fn programs(&self) -> Done {
        for name in PROGRAMS {
            for (end, flags) in [("", &[][..]), ("-asan", &SANITIZE[..])] {
                let mut command = self.compiler("cc");
                command.args(["-std=c11", "-O1", "-g"]).args(flags);
                command.args((name == EXTENDED).then_some("-DKIT_EXTENDED"));
                command.args(sources(&self.tests().join(name))?).args(sources(&self.tests().join("kit"))?);
                self.link_to(&mut command);
                said(command.args(["-lpthread", "-ldl", "-o"]).arg(self.built(&format!("{name}{end}"))))?;
            }
        }
        Ok(())
    }

    /// Checks that the symbols of the library, `symbols.txt`, and the functions counted by the test programs
    /// agree.
    fn symbols(&self) -> Done {
        let list = self.tests().join("symbols.txt");
        let list = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
        let listed: BTreeSet<&str> = list.lines().collect();
        let library = self.prefix.join("lib/libtidesdb.so");
        let exported = said(Command::new("nm").args(["-D", "-S", "--defined-only"]).arg(library))?;
        let exported: BTreeSet<String> = exported.lines().filter_map(symbol).collect();
        equal("exports", &exported.iter().map(String::as_str).collect(), &listed)?;
        let functions = listed.into_iter().filter(|name| !name.contains(' '));
        let (extended, base): (BTreeSet<&str>, BTreeSet<&str>) =
            functions.partition(|name| name.starts_with("tidesdb_x_"));
        for name in PROGRAMS {
            let known = said(Command::new(self.built(name)).arg("--functions"))?;
            equal(name, &known.lines().collect(), if name == EXTENDED { &extended } else { &base })?;
        }
        let (base, extended) = (base.len(), extended.len());
        passed(&format!("symbols: exactly {base} and {extended} functions, all counted by the tests"))
    }

    /// Runs a program with copy relocations of the library's data, at a fixed address and position-independent.
    fn link(&self) -> Done {
        let data = ["tidesdb_allocator", "tidesdb_initialized", "_tidesdb_log_level", "_tidesdb_log_file"];
        for (end, flags) in [("fixed", ["-fno-pic", "-no-pie"]), ("pie", ["-fPIE", "-pie"])] {
            let program = self.built(&format!("link-{end}"));
            let mut command = self.compiler("cc");
            command.args(["-std=c11", "-O1", "-g"]).args(flags).args(sources(&self.tests().join("link"))?);
            self.link_to(&mut command);
            said(command.arg("-o").arg(&program))?;
            let relocations = said(Command::new("readelf").arg("-rW").arg(&program))?;
            let copied = |name: &str| {
                let mut copies = relocations.lines().filter(|line| line.contains("_COPY "));
                copies.any(|line| line.split_whitespace().any(|word| word == name))
            };
            // A compiler that accesses data indirectly even here proves nothing, but is not wrong.
            if end == "fixed"
                && let Some(name) = data.iter().find(|name| !copied(name))
            {
                return Err(format!("{} has no copy relocation of {name}", program.display()));
            }
            let printed = said(Command::new(&program).arg(self.built(&format!("link-{end}.db"))))?;
            passed(&format!("copy relocations, {end}: {}", printed.trim()))?;
        }
        Ok(())
    }

    /// Counts the syncs of 20 commits.
    fn syncs(&self) -> Done {
        if !works("strace", &["--version"]) {
            return skipped("the count of syncs", "apt-get install strace");
        }
        let program = self.built("sync");
        let mut command = self.compiler("cc");
        command.args(["-std=gnu11", "-O1"]).args(sources(&self.tests().join("sync"))?);
        self.link_to(&mut command);
        said(command.arg("-o").arg(&program))?;
        let trace = self.built("sync.trace");
        for (settings, want) in SYNCS {
            let mut command = Command::new("strace");
            command.args(["-f", "-e", TRACED, "-o"]).arg(&trace).arg(&program);
            command.arg(self.built(&format!("sync.{}", settings.concat()))).args(settings);
            said(&mut command)?;
            let lines =
                fs::read_to_string(&trace).map_err(|error| format!("{}: {error}", trace.display()))?;
            let commits = lines.lines().skip_while(|line| !line.contains("/the-first-commit"));
            let commits = commits.take_while(|line| !line.contains("/the-last-commit"));
            let found = commits.filter(|line| line.contains("sync")).count();
            if found != want {
                return Err(format!(
                    "20 commits with the settings {settings:?} made {found} syncs, not {want}"
                ));
            }
        }
        passed(&format!("syncs of 20 commits, {} settings", SYNCS.len()))
    }

    fn dependencies(&self) -> Done {
        let library = self.prefix.join("lib/libtidesdb.so");
        let dynamic = said(Command::new("readelf").arg("-d").arg(library))?;
        let named = |kind: &str| -> Vec<String> {
            let lines = dynamic.lines().filter(|line| line.contains(kind));
            lines.filter_map(|line| Some(line.split(['[', ']']).nth(1)?.to_owned())).collect()
        };
        let needed = named("(NEEDED)");
        let known = |name: &String| NEEDED.contains(&name.as_str()) || name.starts_with("ld-linux");
        if let Some(other) = needed.iter().find(|name| !known(name)) {
            return Err(format!("the library needs {other}"));
        }
        let soname = named("(SONAME)");
        if soname != ["libtidesdb.so.9"] {
            return Err(format!("the soname is {soname:?}"));
        }
        passed(&format!("soname {}, needs {}", soname[0], needed.join(" ")))
    }

    /// Checks the sizes of both libraries, which have no debug information.
    fn sizes(&self) -> Done {
        let mut sizes = Vec::new();
        for (name, most) in LARGEST {
            let path = self.prefix.join("lib").join(name);
            let size = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?.len();
            if size > most << 20 {
                return Err(format!("{name} has {size} bytes, more than {most} MiB"));
            }
            sizes.push(format!("{name} {} KiB", size >> 10));
        }
        passed(&sizes.join(", "))
    }

    /// Runs the programs plain, with sanitizers and under valgrind. The first one that fails is the last, so that its output ends that of the stage.
    fn runs(&self) -> Done {
        let mut runs = Vec::new();
        for name in PROGRAMS {
            runs.push(Command::new(self.built(name)));
            runs.push(in_memory(Command::new(self.built(&format!("{name}-asan")))));
        }
        if works("valgrind", &["--version"]) {
            for name in PROGRAMS {
                let mut command = Command::new("valgrind");
                command.args(VALGRIND).arg(self.built(name)).arg("--together").env("TDB_SIZE", "50");
                command.env("TDB_TIMEOUT", "120");
                runs.push(in_memory(command));
            }
        } else {
            skipped("valgrind", "apt-get install valgrind")?;
        }
        runs.iter_mut().try_for_each(shown)
    }

    fn pkg_config(&self, args: &[&str]) -> Result<Vec<String>, String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig")).args(args).arg("tidesdb");
        Ok(said(&mut command)?.split_whitespace().map(str::to_owned).collect())
    }

    /// Builds the C program of the README and runs it twice: the second run finds the family that the first created.
    fn readme(&self) -> Done {
        let source = self.built("readme.c");
        fs::write(&source, readme_source(&self.source.join("../.."))?)
            .map_err(|error| format!("{}: {error}", source.display()))?;
        let program = self.built("readme");
        let mut command = self.compiler("cc");
        command.arg("-std=c11").arg(&source).arg("-o").arg(&program);
        self.link_to(&mut command);
        said(&mut command)?;
        for _ in 0..2 {
            let printed = said(Command::new(&program).current_dir(&self.folder))?;
            if let Some(line) = difference(README_PRINTED, &printed) {
                return Err(format!("the C program of README.md: {line}"));
            }
        }
        Ok(())
    }

    /// Builds and runs the programs of the pages, and compares what each prints with the text that follows it.
    fn pages(&self) -> Done {
        let tree = Tree::read(&self.source.join("../..")).map_err(|error| error.to_string())?;
        for (at, program) in programs(&tree).into_iter().enumerate() {
            let (source, built) = (self.built(&format!("page-{at}.c")), self.built(&format!("page-{at}")));
            install::write(&source, &program.text)?;
            let mut command = self.compiler("cc");
            command.arg("-std=c11").arg(&source).arg("-o").arg(&built);
            self.link_to(&mut command);
            said(&mut command)?;
            let folder = self.built(&format!("page-{at}-run"));
            fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            let printed = said(Command::new(&built).current_dir(&folder))?;
            if let Some(line) = difference(&program.prints, &printed) {
                return Err(format!("{}: {line}", program.place));
            }
            passed(&program.place)?;
        }
        Ok(())
    }

    fn examples(&self) -> Done {
        let flags = self.pkg_config(&["--cflags", "--libs"])?;
        self.example("cc", "-std=c11", "c", "", &flags)?;
        // The linker searches an archive only for symbols requested before it, so the library is named before
        // its dependencies.
        let mut flags = self.pkg_config(&["--cflags"])?;
        flags.push(self.prefix.join("lib/libtidesdb.a").to_string_lossy().into_owned());
        flags.extend(
            self.pkg_config(&["--static", "--libs-only-l"])?.into_iter().filter(|lib| lib != "-ltidesdb"),
        );
        self.example("cc", "-std=c11", "c", "-static", &flags)?;
        if works("c++", &["--version"]) {
            let flags = self.pkg_config(&["--cflags", "--libs"])?;
            self.example("c++", "-std=c++17", "cpp", "", &flags)?;
        } else {
            skipped("the example in C++", "apt-get install g++")?;
        }
        if !works("python3", &["--version"]) {
            return skipped("the example in Python", "apt-get install python3");
        }
        let mut command = Command::new("python3");
        command.env("TIDESDB_LIBRARY", self.prefix.join("lib/libtidesdb.so.9"));
        command.arg(self.source.join("examples/kv.py")).arg(self.built("shop.py"));
        prints("py", &mut command)
    }

    /// Builds and runs the tests of the header for C++, plain and with sanitizers.
    fn cpp(&self) -> Done {
        if !works("c++", &["-std=c++20", "-x", "c++", "-fsyntax-only", "/dev/null"]) {
            return skipped("the header for C++20", "apt-get install g++");
        }
        for (end, flags) in [("", &[][..]), ("-asan", &SANITIZE[..])] {
            let (program, folder) = (self.built(&format!("cpp{end}")), self.built(&format!("cpp{end}.run")));
            let mut command = self.compiler("c++");
            command.args(["-std=c++20", "-Wconversion", "-Wshadow", "-O1", "-g"]).args(flags);
            self.link_to(command.arg(self.tests().join("cpp/main.cpp")));
            said(command.arg("-o").arg(&program))?;
            fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            said(Command::new(&program).current_dir(&folder))?;
        }
        passed("tidesdb/extended.hpp in C++20, plain and with sanitizers")
    }

    /// Builds an example as described in its first lines and runs it.
    fn example(&self, compiler: &str, standard: &str, end: &str, kind: &str, flags: &[String]) -> Done {
        let program = self.built(&format!("kv-{end}{kind}"));
        let mut command = Command::new(compiler);
        command.args(WARNINGS).arg(standard).arg(self.source.join("examples").join(format!("kv.{end}")));
        said(command.args(flags).arg("-o").arg(&program))?;
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", self.prefix.join("lib"));
        prints(end, command.arg(self.built(&format!("shop.{end}{kind}"))))
    }

    fn cmake(&self) -> Done {
        if !works("cmake", &["--version"]) {
            return skipped("find_package", "apt-get install cmake");
        }
        let build = self.built("cmake");
        let mut command = Command::new("cmake");
        command.arg("-S").arg(self.tests().join("cmake")).arg("-B").arg(&build);
        command.arg(format!("-DCMAKE_PREFIX_PATH={}", self.prefix.display()));
        command.arg(format!("-DEXAMPLE={}", self.source.join("examples/kv.c").display()));
        said(&mut command)?;
        said(Command::new("cmake").arg("--build").arg(&build))?;
        for name in ["kv_tidesdb", "kv_static"] {
            prints("c", Command::new(build.join(name)).arg(self.built(&format!("shop.{name}"))))?;
        }
        Ok(())
    }
}

/// Returns the C program of the README.
///
/// # Errors
/// If there is none.
pub(crate) fn readme_source(root: &Path) -> Result<String, String> {
    let text = install::read(&root.join("README.md"))?;
    let code = fences(&text).into_iter().find(|fence| fence.info == "c");
    code.map(|fence| fence.text()).ok_or_else(|| "README.md has no program in C".to_owned())
}

/// A program of a page.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// Page and line.
    place: String,
    text: String,
    /// What it prints: the fenced text of the kind `text` that follows it.
    prints: String,
}

/// Returns the programs in C of the pages of `docs`. Those with a reason in brackets are parts of programs.
fn programs(tree: &Tree) -> Vec<Program> {
    let mut out = Vec::new();
    for (path, page) in
        tree.texts.iter().filter(|(path, _)| path.starts_with("docs/") && path.ends_with(".md"))
    {
        let fences = fences(page);
        for (at, fence) in fences.iter().enumerate().filter(|(_, fence)| fence.info == "c") {
            let next = fences.get(at + 1).filter(|next| next.info == "text");
            let prints = next.map_or(String::new(), Fence::text);
            out.push(Program { place: format!("{path}:{}", fence.line), text: fence.text(), prints });
        }
    }
    out
}

/// Returns a C file that compiles if the headers agree with a list of sizes, offsets and constants.
fn assertions(golden: &str) -> String {
    let mut out =
        "#include <stddef.h>\n#include <tidesdb/extended.h>\n#include <tidesdb/tidesdb.h>\n".to_owned();
    for (name, number) in golden.lines().filter_map(|line| line.split_once(' ')) {
        let what = match name.split_once('.') {
            Some((structure, field)) => format!("offsetof({structure}, {field})"),
            None if name.ends_with("_t") => format!("sizeof({name})"),
            None => format!("(int)({name})"),
        };
        out.push_str(&format!("_Static_assert({what} == {number}, \"{name}\");\n"));
    }
    out
}

/// Converts a line of `nm -S` to the form in `symbols.txt`. The size of data symbols matters, because programs
/// may hold a copy.
fn symbol(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (&kind, &name) = (words.get(words.len().checked_sub(2)?)?, words.last()?);
    if kind == "T" {
        return Some(name.to_owned());
    }
    let size = u64::from_str_radix(words.get(1)?, 16).ok()?;
    Some(format!("{name} data {size}"))
}

/// Returns the C files of a folder.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "c")).collect();
    paths.sort();
    Ok(paths)
}

/// Makes a slow run keep its databases in memory, if the system has a folder for that.
fn in_memory(mut command: Command) -> Command {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        command.env("TMPDIR", memory);
    }
    command
}

/// Returns the first line that differs, in both texts.
pub(crate) fn difference(golden: &str, printed: &str) -> Option<String> {
    let (mut golden, mut printed) = (golden.lines(), printed.lines());
    loop {
        match (golden.next(), printed.next()) {
            (None, None) => return None,
            (a, b) if a == b => {}
            (a, b) => return Some(format!("`{}` is `{}`", a.unwrap_or("nothing"), b.unwrap_or("nothing"))),
        }
    }
}

fn equal(what: &str, have: &BTreeSet<&str>, want: &BTreeSet<&str>) -> Done {
    let more: Vec<_> = have.difference(want).copied().collect();
    let less: Vec<_> = want.difference(have).copied().collect();
    if more.is_empty() && less.is_empty() {
        return Ok(());
    }
    Err(format!("{what} against symbols.txt: too many: {}; missing: {}", more.join(" "), less.join(" ")))
}

fn prints(example: &str, command: &mut Command) -> Done {
    let want = PRINTED.iter().find(|(end, _)| *end == example).map_or("", |(_, text)| text);
    let printed = said(command)?;
    if let Some(line) = difference(want, &printed) {
        return Err(format!("{command:?}: {line}"));
    }
    passed(&format!("example {:?}", command.get_program()))
}

fn passed(what: &str) -> Done {
    println!("  {what}");
    Ok(())
}

fn skipped(what: &str, how: &str) -> Done {
    println!("  SKIPPED {what}: {how}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_list_is_an_assertion() {
        let file = assertions("a_t 16\na_t.b 4\nCODE -3\n");
        for assertion in ["sizeof(a_t) == 16", "offsetof(a_t, b) == 4", "(int)(CODE) == -3"] {
            assert!(file.contains(&format!("_Static_assert({assertion}, ")), "{file}");
        }
    }

    #[test]
    fn differences_are_found_in_any_line() {
        assert_eq!(difference("a 1\nb 2\n", "a 1\nb 2"), None);
        assert_eq!(difference("a 1\nb 2\n", "a 1\nb 3\n").as_deref(), Some("`b 2` is `b 3`"));
        assert_eq!(difference("a 1\n", "").as_deref(), Some("`a 1` is `nothing`"));
        assert_eq!(difference("", "a 1\n").as_deref(), Some("`nothing` is `a 1`"));
    }

    #[test]
    fn the_programs_of_the_pages_are_found_with_what_they_print() {
        let page = "# A\n```c\nint main;\n```\nprints\n```text\none\ntwo\n```\n```c (a part)\nx\n```\n```c\nint y;\n```\n";
        let tree = Tree::of(
            [("docs/a.md".to_owned(), page.to_owned()), ("b.md".to_owned(), page.to_owned())].into(),
        );
        let found: Vec<_> = programs(&tree).into_iter().map(|it| (it.place, it.text, it.prints)).collect();
        let want = [("docs/a.md:2", "int main;\n", "one\ntwo\n"), ("docs/a.md:13", "int y;\n", "")];
        assert_eq!(
            found,
            want.map(|(place, text, prints)| (place.to_owned(), text.to_owned(), prints.to_owned()))
        );
    }

    #[test]
    fn data_symbols_have_their_size() {
        assert_eq!(symbol("00000000000edd14 0000000000000005 T a").as_deref(), Some("a"));
        assert_eq!(symbol("00000000000edd14 T a").as_deref(), Some("a"));
        assert_eq!(symbol("0000000000395b18 0000000000000020 D b").as_deref(), Some("b data 32"));
        assert_eq!(symbol("0000000000395b18 0000000000000004 B b").as_deref(), Some("b data 4"));
        assert_eq!(symbol(""), None);
    }

    #[test]
    fn both_kinds_of_wrong_symbols_are_named() {
        let error = equal("exports", &["a", "x"].into(), &["a", "b"].into()).expect_err("they differ");
        assert!(error.contains("too many: x;") && error.contains("missing: b"), "{error}");
        equal("exports", &["a"].into(), &["a"].into()).expect("they are the same");
    }
}
