//! Small SVG drawing library: a canvas whose text is always escaped, scales with ticks, and styles.

pub(crate) mod canvas;
pub(crate) mod scale;
pub(crate) mod theme;

pub(crate) use canvas::Canvas;
pub(crate) use scale::Scale;
