//! A drawing of SVG elements. All text is escaped only here. Styles are CSS classes, so that a page and a file
//! can style the same drawing.

use std::fmt::Write;

use super::super::words::escape;

/// A position: x to the right, y down.
pub(crate) type At = (f64, f64);

/// A drawing.
#[derive(Clone, Debug)]
pub(crate) struct Canvas {
    /// Its width.
    pub(crate) width: f64,
    /// Its height; it may grow while it is drawn.
    pub(crate) height: f64,
    body: String,
}

/// Width of a character of the 12 pixel text, on average: for layout only.
pub(crate) const CHARACTER: f64 = 6.7;

/// Shapes of engines, so that engines differ not only in colour. Each fits a circle of radius 5.
const SHAPES: [&str; 9] = [
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "M-4.2 -4.2h8.4v8.4h-8.4z",
    "M0 -5.8L5.8 0L0 5.8L-5.8 0z",
    "M0 -5.4L5.4 4.2H-5.4z",
    "M0 5.4L5.4 -4.2H-5.4z",
    "M-1.9 -5.4H1.9V-1.9H5.4V1.9H1.9V5.4H-1.9V1.9H-5.4V-1.9H-1.9z",
    "M-5.4 0L-2.7 -4.7H2.7L5.4 0L2.7 4.7H-2.7z",
    "M-5.4 -2.6H5.4V2.6H-5.4z",
    "M-2.4 -5.4H2.4V5.4H-2.4z",
];

impl Canvas {
    /// Creates an empty drawing.
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// Adds a straight line.
    pub(crate) fn line(&mut self, (x1, y1): At, (x2, y2): At, class: &str) {
        let _ = writeln!(
            self.body,
            r#"<line x1="{}" y1="{}" x2="{}" y2="{}" class="{class}"/>"#,
            short(x1),
            short(y1),
            short(x2),
            short(y2)
        );
    }

    /// Adds a rectangle with this upper left corner.
    pub(crate) fn rect(&mut self, (x, y): At, (width, height): At, class: &str) {
        let _ = writeln!(
            self.body,
            r#"<rect x="{}" y="{}" width="{}" height="{}" class="{class}"/>"#,
            short(x),
            short(y),
            short(width.max(0.0)),
            short(height.max(0.0))
        );
    }

    /// Adds a line of text; classes `end` and `mid` determine which part of the text is at the position.
    pub(crate) fn text(&mut self, (x, y): At, class: &str, text: &str) {
        let text = escape(text);
        let _ =
            writeln!(self.body, r#"<text x="{}" y="{}" class="{class}">{text}</text>"#, short(x), short(y));
    }

    /// Adds a line of text with a longer tooltip.
    pub(crate) fn hinted(&mut self, (x, y): At, class: &str, (text, hint): (&str, &str)) {
        let (text, hint) = (escape(text), escape(hint));
        let _ = writeln!(
            self.body,
            r#"<text x="{}" y="{}" class="{class}">{text}<title>{hint}</title></text>"#,
            short(x),
            short(y)
        );
    }

    /// Adds a name and a softer remark after it, with a tooltip.
    pub(crate) fn label(&mut self, (x, y): At, (name, remark): (&str, &str), hint: &str) {
        let (name, remark, hint) = (escape(name), escape(remark), escape(hint));
        let _ = writeln!(
            self.body,
            r#"<text x="{}" y="{}">{name} <tspan class="soft small">{remark}</tspan><title>{hint}</title></text>"#,
            short(x),
            short(y)
        );
    }

    /// Adds the sign of an engine, with a tooltip; one whose class ends with `tiny` is smaller.
    pub(crate) fn mark(&mut self, shape: usize, (x, y): At, class: &str, hint: &str) {
        let title = if hint.is_empty() { String::new() } else { format!("<title>{}</title>", escape(hint)) };
        let scale = if class.ends_with(" tiny") { " scale(.72)" } else { "" };
        let _ = writeln!(
            self.body,
            r#"<path d="{}" transform="translate({} {}){scale}" class="mark {class}">{title}</path>"#,
            SHAPES[shape % SHAPES.len()],
            short(x),
            short(y)
        );
    }

    /// Adds a line through positions.
    pub(crate) fn path(&mut self, places: &[At], class: &str) {
        let mut d = String::new();
        for (i, (x, y)) in places.iter().enumerate() {
            let _ = write!(d, "{}{} {}", if i == 0 { 'M' } else { 'L' }, short(*x), short(*y));
        }
        let _ = writeln!(self.body, r#"<path d="{d}" class="{class}"/>"#);
    }

    /// Returns the element for a page, which provides the styles. The name and the description are for screen readers.
    pub(crate) fn inline(&self, name: &str, about: &str, class: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {} {}\" class=\"chart {class}\" role=\"img\" aria-label=\"{}\">\n<desc>{}</desc>\n{}</svg>\n",
            short(self.width),
            short(self.height),
            escape(name),
            escape(about),
            self.body
        )
    }

    /// Returns the content, for another drawing.
    pub(crate) fn body(&self) -> &str {
        &self.body
    }
}

/// Formats a number; a tenth of a pixel is precise enough.
fn short(n: f64) -> String {
    let n = if n.is_finite() { n } else { 0.0 };
    let text = format!("{n:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_numbers_are_numbers() {
        let mut canvas = Canvas::new(100.0, 50.0);
        canvas.text((1.0, f64::NAN), "a", "<script>\"&");
        canvas.mark(77, (-0.01, 2.25), "e1", "</title>");
        canvas.path(&[(0.0, 1.0), (f64::INFINITY, 2.0)], "b");
        canvas.rect((0.0, 0.0), (-3.0, 1.0), "c");
        let text = canvas.inline("a \"name\"", "<desc>", "");
        let document = roxmltree::Document::parse(&text).unwrap();
        let texts: Vec<_> = document.descendants().filter(|n| n.has_tag_name("text")).collect();
        assert_eq!((texts.len(), texts[0].text()), (1, Some("<script>\"&")));
        assert_eq!(document.root_element().attribute("aria-label"), Some("a \"name\""));
        assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("-3"), "{text}");
    }
}
