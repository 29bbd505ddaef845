//! The names that an argument may have: completions offer them, and the nearest one is shown for a wrong one.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};

/// Returns the name that was probably meant by `wrong`; `None` if all names differ too much from it.
pub fn nearest<N: AsRef<str>>(wrong: &str, names: impl IntoIterator<Item = N>) -> Option<N> {
    let distance_max = (wrong.chars().count() / 3).max(1);
    let wrong = wrong.to_lowercase();
    let distance = |name: &N| strsim::osa_distance(&wrong, &name.as_ref().to_lowercase());
    let distances = names.into_iter().map(|name| (distance(&name), name));
    let near = distances.filter(|(distance, _)| *distance <= distance_max);
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// A parser of arguments that offers names. Which arguments are valid is up to `parse`: it may accept others, and arguments that
/// begin with a name.
#[derive(Clone)]
pub struct Offer<P> {
    names: Vec<&'static str>,
    parse: P,
}

impl<P> Offer<P> {
    /// Creates a parser that offers `names`.
    pub fn new(names: impl IntoIterator<Item = &'static str>, parse: P) -> Self {
        Self { names: names.into_iter().collect(), parse }
    }
}

impl<T, P> TypedValueParser for Offer<P>
where
    T: Clone + Send + Sync + 'static,
    P: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let Self { names, parse } = self.clone();
        let parse = move |text: &str| parse(text).map_err(|why| meant(why, text, &names));
        parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}

/// Adds the name that was probably meant to the reason `why`.
fn meant(why: String, wrong: &str, names: &[&str]) -> String {
    match nearest(wrong, names) {
        Some(name) => format!("{why}\n\n  tip: did you mean '{name}'?"),
        None => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["users", "default", "orders", "u"];
        for (wrong, meant) in [
            ("user", Some("users")),
            ("suers", Some("users")),
            ("USERS", Some("users")),
            ("defualt", Some("default")),
            ("ordres", Some("orders")),
            ("v", Some("u")),
            ("u1", Some("u")),
            ("fruit", None),
            ("", Some("u")),
        ] {
            assert_eq!(nearest(wrong, names), meant, "{wrong}");
        }
        assert_eq!(nearest("a", [""; 0]), None);
    }
}
