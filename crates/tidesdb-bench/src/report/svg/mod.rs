//! Small drawing code for SVG: a canvas whose text is always escaped, scales with ticks, and the look.

pub(crate) mod canvas;
pub(crate) mod scale;
pub(crate) mod theme;

pub(crate) use canvas::Canvas;
pub(crate) use scale::Scale;
