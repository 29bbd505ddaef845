//! The suite of openraft on its own stores: see `tests`.
