//! Fingerprints of all versions: of every method, message and enumeration at each version of the
//! API, of every table at each version of the database, and of every release's versions.
//! `tests/fingerprints.tsv` has them. A change of a released one without a version step fails, and
//! the failure states what to do; one in development has its line replaced.

mod layouts;
mod messages;
mod methods;
mod releases;

use std::collections::BTreeMap;

use bbs_files::digest::digest_of;

use crate::harness::workspace;
use releases::Frozen;

const FILE: &str = "tests/fingerprints.tsv";
const HEADER: &str = "kind\tversion\tname\tfingerprint";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FingerprintKind {
    Method,
    Message,
    Enumeration,
    Table,
    Release,
}

impl FingerprintKind {
    const ALL: [Self; 5] = [
        Self::Method,
        Self::Message,
        Self::Enumeration,
        Self::Table,
        Self::Release,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Message => "message",
            Self::Enumeration => "enumeration",
            Self::Table => "table",
            Self::Release => "release",
        }
    }

    /// How to make a change of something that is released.
    fn version_step(self) -> &'static str {
        match self {
            Self::Method => {
                "Make the change in a new version: raise `NATIVE` in host/src/api.rs, and keep the method for older clients in a \
                 translator from the version before (`bbs module new NAME --translator`)."
            }
            Self::Message | Self::Enumeration => {
                "Make the change in a new version: raise `NATIVE` in host/src/api.rs, keep what older clients use in a package of \
                 its own, as sdk/proto/proto/v0_10 does, and translate between the two in a translator from the version \
                 before (`bbs module new NAME --translator`)."
            }
            Self::Table => {
                "Restore the migration that leads to this version, and make the change in a new migration of a later version \
                 (`bbs module new NAME`). Only a migration of Diego's that is inserted below this version may change it: \
                 migrations-wasm/DIEGO_RELEASES.md."
            }
            Self::Release => "Name other versions in a new entry of migrations-wasm/releases.toml.",
        }
    }
}

/// An object with a fingerprint: its kind, version and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    kind: FingerprintKind,
    version: String,
    name: String,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {} at version {}",
            self.kind.name(),
            self.name,
            self.version
        )
    }
}

/// A fingerprint for each subject.
type Fingerprints = BTreeMap<Subject, String>;

fn line((subject, fingerprint): (&Subject, &String)) -> String {
    format!(
        "{}\t{}\t{}\t{fingerprint}",
        subject.kind.name(),
        subject.version,
        subject.name
    )
}

fn parse(table: &str) -> Fingerprints {
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let mut fingerprints = Fingerprints::new();
    for line in lines {
        let [kind, version, name, fingerprint] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?} is not a kind, a version, a name and a fingerprint")
        };
        let kind = FingerprintKind::ALL
            .into_iter()
            .find(|known| known.name() == kind);
        let kind = kind.unwrap_or_else(|| panic!("{line:?} has an unknown kind"));
        let subject = Subject {
            kind,
            version: version.to_owned(),
            name: name.to_owned(),
        };
        let before = fingerprints.insert(subject, fingerprint.to_owned());
        assert_eq!(
            before, None,
            "{FILE} has two lines for the subject of {line:?}"
        );
    }
    fingerprints
}

/// The first 16 hexadecimal digits of the description's SHA-256.
fn fingerprint(description: &str) -> String {
    digest_of(description.as_bytes())[..16].to_owned()
}

/// Fingerprints of descriptions.
fn of(descriptions: BTreeMap<Subject, String>) -> Fingerprints {
    descriptions
        .into_iter()
        .map(|(subject, description)| (subject, fingerprint(&description)))
        .collect()
}

/// One problem for each difference, with what to do about it.
fn differences(recorded: &Fingerprints, found: &Fingerprints, frozen: &Frozen) -> Vec<String> {
    let mut problems = Vec::new();
    for (subject, fingerprint) in recorded {
        let step = subject.kind.version_step();
        match found.get(subject) {
            Some(same) if same == fingerprint => {}
            Some(changed) if !frozen.has(subject) => problems.push(format!(
                "{subject} has changed, and is in development. Replace its line in {FILE} by this one:\n{}",
                line((subject, changed))
            )),
            None if !frozen.has(subject) => {
                problems.push(format!("{subject} is missing, and was in development. Delete its line from {FILE}."));
            }
            Some(changed) => problems.push(format!(
                "{subject} has changed: its fingerprint is {changed}, and was {fingerprint}. Clients and databases of a released \
                 version depend on it; restore it. {step}"
            )),
            None => problems.push(format!(
                "{subject} is missing. Clients and databases of a released version depend on it; restore it. {step} If support \
                 of the whole version has ended, or a message has only moved to another package, delete its line from {FILE}."
            )),
        }
    }
    for entry in found
        .iter()
        .filter(|(subject, _)| !recorded.contains_key(*subject))
    {
        problems.push(format!(
            "{} is new. Add this line to {FILE}:\n{}",
            entry.0,
            line(entry)
        ));
    }
    problems
}

