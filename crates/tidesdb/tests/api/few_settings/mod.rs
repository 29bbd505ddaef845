//! Few settings: each has a checked domain, and works at both ends of it. A family has settings and an order of its keys, so the tests of
//! families are here.

mod clones;
mod comparators;
mod extremes;
mod families;
mod settings;
