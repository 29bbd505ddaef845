//! The style: colours for light and dark, one style sheet for the drawings, and the frame of a drawing in a file.
//!
//! The colours of engines also differ in lightness, and each engine has its own shape. Wins are teal and point up, losses
//! are red and point down.

use super::super::words::escape;
use super::canvas::{CHARACTER, Canvas};

/// Light colour scheme.
pub(crate) const LIGHT: &str = "--page:#f6f5f1;--card:#fffefb;--ink:#1c1d21;--soft:#5b5d66;--faint:#8b8d96;\
--grid:#e7e5de;--rule:#cfccc2;--win:#00735c;--tie:#6a6c75;--loss:#b3261e;--winfill:#e0f1ea;--lossfill:#fae6e2;\
--e0:#0b62c4;--e1:#d9730d;--e2:#7a3fc4;--e3:#c2358a;--e4:#0d8f8f;--e5:#8a6d00;--e6:#9c4a2f;--e7:#4d6b2f;--e8:#35507a;\
--en:#9a9ca5;";

/// Dark colour scheme.
pub(crate) const DARK: &str = "--page:#131418;--card:#1b1d22;--ink:#eeeef0;--soft:#b0b2bb;--faint:#868993;\
--grid:#2b2e35;--rule:#43464f;--win:#3fc7a4;--tie:#a3a6b0;--loss:#ff8578;--winfill:#172e29;--lossfill:#342224;\
--e0:#5aa9ff;--e1:#ffa04d;--e2:#b993ff;--e3:#ff86c8;--e4:#4fd3d3;--e5:#e3c44a;--e6:#e59a7d;--e7:#a4c77d;--e8:#93add6;\
--en:#7d808a;";

/// The style of drawings.
pub(crate) const CHART: &str = include_str!("../assets/chart.css");

/// Returns the CSS class of the engine at this index; the null engine has its own.
pub(crate) fn engine(place: usize, is_yardstick: bool) -> String {
    if is_yardstick { "en".to_owned() } else { format!("e{}", place % 9) }
}

/// Returns a drawing as a separate file, with its title, its caption, a background, and both colour schemes.
pub(crate) fn file(canvas: &Canvas, title: &str, caption: &str) -> String {
    const MARGIN: f64 = 20.0;
    let (width, lines) = (canvas.width + 2.0 * MARGIN, wrapped(caption, canvas.width));
    let top = MARGIN + 30.0 + 17.0 * lines.len() as f64;
    let height = top + canvas.height + MARGIN;
    let mut head = Canvas::new(width, height);
    head.text((MARGIN, MARGIN + 14.0), "title", title);
    for (i, line) in lines.iter().enumerate() {
        head.text((MARGIN, MARGIN + 36.0 + 17.0 * i as f64), "caption", line);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" viewBox=\"0 0 {width} {height:.0}\" \
         role=\"img\" aria-label=\"{}\">\n<title>{}</title>\n<desc>{}</desc>\n<style>:root{{{LIGHT}}}\
         @media (prefers-color-scheme:dark){{:root{{{DARK}}}}}\n{CHART}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" class=\"card\"/>\n<g class=\"chart\">\n{}\
         <g transform=\"translate({MARGIN} {top})\">\n{}</g>\n</g>\n</svg>\n",
        escape(title),
        escape(title),
        escape(caption),
        head.body(),
        canvas.body()
    )
}

/// Breaks text into lines of about this width.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    let most = (width / (CHARACTER * 0.95)) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < most => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_well_formed_and_complete() {
        let mut canvas = Canvas::new(300.0, 40.0);
        canvas.text((0.0, 10.0), "", "a & b");
        let text = file(&canvas, "<title>", &"a caption of many words ".repeat(9));
        let document = roxmltree::Document::parse(&text).unwrap();
        let root = document.root_element();
        assert_eq!(root.attribute("aria-label"), Some("<title>"));
        assert!(root.children().any(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "desc"))));
        assert!(text.contains("prefers-color-scheme:dark") && text.contains("class=\"caption\""));
        assert!(!text.contains("url(") && text.matches("http").count() == 1, "{text}");
    }

    /// Returns the contrast of two colours after WCAG 2.
    fn contrast(a: &str, b: &str) -> f64 {
        let light = |colour: &str| {
            let part = |i: usize| {
                let n = f64::from(u8::from_str_radix(&colour[i..i + 2], 16).unwrap()) / 255.0;
                if n <= 0.04045 { n / 12.92 } else { ((n + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
        };
        let (a, b) = (light(a), light(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn colours_have_enough_contrast() {
        for colours in [LIGHT, DARK] {
            let of = |name: &str| {
                let found = colours.split(';').find_map(|pair| pair.strip_prefix(&format!("--{name}:")));
                found.unwrap_or_else(|| panic!("{name}"))
            };
            for name in ["ink", "soft", "win", "tie", "loss"] {
                assert!(contrast(of(name), of("card")) >= 4.5, "{name} {}", contrast(of(name), of("card")));
                assert!(contrast(of(name), of("page")) >= 4.5, "{name} {}", contrast(of(name), of("page")));
            }
            for name in ["e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"] {
                assert!(contrast(of(name), of("card")) >= 3.0, "{name} {}", contrast(of(name), of("card")));
            }
            assert!(contrast(of("win"), of("winfill")) >= 4.5 && contrast(of("loss"), of("lossfill")) >= 4.5);
        }
    }
}