fn descriptions() -> BTreeMap<Subject, String> {
    let mut descriptions = methods::descriptions();
    descriptions.extend(messages::descriptions());
    descriptions.extend(layouts::descriptions());
    descriptions.extend(releases::descriptions());
    descriptions
}

#[test]
fn released_methods_messages_and_tables_are_unchanged() {
    let path = workspace().join(FILE);
    let recorded = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let problems = differences(
        &parse(&recorded),
        &of(descriptions()),
        &Frozen::of_this_repository(),
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn table_has_each_kind_at_each_version() {
    let found = descriptions();
    let versions = |kind| {
        let subjects = found
            .keys()
            .filter(move |subject: &&Subject| subject.kind == kind);
        subjects
            .map(|subject| subject.version.as_str())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let of_api = ["0.10", "0.11", "0.12", "0.9", "1.0", "1.1", "1.2"];
    for kind in [
        FingerprintKind::Method,
        FingerprintKind::Message,
        FingerprintKind::Enumeration,
    ] {
        assert!(
            of_api
                .iter()
                .all(|version| versions(kind).contains(version)),
            "{kind:?}: {:?}",
            versions(kind)
        );
    }
    assert!(versions(FingerprintKind::Table).contains("1795000000"));
}

#[test]
fn every_difference_is_reported_with_what_to_do() {
    let subject = |kind, version: &str, name: &str| Subject {
        kind,
        version: version.to_owned(),
        name: name.to_owned(),
    };
    let tasks = subject(FingerprintKind::Method, "1.1", "Tasks_r3");
    let released = of(BTreeMap::from([
        (tasks.clone(), "POST tasks/list.r3".to_owned()),
        (
            subject(FingerprintKind::Table, "1461790966", "tasks"),
            "column guid".to_owned(),
        ),
    ]));
    let frozen = Frozen {
        data: 1_461_790_966,
        api: "1.1".to_owned().try_into().unwrap(),
    };
    let differences =
        |recorded: &Fingerprints, found: &Fingerprints| differences(recorded, found, &frozen);
    assert_eq!(differences(&released, &released), [""; 0]);

    let mut changed = released.clone();
    changed.insert(tasks.clone(), fingerprint("GET tasks/list.r3"));
    let [problem] = <[_; 1]>::try_from(differences(&released, &changed)).unwrap();
    for words in [
        "method Tasks_r3 at version 1.1 has changed",
        "restore it",
        "raise `NATIVE`",
        "--translator",
    ] {
        assert!(problem.contains(words), "{words:?} is not in {problem}");
    }
    let mut missing = released.clone();
    missing.pop_last();
    let [problem] = <[_; 1]>::try_from(differences(&released, &missing)).unwrap();
    for words in [
        "table tasks at version 1461790966 is missing",
        "new migration of a later version",
    ] {
        assert!(problem.contains(words), "{words:?} is not in {problem}");
    }
    let mut extended = released.clone();
    extended.insert(
        subject(FingerprintKind::Message, "1.2", "models.Task"),
        fingerprint("1 task_guid"),
    );
    let [problem] = <[_; 1]>::try_from(differences(&released, &extended)).unwrap();
    let (text, added) = problem.split_once('\n').unwrap();
    assert_eq!(
        text,
        format!("message models.Task at version 1.2 is new. Add this line to {FILE}:")
    );
    let lines: Vec<_> = released
        .iter()
        .map(line)
        .chain([added.to_owned()])
        .collect();
    assert_eq!(
        parse(&format!("{HEADER}\n{}\n", lines.join("\n"))),
        extended,
        "the added line settles the problem"
    );

    let of_development = subject(FingerprintKind::Table, "1461790967", "tasks");
    let mut recorded = released.clone();
    recorded.insert(of_development.clone(), fingerprint("column guid"));
    let mut changed = released.clone();
    changed.insert(of_development, fingerprint("column name"));
    let [problem] = <[_; 1]>::try_from(differences(&recorded, &changed)).unwrap();
    let (text, replaced) = problem.split_once('\n').unwrap();
    assert!(
        text.contains("is in development. Replace its line"),
        "{problem}"
    );
    assert!(
        changed.iter().any(|entry| line(entry) == replaced),
        "{problem}"
    );
    let [problem] = <[_; 1]>::try_from(differences(&recorded, &released)).unwrap();
    assert!(
        problem.contains("is missing, and was in development. Delete its line"),
        "{problem}"
    );
}
