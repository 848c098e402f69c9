//! Renders the state of keys as text for an operator. Owns wording and columns.

use std::collections::BTreeSet;
use std::fmt::Write;

use bbs_work::printable;

use crate::cli::output::push_line as line;
use crate::keys::{INSIDE_QUARANTINE, KeysStatus, Rotated};

fn joined<'a>(labels: impl IntoIterator<Item = &'a str>) -> String {
    bbs_work::joined(labels.into_iter().map(printable::line))
}

pub(super) fn status(status: &KeysStatus, survey: &Rotated, database: &str) -> String {
    let mut out = String::new();
    line!(out, "Database   {database}");
    line!(out, "Label      {}", label(status));
    line!(
        out,
        "Active     {}: new records are sealed with it",
        status.active
    );
    let known = joined(status.known.iter().map(String::as_str));
    line!(out, "Known      {known}");
    if let Some(rotation) = &status.rotation {
        let rate = rotation
            .rows_per_second
            .map(|rate| format!(", {rate:.0}/s"));
        let rate = rate.unwrap_or_default();
        let tables: Vec<_> = rotation
            .cursors
            .iter()
            .map(|cursor| &*cursor.table)
            .collect();
        let at = if tables.is_empty() {
            String::new()
        } else {
            format!(", finished {}", tables.join(", "))
        };
        line!(
            out,
            "Rotation   to {}: {} rows rewritten{rate}{at}",
            rotation.to,
            rotation.rewritten
        );
    }
    line!(out, "\nSealed texts by key:");
    out.push_str(&table(status));
    if survey.unreadable > 0 {
        line!(out, "\nUnreadable {}", unreadable_now(survey));
    }
    line!(out, "\nNext       {}", next(status, survey));
    out
}

fn label(status: &KeysStatus) -> String {
    match &status.label {
        Some(label) if labels_of_texts(status).any(|other| other != label) => format!(
            "{}, but texts are under other keys, too",
            printable::line(label)
        ),
        Some(label) => format!("everything is sealed under {}", printable::line(label)),
        None => "none: texts may be under several keys until a rotation is complete".to_owned(),
    }
}

/// The labels that texts are under, place by place.
fn labels_of_texts(status: &KeysStatus) -> impl Iterator<Item = &str> {
    let counted = status.places.iter().flat_map(|place| &place.labels);
    counted
        .filter(|(_, texts)| **texts > 0)
        .map(|(label, _)| label.as_str())
}

/// Whether a label is of texts inside the quarantine alone.
fn is_inner(status: &KeysStatus, label: &str) -> bool {
    let is_used = |inside: bool| {
        let places = status.places.iter();
        places
            .filter(|place| (place.place == INSIDE_QUARANTINE) == inside)
            .any(|place| place.under(label) > 0)
    };
    status.label.as_deref() != Some(label) && is_used(true) && !is_used(false)
}

/// One line per table or folder and one column per key label.
fn table(status: &KeysStatus) -> String {
    let used = status.places.iter().flat_map(|place| place.labels.keys());
    let labels: BTreeSet<&str> = used.chain(&status.known).map(String::as_str).collect();
    let nameless = status.places.iter().any(|place| place.nameless > 0);
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(labels.iter().map(|label| printable::line(label)));
    rows[0].extend(nameless.then(|| "(no key)".to_owned()));
    for place in &status.places {
        let mut row = vec![place.place.clone()];
        row.extend(labels.iter().map(|label| place.under(label).to_string()));
        row.extend(nameless.then(|| place.nameless.to_string()));
        rows.push(row);
    }
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max();
    let widths: Vec<_> = (0..rows[0].len())
        .map(|at| width(at).unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        let mut text = format!("  {:width$}", row[0], width = widths[0]);
        for (text_of_column, &width) in row[1..].iter().zip(&widths[1..]) {
            let _ = write!(text, "  {text_of_column:>width$}");
        }
        line!(out, "{}", text.trim_end());
    }
    out
}

fn next(status: &KeysStatus, survey: &Rotated) -> String {
    if !status.unknown.is_empty() && status.unknown.iter().all(|label| is_inner(status, label)) {
        return format!(
            "put {} back into `encryption_keys`, and run `bbs keys rotate` while no host serves: nothing else opens the texts \
             sealed with it\n           inside records in quarantine. `bbs migrate quarantine delete` gives these up.",
            joined(status.unknown.iter().map(String::as_str))
        );
    }
    if !status.unknown.is_empty() {
        return format!(
            "put {} back into `encryption_keys`: the host does not start without it, and nothing else opens the texts sealed with it.",
            joined(status.unknown.iter().map(String::as_str))
        );
    }
    if let Some(wrong) = status.wrong.first() {
        return format!("{wrong}. The host does not start until then.");
    }
    if status.places.iter().any(|place| place.nameless > 0) {
        return "texts that name no key are damaged; repair or remove them, then start the host again.".to_owned();
    }
    if survey.unreadable > 0 && survey.rewritten == 0 {
        return "repair or remove what does not open, then start the host again, or run `bbs keys rotate` while none serves: until \
                then no rotation ends."
            .to_owned();
    }
    if status.label.as_deref() != Some(status.active.as_str()) {
        let rotating = format!(
            "a serving host re-seals everything under {}; or run `bbs keys rotate` while none serves.",
            status.active
        );
        return match keys_in_use(status) {
            labels if labels.is_empty() => rotating,
            labels => format!(
                "{rotating}\n           Keep {} in `encryption_keys` until then, also after a clean stop: the host \
                 may have stopped\n           before the end. `bbs keys verify --label LABEL` succeeds once a key may be removed.",
                joined(labels)
            ),
        };
    }
    let in_use = keys_in_use(status);
    if !in_use.is_empty() {
        return format!(
            "texts are under {}, which no serving host re-seals, since the database has the label of {}. Run\n           \
             `bbs keys rotate` while none serves.",
            joined(in_use),
            status.active
        );
    }
    let others: Vec<_> = status
        .known
        .iter()
        .filter(|label| **label != status.active)
        .collect();
    match others.first() {
        Some(label) => {
            let label = printable::line(label);
            format!("`bbs keys verify --label {label}` proves whether {label} may be removed.")
        }
        None => "nothing to do.".to_owned(),
    }
}

