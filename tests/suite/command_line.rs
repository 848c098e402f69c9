//! The command line: output into pipes that are closed, exit codes, colours, and the options of the
//! log.

mod exit_codes;
mod mistakes;
mod pipes;
mod terminal;
