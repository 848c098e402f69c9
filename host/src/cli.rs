//! The command line: one file per command, `output` and `exit` for all of them. Owns arguments,
//! output and exit codes.

pub mod api;
mod bbs;
mod cells;
mod check_config;
mod compile_component;
mod confirm;
mod dev;
mod documentation;
mod domains;
mod drain;
mod exit;
mod hints;
mod import;
mod interrupt;
pub mod keys;
pub mod lrp;
pub mod migrate;
pub mod module;
mod output;
pub mod progress;
mod ready;
pub mod serve;
pub mod task;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use anstream::ColorChoice;
use bbs_database::message_of_server;
use clap::{Parser, Subcommand};
use rustix::process::{Resource, Rlimit, setrlimit};

use bbs_modules::sandbox::COMPILE_COMMAND;
use bbs_work::causes::causes;
use exit::Exit;

/// A drop-in server for Cloud Foundry Diego's BBS whose schema migrations and API translators are
/// sandboxed WebAssembly modules.
#[derive(Debug, Parser)]
#[command(name = "bbs", version, long_version = version::LONG.as_str(), max_term_width = 100)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", Exit::table()))]
pub struct Cli {
    /// Whether help, errors and the log have colours [default: on a terminal, unless NO_COLOR is
    /// set]
    #[arg(long, global = true, value_name = "WHEN")]
    color: Option<clap::ColorChoice>,
    #[command(subcommand)]
    command: CliCommand,
}

const EXAMPLES: &str = "\
Try it:  bbs dev

Run it:  bbs check-config --config bbs.json, then bbs serve --config bbs.json";

#[derive(Debug, Subcommand)]
enum CliCommand {
    Api(api::ApiCommand),
    Dev(dev::DevCommand),
    Serve(serve::ServeCommand),
    CheckConfig(check_config::CheckConfigCommand),
    Ready(ready::ReadyCommand),
    Drain(drain::DrainCommand),
    Migrate(migrate::MigrateCommand),
    Import(import::ImportCommand),
    Keys(keys::KeysCommand),
    Module(module::ModuleCommand),
    Lrp(lrp::LrpCommand),
    Task(task::TaskCommand),
    Cells(cells::CellsCommand),
    Domains(domains::DomainsCommand),
    #[command(name = COMPILE_COMMAND, hide = true)]
    CompileComponent(compile_component::CompileComponentCommand),
    #[command(hide = true)]
    Documentation(documentation::DocumentationCommand),
}

impl Cli {
    /// Parses the arguments; also accepts the command line of Diego's BBS, `bbs -config=FILE`, as
    /// `bbs serve`. Prints help or an error and ends the process where clap does.
    pub fn of(arguments: impl Iterator<Item = OsString>) -> Self {
        let arguments = with_subcommand(arguments.collect());
        // Before they are parsed, which may fail with an error that has colours.
        choose_colors(&arguments);
        Self::try_parse_from(arguments).unwrap_or_else(|error| hints::with_hint(error).exit())
    }

    /// Runs the command of the process that compiles a component, which needs no runtime, and
    /// returns its exit code; `None` for every other command.
    pub fn compile_component(&self) -> Option<ExitCode> {
        let CliCommand::CompileComponent(command) = &self.command else {
            return None;
        };
        without_core_dumps();
        Some(command.run())
    }

    /// Runs the command and returns the exit code of the process. The process leaves no core dump,
    /// which would have its keys.
    ///
    /// # Errors
    /// Whatever made the command fail; [`failed`] prints it.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        without_core_dumps();
        match self.command {
            CliCommand::Api(command) => command.run()?,
            CliCommand::Dev(command) => command.run().await?,
            CliCommand::Serve(command) => command.run().await?,
            CliCommand::CheckConfig(command) => return Ok(command.run().await?.into()),
            CliCommand::Ready(command) => return Ok(command.run().await?.into()),
            CliCommand::Drain(command) => command.run().await?,
            CliCommand::Migrate(command) => return Ok(command.run().await?.into()),
            CliCommand::Import(command) => command.run().await?,
            CliCommand::Keys(command) => command.run().await?,
            CliCommand::Module(command) => command.run().await?,
            CliCommand::Lrp(command) => command.run().await?,
            CliCommand::Task(command) => command.run().await?,
            CliCommand::Cells(command) => command.run().await?,
            CliCommand::Domains(command) => command.run().await?,
            CliCommand::CompileComponent(command) => return Ok(command.run()),
            CliCommand::Documentation(command) => command.run()?,
        }
        Ok(Exit::Success.into())
    }
}

/// One byte is less than any dump has, and at this limit alone Linux does not pipe dumps to a
/// program either (core(5)). The process stays readable to its own user in `/proc`, where it looks
/// up its owner and its open files.
fn without_core_dumps() {
    let one = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    // Fails only if the limit is 0 already.
    let _ = setrlimit(Resource::Core, one);
}

/// Prints the error of a failed command and returns the exit code for it.
pub fn failed(error: &anyhow::Error) -> ExitCode {
    print_error(error);
    Exit::of(error).into()
}

/// Prints the error and its sources.
fn print_error(error: &anyhow::Error) {
    output::note(format_args!("bbs: {}", error_text(error)));
}

/// An error and its sources, each source on a line: an error's own `Display` never contains its
/// source.
fn error_text(error: &anyhow::Error) -> String {
    let causes = causes(error.as_ref(), message_of_server)
        .into_iter()
        .map(|cause| format!("\n  because: {cause}"));
    std::iter::once(error.to_string()).chain(causes).collect()
}

