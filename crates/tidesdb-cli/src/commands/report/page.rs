//! The page: one file with its styles, its script, the charting library and the data.
//!
//! Names and keys of somebody else are in the data only. The data is JSON in an element that no browser runs, without a character that could end it, and
//! the script puts texts into the page as texts. The page may load nothing, and run nothing but the two scripts that bear its nonce.

use std::fmt::Write;

use serde_json::Value;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const CHARTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/uplot/uPlot.iife.min.js"));
const CHARTS_STYLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/uplot/uPlot.min.css"));
/// The licence of the library asks to be part of each copy.
const CHARTS_LICENSE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/uplot/LICENSE"));

/// Returns the page. `nonce` must be one that nobody could know when the names in `data` were chosen.
pub(super) fn html(data: &Value, nonce: &str) -> String {
    let data = embedded(data);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-{nonce}'; \
         style-src 'nonce-{nonce}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>TidesDB report</title>\n\
         <style nonce=\"{nonce}\">\n{CHARTS_STYLE}\n{STYLE}</style>\n</head>\n<body>\n\
         <main id=\"page\"><noscript><p>This page draws its figures with a script, which is switched off here. \
         <code>tidesdb stats</code> prints them as text.</p></noscript></main>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script nonce=\"{nonce}\">\n/*!\nuPlot:\n\n{CHARTS_LICENSE}*/\n{CHARTS}</script>\n\
         <script nonce=\"{nonce}\">\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// Makes every text one whose characters all are seen where they stand: names may contain others, and a page would hide them or turn around what
/// follows.
pub(super) fn make_visible(data: &mut Value) {
    match data {
        Value::String(text) if text.contains(is_unseen) => {
            let mut out = String::with_capacity(text.len() + 16);
            for c in text.chars() {
                if is_unseen(c) {
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(c)); // a string takes everything
                } else {
                    out.push(c);
                }
            }
            *text = out;
        }
        Value::Array(all) => all.iter_mut().for_each(make_visible),
        Value::Object(all) => all.values_mut().for_each(make_visible),
        _ => {}
    }
}

/// True for control characters, those that change the direction of text, separators of lines, and those without a width.
fn is_unseen(c: char) -> bool {
    let ranges = [
        '\u{ad}'..='\u{ad}',
        '\u{61c}'..='\u{61c}',
        '\u{180e}'..='\u{180e}',
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{feff}'..='\u{feff}',
        '\u{fff9}'..='\u{fffb}',
        '\u{e0000}'..='\u{e0fff}',
    ];
    c.is_control() || ranges.iter().any(|range| range.contains(&c))
}

/// The data as JSON that may stand in an element of HTML, and in a script.
fn embedded(data: &Value) -> String {
    let json = data.to_string();
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c)); // all of them are in strings
            }
            c => out.push(c),
        }
    }
    out
}
