//! The simulated disks of the runners: the habits that they have, and faults that a test plants to see a runner find them.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use clap::ValueEnum;
use tidesdb_io::sim::{self, Habits, Reach, SimDisk};
use tidesdb_io::{Access, Boot, Dir, DirLock, Disk, Env, File, ManualClock, Space};

use crate::report::PLANT;

/// An operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// Linux, and with fewer calls FreeBSD.
    #[default]
    Linux,
    /// macOS.
    Macos,
    /// Windows.
    Windows,
}

/// What a simulated machine consists of.
pub type Machine = (Env, Arc<SimDisk>, Arc<ManualClock>);

impl System {
    /// Returns a machine with an empty disk.
    pub fn machine(self, seed: u64) -> Machine {
        let habits = match self {
            Self::Linux => Habits::LINUX,
            Self::Macos => Habits::MACOS,
            Self::Windows => Habits::WINDOWS,
        };
        let disk = SimDisk::new(seed);
        disk.set_habits(Planted::get().map_or(habits, |fault| fault.change(habits)));
        machine_on(disk, seed)
    }
}

/// Returns a machine with the given disk.
pub fn machine_on(disk: SimDisk, seed: u64) -> Machine {
    let (mut env, disk, clock) = sim::env_on(disk, seed);
    if let Some(fault @ (Planted::HoldCurrent | Planted::OpenListed)) = Planted::get() {
        env.disk = Arc::new(Careless { inner: env.disk, fault });
    }
    (env, disk, clock)
}

/// A fault that breaks a habit: of the file of a system, which chooses a call that reaches less than it must, or of the engine. [`PLANT`]
/// names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Planted {
    /// Files are synced by `fsync` of macOS.
    Fsync,
    /// Files are synced by `F_BARRIERFSYNC`.
    Barrier,
    /// Directories are synced by `fsync` of macOS.
    FsyncDir,
    /// A rename on Windows does not write through.
    RenameLater,
    /// A sync of a file on Windows does not make directory entries durable.
    BytesOnly,
    /// The engine keeps `CURRENT` open, which it replaces.
    HoldCurrent,
    /// The engine opens each file that a listing names.
    OpenListed,
}

impl Planted {
    fn get() -> Option<Self> {
        static PLANTED: OnceLock<Option<Planted>> = OnceLock::new();
        *PLANTED.get_or_init(|| Self::from_str(&std::env::var(PLANT).ok()?, false).ok())
    }

    fn change(self, habits: Habits) -> Habits {
        match self {
            Self::Fsync => Habits { file_sync: Reach::Cache, ..habits },
            Self::Barrier => Habits { file_sync: Reach::Barrier, ..habits },
            Self::FsyncDir => Habits { dir_sync: Reach::Cache, ..habits },
            Self::RenameLater => Habits { rename: Reach::Memory, ..habits },
            Self::BytesOnly => Habits { file_sync: Reach::Device, ..habits },
            Self::HoldCurrent | Self::OpenListed => habits,
        }
    }
}

/// A disk as an engine with a fault uses it.
#[derive(Debug)]
struct Careless {
    inner: Arc<dyn Disk>,
    fault: Planted,
}

impl Disk for Careless {
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>> {
        let inner = self.inner.open_dir(path, create)?;
        Ok(Arc::new(CarelessDir { inner, fault: self.fault, held: Mutex::default() }))
    }
}

#[derive(Debug)]
struct CarelessDir {
    inner: Arc<dyn Dir>,
    fault: Planted,
    /// A file that should be closed.
    held: Mutex<Option<Arc<dyn File>>>,
}

impl Dir for CarelessDir {
    fn create_new(&self, name: &str, prealloc: u64) -> io::Result<Arc<dyn File>> {
        self.inner.create_new(name, prealloc)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn File>> {
        let file = self.inner.open(name, access)?;
        if self.fault == Planted::HoldCurrent && name == "CURRENT" {
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&file));
        }
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        self.inner.unlink(name)
    }

    fn link(&self, name: &str, to: &dyn Dir, to_name: &str) -> io::Result<()> {
        self.inner.link(name, to, to_name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.inner.list()?;
        if self.fault == Planted::OpenListed {
            names.iter().try_for_each(|name| self.inner.open(name, Access::Read).map(drop))?;
        }
        Ok(names)
    }

    fn is_empty(&self) -> io::Result<bool> {
        self.inner.is_empty()
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        self.inner.lock(name, exclusive)
    }

    fn boot(&self) -> Boot {
        self.inner.boot()
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self.inner.as_any()
    }
}
