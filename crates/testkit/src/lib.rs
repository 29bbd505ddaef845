//! What the tests of the whole engine share: a model that is obviously right, scripts of operations, and runners that
//! crash, fail and damage the engine while a script runs and compare what is left with the model.

pub mod check;
pub mod damage;
pub mod faults;
pub mod group;
pub mod history;
pub mod kill;
pub mod model;
pub mod order;
pub mod report;
pub mod rng;
pub mod script;
pub mod sweep;
pub mod trial;
pub mod watch;
pub mod world;
