//! Identifies the holder of a lease such that another process on the same machine can detect that
//! it is dead: a restarted host then need not wait for its own lease to expire. Cannot judge a
//! holder on another machine.

use std::fs;

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
            started: started(pid).unwrap_or_else(|| "unknown".to_owned()),
            name: name.chars().take(LONGEST_NAME).collect(),
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

    /// Whether a stored holder has certainly ended.
    pub(super) fn has_ended(written: &str) -> bool {
        let Some(holder) = Self::parse(written) else {
            return false;
        };
        holder.machine == machine()
            && !holder.machine.contains("unknown")
            && started(holder.pid) != Some(holder.started)
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

/// The boot of this machine and its process id namespace.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let space = fs::read_link("/proc/self/ns/pid").ok();
    let known = |text: Option<String>| {
        text.map_or("unknown".to_owned(), |text| text.trim().replace(' ', "-"))
    };
    format!(
        "{}/{}",
        known(boot),
        known(space.map(|link| link.to_string_lossy().into_owned()))
    )
}

/// When a process started, in ticks since boot; `None` if it has ended, also if it is a zombie.
fn started(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may contain anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
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
    fn only_a_dead_process_of_this_machine_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let started = started(child.id()).expect("it lives");
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
    fn malformed_holder_is_ignored() {
        for text in ["", "someone", "a b c d", "a 1", "ü 12 3"] {
            assert!(!Holder::has_ended(text), "{text:?}");
            assert_eq!(Holder::describe(text), None, "{text:?}");
        }
    }
}
