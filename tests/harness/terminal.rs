//! Commands at a terminal, with an answer to their question.

use std::process::{Command, ExitStatus};

/// A command that has ended.
#[derive(Debug)]
pub struct AtTerminal {
    pub status: ExitStatus,
    /// Everything that the terminal shows, the answer included.
    pub output: String,
}

/// Types the answer and prints what the terminal shows.
const SCRIPT: &str = "
PTY.spawn(*ARGV[1..]) do |shown, typed, pid|
  typed.puts ARGV[0]
  begin
    print shown.readpartial(4096) while true
  rescue EOFError, Errno::EIO
  end
  exit Process.wait2(pid)[1].exitstatus
end";

/// Runs a command whose standard input and outputs are a terminal, at which a line is typed.
pub fn run(command: &Command, answer: &str) -> AtTerminal {
    let mut terminal = Command::new("ruby");
    terminal
        .args(["-rpty", "-e", SCRIPT, "--", answer])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    let output = terminal
        .output()
        .expect("`ruby` is installed; `tests/run` does that");
    AtTerminal {
        status: output.status,
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
    }
}
