//! The commands and arguments of a program as text. With it one program completes the arguments of another, and writes its manual pages,
//! without being linked with it.

use clap::builder::{PossibleValuesParser, StyledStr};
use clap::{Arg, ArgAction, Command, ValueHint};
use serde_json::{Value, json};

/// Returns the commands and arguments of `command` as JSON, without those that are hidden or that all commands have.
pub fn write(command: &Command) -> String {
    described(command).to_string()
}

/// Returns the command that [`write()`] described; `None` if `text` is something else. It completes and documents, it does not parse.
pub fn read(text: &str) -> Option<Command> {
    command(&serde_json::from_str(text).ok()?)
}

fn described(command: &Command) -> Value {
    let arguments = command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_global_set());
    let commands = command.get_subcommands().filter(|deeper| !deeper.is_hide_set());
    json!({
        "name": command.get_name(),
        "about": text(command.get_about()),
        "long_about": text(command.get_long_about()),
        "arguments": arguments.map(argument_described).collect::<Vec<_>>(),
        "commands": commands.map(described).collect::<Vec<_>>(),
    })
}

fn argument_described(arg: &Arg) -> Value {
    // A flag may have names and values of no meaning.
    let has_value = arg.get_action().takes_values();
    let values = arg.get_possible_values().into_iter().filter(|value| has_value && !value.is_hide_set());
    let values = values.map(|value| value.get_name().to_owned());
    let defaults = arg.get_default_values().iter().filter(|_| has_value).map(|value| value.to_string_lossy());
    let names = arg.get_value_names().filter(|_| has_value).unwrap_or_default();
    json!({
        "id": arg.get_id().as_str(),
        "long": arg.get_long(),
        "short": arg.get_short(),
        "help": text(arg.get_help()),
        "long_help": text(arg.get_long_help()),
        "has_value": has_value,
        "is_repeated": matches!(arg.get_action(), ArgAction::Append | ArgAction::Count),
        "is_required": arg.is_required_set(),
        "hides_values": arg.is_hide_possible_values_set(),
        "hint": format!("{:?}", arg.get_value_hint()),
        "value_names": names.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        "values": values.collect::<Vec<_>>(),
        "defaults": defaults.collect::<Vec<_>>(),
    })
}

fn text(styled: Option<&StyledStr>) -> Option<String> {
    styled.map(ToString::to_string)
}

fn command(value: &Value) -> Option<Command> {
    let mut out = Command::new(string(value, "name")?);
    if let Some(about) = string(value, "about") {
        out = out.about(about);
    }
    if let Some(about) = string(value, "long_about") {
        out = out.long_about(about);
    }
    for arg in value["arguments"].as_array()? {
        out = out.arg(argument(arg)?);
    }
    for deeper in value["commands"].as_array()? {
        out = out.subcommand(command(deeper)?);
    }
    Some(out)
}

fn argument(value: &Value) -> Option<Arg> {
    let is = |name: &str| value[name].as_bool().unwrap_or(false);
    let mut out = Arg::new(string(value, "id")?);
    if let Some(long) = string(value, "long") {
        out = out.long(long);
    }
    if let Some(short) = string(value, "short").and_then(|short| short.chars().next()) {
        out = out.short(short);
    }
    if let Some(help) = string(value, "help") {
        out = out.help(help);
    }
    if let Some(help) = string(value, "long_help") {
        out = out.long_help(help);
    }
    out = out.action(match (is("has_value"), is("is_repeated")) {
        (true, true) => ArgAction::Append,
        (true, false) => ArgAction::Set,
        (false, true) => ArgAction::Count,
        (false, false) => ArgAction::SetTrue,
    });
    if is("has_value") {
        out = out.value_names(strings(value, "value_names")).default_values(strings(value, "defaults"));
        out = out.value_hint(string(value, "hint")?.parse().unwrap_or(ValueHint::Unknown));
        let values = strings(value, "values");
        if !values.is_empty() {
            out = out.value_parser(PossibleValuesParser::new(values));
        }
    }
    Some(out.required(is("is_required")).hide_possible_values(is("hides_values")))
}

fn string(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

fn strings(value: &Value, name: &str) -> Vec<String> {
    value[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_described_can_be_read() {
        let suite =
            Arg::new("suite").value_parser(["quick", "slow"]).default_value("quick").help("The suite");
        let dir = Arg::new("dir").long("dir").short('d').value_name("DIR").value_hint(ValueHint::DirPath);
        let own = Arg::new("own").long("own").hide(true);
        let json = Arg::new("json").long("json").action(ArgAction::SetTrue).global(true);
        let all = Arg::new("all").long("all").value_name("ALL").action(ArgAction::SetTrue);
        let list = Command::new("list").arg(all);
        let program = Command::new("tidesdb-x")
            .about("Measures")
            .long_about("Measures much")
            .args([suite, dir.required(true).long_help("Where to"), own, json])
            .subcommand(list)
            .subcommand(Command::new("child").hide(true));
        let text = write(&program);
        let back = read(&text).unwrap();
        assert_eq!(write(&back), text, "nothing is lost");
        let names: Vec<&str> = back.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        assert_eq!(names, ["suite", "dir"]);
        let dir = back.get_arguments().find(|arg| arg.get_id() == "dir").unwrap();
        assert_eq!((dir.get_short(), dir.get_value_hint()), (Some('d'), ValueHint::DirPath));
        assert!(dir.is_required_set() && dir.get_long_help().is_some());
        assert_eq!(back.get_subcommands().map(Command::get_name).collect::<Vec<_>>(), ["list"]);
        back.debug_assert();
    }

    #[test]
    fn something_else_is_no_description() {
        for text in ["", "{}", "[1]", r#"{"name":"x"}"#, r#"{"name":"x","arguments":[{}],"commands":[]}"#] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}