/// Parses a number of the command line.
fn whole_number<N: TryFrom<u64>>(text: &str) -> Result<N, &'static str> {
    let number: u64 = text
        .parse()
        .map_err(|_| "write a whole number that is not negative")?;
    N::try_from(number).map_err(|_| "it is too large")
}

/// Sets the colours of the process to the value of `--color`, which may be anywhere in the
/// arguments.
fn choose_colors(arguments: &[OsString]) {
    let mut values = arguments.iter().enumerate().filter_map(|(at, argument)| {
        let argument = argument.to_str()?;
        argument
            .strip_prefix("--color=")
            .or_else(|| (at > 0 && arguments[at - 1] == "--color").then_some(argument))
    });
    // The parser reports a value that is none of these.
    let choice = match values.next_back().and_then(|value| value.parse().ok()) {
        Some(clap::ColorChoice::Always) => ColorChoice::Always,
        Some(clap::ColorChoice::Never) => ColorChoice::Never,
        Some(clap::ColorChoice::Auto) | None => ColorChoice::Auto,
    };
    choice.write_global();
}

/// Turns `-config` into `serve --config`: Go accepts options with one dash or two.
pub fn with_subcommand(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let first = arguments
        .get(1)
        .and_then(|first| first.to_str())
        .unwrap_or_default();
    let option = first
        .strip_prefix("--")
        .or_else(|| first.strip_prefix('-'))
        .unwrap_or_default();
    if option == "config" || option.starts_with("config=") {
        let option = format!("--{option}");
        arguments.splice(1..2, ["serve".into(), option.into()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(with_subcommand(
            line.split(' ').map(OsString::from).collect(),
        ))
    }

    #[test]
    fn diegos_command_line_serves() {
        for line in [
            "bbs -config=/a/bbs.json",
            "bbs --config=/a/bbs.json",
            "bbs -config /a/bbs.json",
            "bbs --config /a/bbs.json",
            "bbs serve --config /a/bbs.json",
            "bbs -config=/a/bbs.json --pin-api-version 0.10",
        ] {
            match read(line).map(|cli| cli.command) {
                Ok(CliCommand::Serve(serve)) => assert_eq!(serve.config(), "/a/bbs.json", "{line}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    /// Commands that run a host until it ends: their output is a log.
    const WITHOUT_RESULT: [&str; 2] = ["bbs dev", "bbs serve"];

    /// The commands without subcommands, each with its words.
    fn leaves(command: &clap::Command, words: &str) -> Vec<(String, clap::Command)> {
        let below: Vec<_> = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
            .collect();
        if below.is_empty() {
            return vec![(words.to_owned(), command.clone())];
        }
        below
            .into_iter()
            .flat_map(|below| leaves(below, &format!("{words} {}", below.get_name())))
            .collect()
    }

    /// Goal: a program can read the result of every command.
    #[test]
    fn every_command_with_a_result_prints_it_as_json_on_request() {
        let leaves = leaves(&<Cli as clap::CommandFactory>::command(), "bbs");
        let has_json = |command: &clap::Command| {
            command
                .get_arguments()
                .any(|argument| argument.get_id() == "json")
        };
        let without: Vec<_> = leaves
            .iter()
            .filter(|(_, command)| !has_json(command))
            .map(|(words, _)| words)
            .collect();
        assert_eq!(without, WITHOUT_RESULT);
        assert!(
            leaves
                .iter()
                .any(|(words, _)| words == "bbs migrate quarantine export"),
            "{}",
            leaves.len()
        );
    }

    #[test]
    fn long_version_names_commit_api_and_data_version() {
        let text = <Cli as clap::CommandFactory>::command().render_long_version();
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].starts_with(concat!("bbs ", env!("CARGO_PKG_VERSION"), " (commit ")),
            "{text}"
        );
        let api = crate::api::NATIVE.to_string();
        let data = crate::store::NATIVE.to_string();
        assert!(
            lines[1].contains(&api) && lines[2].contains(&data),
            "{text}"
        );
    }

    #[test]
    fn numbers_and_addresses_are_refused_with_their_form() {
        const NUMBER: &str = "write a whole number that is not negative";
        for (line, form) in [
            ("bbs serve --config a --pin-data-version abc", NUMBER),
            (
                "bbs serve --config a --rollback-on-drain-to-version 1.5",
                NUMBER,
            ),
            (
                "bbs drain --config a --rollback-on-drain-to-version a",
                NUMBER,
            ),
            ("bbs migrate up --config a --max-count abc", NUMBER),
            ("bbs ready --config a --wait 1s", NUMBER),
            ("bbs module layout a --at newest", NUMBER),
            ("bbs module new a --version newest", NUMBER),
            ("bbs lrp scale hello -1", NUMBER),
            ("bbs lrp scale hello 3000000000", "it is too large"),
            ("bbs dev --cells 70000", "it is too large"),
            ("bbs dev --listen 8889", "write it as IP:port"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(form), "{line}: {error}");
        }
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
        for (line, expected) in [
            ("bbs", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("bbs -config", ErrorKind::InvalidValue),
            ("bbs -configuration=x", ErrorKind::UnknownArgument),
            ("bbs -c x", ErrorKind::UnknownArgument),
            ("bbs config=x", ErrorKind::InvalidSubcommand),
            ("bbs -config=x -verbose", ErrorKind::UnknownArgument),
        ] {
            assert_eq!(read(line).unwrap_err().kind(), expected, "{line}");
        }
    }
}
