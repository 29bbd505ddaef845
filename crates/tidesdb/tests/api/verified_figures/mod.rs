//! Figures that can be verified: statistics, estimates, metrics and events agree with what the database did and with its files.

mod estimates;
mod events;
mod explain;
mod latencies;
mod metrics;
mod openmetrics;
mod profiles;
mod statistics;
mod writer;
