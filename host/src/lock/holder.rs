//! Identifies the holder of a lease such that another process on the same machine can detect that
//! it is dead: a restarted host then need not wait for its own lease to expire. Cannot judge a
//! holder on another machine.

use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Stands for a property of this machine or process that cannot be read.
const UNKNOWN: &str = "unknown";
/// The column has room for 255 characters; the other parts need fewer than half.
const LONGEST_NAME: usize = 128;

/// A process during its lifetime: a process id alone may be reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    machine: String,
    pid: u32,
    started: String,
    name: String,
}

impl Holder {
    /// This process.
    pub(super) fn this(name: &str) -> Self {
        let pid = std::process::id();
        Self {
            machine: machine(),
            pid,
            started: read_stat(pid)
                .ok()
                .and_then(|stat| start_time(&stat))
                .unwrap_or_else(|| UNKNOWN.to_owned()),
            name: shortened(name),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ').map(str::to_owned);
        Some(Self {
            machine: words.next()?,
            pid: words.next()?.parse().ok()?,
            started: words.next()?,
            name: words.next()?,
        })
    }

    /// Describes a stored holder for operators, unless it has certainly ended.
    pub(super) fn describe(written: &str) -> Option<String> {
        if Self::has_ended(written) {
            return None;
        }
        let Self {
            machine: at,
            pid,
            name,
            ..
        } = Self::parse(written)?;
        let place = if at == machine() {
            "this machine"
        } else {
            "another machine"
        };
        Some(format!("{name} (pid {pid} on {place})"))
    }

    /// Whether a description is of a process with this name.
    pub(super) fn is_described(description: &str, name: &str) -> bool {
        let place = description.strip_prefix(&shortened(name));
        place.is_some_and(|place| place.starts_with(" (pid "))
    }

    /// Whether a stored holder has certainly ended.
    pub(super) fn has_ended(written: &str) -> bool {
        let Some(holder) = Self::parse(written) else {
            return false;
        };
        holder.machine == machine()
            && !holder.machine.contains(UNKNOWN)
            && process_has_ended(&holder.started, read_stat(holder.pid), || probe(holder.pid))
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            self.machine, self.pid, self.started, self.name
        )
    }
}

fn shortened(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

/// The boot of this machine and its process id namespace.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let space = fs::read_link("/proc/self/ns/pid").ok();
    let known = |text: Option<String>| {
        text.map_or(UNKNOWN.to_owned(), |text| text.trim().replace(' ', "-"))
    };
    format!(
        "{}/{}",
        known(boot),
        known(space.map(|link| link.to_string_lossy().into_owned()))
    )
}

/// Whether the process that started at `started` has certainly ended. `stat` is the content of its
/// `/proc/<pid>/stat`, and `probe` the result of [`test_kill_process`].
fn process_has_ended(
    started: &str,
    stat: io::Result<String>,
    probe: impl FnOnce() -> rustix::io::Result<()>,
) -> bool {
    match stat {
        Ok(stat) => start_time(&stat).is_none_or(|now| now != started && started != UNKNOWN),
        // A `/proc` mounted with `hidepid`, or systemd's `ProtectProc`, hides live processes of
        // other users.
        Err(_) => probe() == Err(Errno::SRCH),
    }
}

/// Checks that a process exists, by sending it no signal.
fn probe(pid: u32) -> rustix::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    test_kill_process(pid.ok_or(Errno::INVAL)?)
}

fn read_stat(pid: u32) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/stat"))
}

/// When a process started, in ticks since boot; `None` if it has ended, also if it is a zombie.
fn start_time(stat: &str) -> Option<String> {
    // The program's name is in parentheses and may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?;
    (!["Z", "X"].contains(&state)).then(|| started.to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn stored_holder_is_parsed_and_described() {
        let holder = Holder::this("z1 / bbs-0");
        assert_eq!(Holder::parse(&holder.to_string()), Some(holder.clone()));
        assert!(
            !Holder::has_ended(&holder.to_string()),
            "this process lives"
        );
        let described = format!("z1 / bbs-0 (pid {} on this machine)", std::process::id());
        assert_eq!(Holder::describe(&holder.to_string()), Some(described));
        let elsewhere = Holder {
            machine: "another".into(),
            pid: 7,
            ..holder
        }
        .to_string();
        assert_eq!(
            Holder::describe(&elsewhere).as_deref(),
            Some("z1 / bbs-0 (pid 7 on another machine)")
        );
        assert!(Holder::this(&"x".repeat(1000)).to_string().len() < 255);
    }

    #[test]
    fn description_is_of_the_name_that_it_begins_with() {
        let long = "x".repeat(1000);
        for name in ["z1 / bbs-1", long.as_str()] {
            let described = Holder::describe(&Holder::this(name).to_string()).expect("it lives");
            assert!(Holder::is_described(&described, name), "{described}");
            for other in ["z1 / bbs-10", "z1 / bbs-", "z1 / bbs", ""] {
                assert!(
                    !Holder::is_described(&described, other),
                    "{described}: {other:?}"
                );
            }
        }
    }

    #[test]
    fn only_a_dead_process_of_this_machine_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let stat = read_stat(child.id()).expect("it lives");
        let started = start_time(&stat).expect("it lives");
        let holder = Holder {
            machine: machine(),
            pid: child.id(),
            started,
            name: "x".into(),
        };
        assert!(!Holder::has_ended(&holder.to_string()));
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
        assert!(Holder::has_ended(&holder.to_string()));
        assert_eq!(Holder::describe(&holder.to_string()), None);
        let elsewhere = Holder {
            machine: "another".into(),
            ..holder.clone()
        };
        assert!(!Holder::has_ended(&elsewhere.to_string()));
        let other = Holder {
            pid: std::process::id(),
            started: "0".into(),
            ..holder
        };
        assert!(
            Holder::has_ended(&other.to_string()),
            "its process id was reused"
        );
    }

    #[test]
    fn process_that_proc_hides_has_ended_only_if_it_does_not_exist() {
        for (probe, expected) in [
            (Ok(()), false),
            (Err(Errno::PERM), false),
            (Err(Errno::INVAL), false),
            (Err(Errno::SRCH), true),
        ] {
            for hidden in [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied] {
                let ended = process_has_ended("7", Err(hidden.into()), || probe);
                assert_eq!(ended, expected, "{probe:?} {hidden:?}");
            }
        }
        let stat = read_stat(std::process::id()).expect("this process lives");
        assert!(
            !process_has_ended(UNKNOWN, Ok(stat), || Err(Errno::SRCH)),
            "its start time was not known"
        );
        assert_eq!(probe(std::process::id()), Ok(()));
        assert_eq!(probe(0), Err(Errno::INVAL), "0 is a process group");
    }

    #[test]
    fn malformed_holder_is_ignored() {
        for text in ["", "someone", "a b c d", "a 1", "ü 12 3"] {
            assert!(!Holder::has_ended(text), "{text:?}");
            assert_eq!(Holder::describe(text), None, "{text:?}");
        }
    }
}
