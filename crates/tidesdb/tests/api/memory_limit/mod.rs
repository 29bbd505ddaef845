//! Memory that obeys a number: whatever a program opens, writes and holds stays within `memory_limit`.

mod beyond_memory;
mod many_families;
mod memory;
mod page_cache;
mod resources;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod ten_thousand;
