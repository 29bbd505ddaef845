//! Shared parts of the tests of the whole engine: a model that is simple enough to be verified by reading, scripts of
//! operations, and runners. The runners crash, fault and damage the engine while a script runs, and compare the
//! remaining data with the model.

pub mod rng;
pub mod process;
pub mod reopen;
pub mod report;
pub mod disks;
pub mod home;
pub mod pages;
pub mod order;
pub mod model;
pub mod damage;
pub mod script;
pub mod watch;
pub mod metamorphic;
pub mod scarce;
pub mod world;
pub mod check;
pub mod follower;
pub mod sweep;
pub mod trial;
pub mod history;
pub mod kill;
pub mod beside;
pub mod reader_cost;
pub mod memory;
pub mod faults;
pub mod group;
pub mod isolation;
pub mod fuzz;
#[cfg(simulated)]
pub mod sim;
