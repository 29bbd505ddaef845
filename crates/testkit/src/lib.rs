//! Shared by the tests of the whole engine: a simple, obviously correct model, scripts of operations, and runners that
//! crash, fail and damage the engine while a script runs and compare the result with the model.

pub mod rng;
pub mod report;
pub mod home;
pub mod order;
pub mod model;
pub mod damage;
pub mod script;
pub mod watch;
pub mod world;
pub mod check;
pub mod sweep;
pub mod trial;
pub mod history;
pub mod kill;
pub mod faults;
pub mod group;
pub mod isolation;
pub mod invariants;
pub mod fuzz;
pub mod golden;
