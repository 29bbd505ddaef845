//! Files that the user names and a command writes. A file that exists keeps its content until the new one is complete: a command that fails
//! in the middle, because of a damaged value or a full disk, takes nothing away.
//!
//! The new content is in `NAME.part` beside the file, and gets its name by a rename. What is no regular file, such as a device or a pipe, is
//! written as it is.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};
use crate::host;

/// So many names are tried for the part.
const PARTS_MAX: usize = 100;

/// A file that is being written.
pub(crate) struct NewFile {
    file: File,
    /// Where the file will be.
    path: PathBuf,
    /// Where it is; `None` if it is there already, or stays in parts.
    part: Option<PathBuf>,
    /// Those of the file that is replaced.
    permissions: Option<Permissions>,
}

impl NewFile {
    /// Begins the file at `path`.
    pub(crate) fn create(path: &Path) -> Outcome<Self> {
        Self::begin(path).map_err(|e| Failure::file("create", path, &e))
    }

    fn begin(path: &Path) -> io::Result<Self> {
        let is_file = std::fs::metadata(path).map(|found| found.is_file()).ok();
        if is_file == Some(false) {
            return Ok(Self {
                file: File::create(path)?,
                path: path.to_owned(),
                part: None,
                permissions: None,
            });
        }
        // A link stays a link, and a file that cannot be written is not replaced.
        let (path, permissions) = match is_file {
            None => (path.to_owned(), None),
            Some(_) => {
                let old = host::open_to_write(path)?;
                (std::fs::canonicalize(path)?, Some(old.metadata()?.permissions()))
            }
        };
        let (file, part) = create_part(&path)?;
        let this = Self { file, path, part: Some(part), permissions };
        // At once: what comes into the part of a private file is private, too.
        if let Some(old) = &this.permissions {
            this.file.set_permissions(old.clone())?;
        }
        Ok(this)
    }

    /// Makes the content durable and gives it its name.
    pub(crate) fn finish(mut self) -> Outcome<()> {
        let finished = self.replace();
        finished.map_err(|e| Failure::file("write", &self.path, &e))
    }

    fn replace(&mut self) -> io::Result<()> {
        let Some(part) = &self.part else { return self.file.sync_all().or_else(unless_unsupported) };
        if let Some(permissions) = self.permissions.take() {
            self.file.set_permissions(permissions)?;
        }
        self.file.sync_all()?;
        std::fs::rename(part, &self.path)?;
        self.part = None;
        // The name is durable on systems that can sync a directory; on others it becomes so by itself.
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        drop(host::open(dir).and_then(|dir| dir.sync_all()));
        Ok(())
    }

    /// Leaves what was written so far beside the file, and adds to `failure` where it is.
    pub(crate) fn leave(mut self, failure: Failure) -> Failure {
        match self.part.take() {
            Some(part) => failure.also(format!("what was written before it is in {}", part.display())),
            None => failure,
        }
    }
}

/// Creates a file beside `path` that does not exist yet.
fn create_part(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    for n in 1..=PARTS_MAX {
        let mut name = OsString::from(name);
        name.push(if n == 1 { ".part".to_owned() } else { format!(".part{n}") });
        let part = path.with_file_name(name);
        match File::create_new(&part) {
            Ok(file) => return Ok((file, part)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A device may have nothing to sync.
fn unless_unsupported(e: io::Error) -> io::Result<()> {
    if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) { Ok(()) } else { Err(e) }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            let _ = std::fs::remove_file(part); // what is left of a failed command, at worst
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_file_keeps_its_content_until_the_new_one_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "old").unwrap();
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"ne").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        drop(file);
        assert_eq!(
            (names(dir.path()), std::fs::read(&path).unwrap()),
            (vec!["f".to_owned()], b"old".to_vec())
        );

        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(
            (names(dir.path()), std::fs::read(&path).unwrap()),
            (vec!["f".to_owned()], b"new".to_vec())
        );
    }

    #[test]
    fn what_a_failed_command_wrote_can_be_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(dir.path().join("f.part"), "of the user").unwrap();
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"some").unwrap();
        let failure = file.leave(Failure::failed("why").next("do this"));
        assert!(
            failure.message().contains("next: do this; what was written before it is in "),
            "{failure:?}"
        );
        assert_eq!(names(dir.path()), ["f.part", "f.part2"]);
        assert_eq!(std::fs::read(dir.path().join("f.part")).unwrap(), b"of the user");
        assert_eq!(std::fs::read(dir.path().join("f.part2")).unwrap(), b"some");
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(NewFile::create(dir.path()).is_err(), "a directory");
        assert!(NewFile::create(&dir.path().join("none").join("f")).is_err());
        let path = dir.path().join("f");
        std::fs::write(&path, "old").unwrap();
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&path, permissions.clone()).unwrap();
        // The superuser may write it; it stays as protected as it was.
        if let Ok(mut file) = NewFile::create(&path) {
            file.write_all(b"new").unwrap();
            file.finish().unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions(), permissions);
        }
        assert_eq!(names(dir.path()), ["f"]);
    }

    /// Others could read the part of a private file while it was written, and when it was left.
    #[test]
    #[cfg(unix)]
    fn the_part_of_a_private_file_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let [path, part] = ["f", "f.part"].map(|name| dir.path().join(name));
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let mut file = NewFile::create(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&part), 0o600);
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!((mode(&path), names(dir.path())), (0o600, vec!["f".to_owned()]));
    }

    #[test]
    #[cfg(unix)]
    fn links_and_devices_stay_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("link"));
        std::fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut file = NewFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read_link(&link).unwrap(), path);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let mut null = NewFile::create(Path::new("/dev/null")).unwrap();
        null.write_all(b"x").unwrap();
        null.finish().unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    }
}