/// Labels of keys, besides the active one, under which texts may be sealed.
fn keys_in_use(status: &KeysStatus) -> Vec<&str> {
    let used: BTreeSet<&str> = labels_of_texts(status)
        .chain(status.label.as_deref())
        .collect();
    used.into_iter()
        .filter(|label| *label != status.active)
        .collect()
}

/// The rows of which a text does not open, with the first of them.
pub(super) fn unreadable_now(survey: &Rotated) -> String {
    let rows = match survey.unreadable {
        1 => "1 row has".to_owned(),
        rows => format!("{rows} rows have"),
    };
    format!(
        "{rows} a text that does not open and is not under the active key:{}",
        examples(survey)
    )
}

fn examples(rotated: &Rotated) -> String {
    let mut lines: String = rotated
        .examples
        .iter()
        .map(|example| format!("\n  {}", printable::line(example)))
        .collect();
    let named = rotated.examples.len() as u64;
    if rotated.unreadable > named {
        let _ = write!(lines, "\n  and {} more", rotated.unreadable - named);
    }
    lines
}

/// The error of a rotation that left unreadable records.
pub(super) fn unreadable(rotated: &Rotated, active: &str) -> String {
    format!(
        "{} rows were re-sealed under {active:?}, but {} do not open and are unchanged; keep their keys, \
         repair or remove them, then run this again:{}",
        rotated.rewritten,
        rotated.unreadable,
        examples(rotated)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{LabelCounts, RotationStatus};

    fn counted(place: &str, labels: &[(&str, u64)], nameless: u64) -> LabelCounts {
        let labels = labels
            .iter()
            .map(|(label, count)| ((*label).to_owned(), *count))
            .collect();
        LabelCounts {
            place: place.into(),
            labels,
            nameless,
        }
    }

    fn found() -> KeysStatus {
        KeysStatus {
            label: None,
            active: "new".into(),
            known: vec!["new".into(), "old".into()],
            unknown: Vec::new(),
            wrong: Vec::new(),
            rotation: Some(RotationStatus {
                to: "new".into(),
                labels: ["new".into(), "old".into()].into(),
                rewritten: 120,
                rows_per_second: Some(40.0),
                cursors: Vec::new(),
            }),
            places: vec![
                counted("actual_lrps", &[("new", 120), ("old", 7)], 0),
                counted("bbs_residue", &[], 0),
            ],
        }
    }

    #[test]
    fn status_shows_the_progress_of_a_rotation() {
        let text = status(&found(), &Rotated::default(), "bbs.db");
        let table = "               new  old\n  actual_lrps  120    7\n  bbs_residue    0    0\n";
        for part in [
            "Label      none",
            "Rotation   to new: 120 rows rewritten, 40/s\n",
            table,
            "or run `bbs keys rotate`",
            "Keep old in `encryption_keys` until then",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    }

    #[test]
    fn next_step_follows_from_the_status() {
        let mut status = found();
        let mut survey = Rotated::default();
        status.places[0] = counted("actual_lrps", &[("new", 127), ("old", 0)], 0);
        assert!(
            !next(&status, &survey).contains("Keep"),
            "{}",
            next(&status, &survey)
        );
        status.label = Some("new".into());
        assert_eq!(
            next(&status, &survey),
            "`bbs keys verify --label old` proves whether old may be removed."
        );
        status.known = vec!["new".into()];
        assert_eq!(next(&status, &survey), "nothing to do.");
        (survey.unreadable, survey.examples) =
            (12, vec!["tasks [\"a\\u{1b}[31m\"]: damaged".to_owned()]);
        assert!(next(&status, &survey).starts_with("repair or remove what does not open"));
        let text = super::status(&status, &survey, "bbs.db");
        let unreadable = "Unreadable 12 rows have a text that does not open and is not under the active key:\n  tasks";
        assert!(
            text.contains(unreadable) && text.contains("\n  and 11 more\n"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text:?}");
        status.places[0].nameless = 1;
        assert!(next(&status, &survey).contains("are damaged"));
        status.unknown = vec!["lost".into()];
        assert!(next(&status, &survey).starts_with("put lost back"));
        status
            .places
            .push(counted(INSIDE_QUARANTINE, &[("lost", 1)], 0));
        assert!(next(&status, &survey).contains("inside records in quarantine"));
        status.unknown = vec!["\0\u{4}B4".into()];
        assert!(
            next(&status, &survey).starts_with("put \\u{0}\\u{4}B4 back"),
            "{}",
            next(&status, &survey)
        );
    }
}
