//! Validation of actions, at any depth: the rules of each kind of action and the depth of
//! nesting.

use bbs_model::bounds::ACTION_DEPTH;
use bbs_proto::models::{Action, DownloadAction, RunAction, UploadAction};

use super::image::checksum;
use super::{Findings, Validate};

impl Validate for Action {
    fn validate(&self, findings: &mut Findings) {
        action(self, 0, findings);
    }
}

/// If several alternatives are set, the first is the action, and the others are not validated.
fn action(action: &Action, depth: usize, findings: &mut Findings) {
    if depth == ACTION_DEPTH {
        return findings.invalid("action (nested too deep)");
    }
    if let Some(download) = &action.download_action {
        download.validate(findings);
    } else if let Some(upload) = &action.upload_action {
        upload.validate(findings);
    } else if let Some(run) = &action.run_action {
        run.validate(findings);
    } else if let Some(timeout) = &action.timeout_action {
        one(timeout.action.as_deref(), depth, findings);
        findings.at_least(1, "timeout_ms", timeout.timeout_ms);
    } else if let Some(progress) = &action.emit_progress_action {
        one(progress.action.as_deref(), depth, findings);
    } else if let Some(attempt) = &action.try_action {
        one(attempt.action.as_deref(), depth, findings);
    } else if let Some(parallel) = &action.parallel_action {
        several(&parallel.actions, depth, findings);
    } else if let Some(serial) = &action.serial_action {
        several(&serial.actions, depth, findings);
    } else if let Some(codependent) = &action.codependent_action {
        several(&codependent.actions, depth, findings);
    } else {
        findings.invalid("inner-action");
    }
}

fn one(inner: Option<&Action>, depth: usize, findings: &mut Findings) {
    match inner {
        Some(inner) => action(inner, depth + 1, findings),
        None => findings.invalid("action"),
    }
}

fn several(inner: &[Action], depth: usize, findings: &mut Findings) {
    findings.invalid_if(inner.is_empty(), "actions");
    for inner in inner {
        action(inner, depth + 1, findings);
    }
}

/// The required action of a desired LRP, a task or a sidecar. `within` names the field in the
/// findings.
pub(super) fn required(within: &str, action: Option<&Action>, findings: &mut Findings) {
    match action {
        Some(_) => optional(within, action, findings),
        None => findings.add("invalid action type"),
    }
}

pub(super) fn optional(within: &str, action: Option<&Action>, findings: &mut Findings) {
    if let Some(action) = action {
        findings.within(within, |findings| action.validate(findings));
    }
}

impl Validate for DownloadAction {
    fn validate(&self, findings: &mut Findings) {
        findings.required("from", &self.from);
        findings.required("to", &self.to);
        findings.required("user", &self.user);
        checksum(&self.checksum_algorithm, &self.checksum_value, findings);
    }
}

rules! {
    UploadAction: required to, required from, required user;
    RunAction: required path, required user;
}

#[cfg(test)]
mod tests {
    use bbs_proto::models::{
        CodependentAction, EmitProgressAction, ParallelAction, SerialAction, TimeoutAction,
        TryAction,
    };

    use super::super::check;
    use super::*;

    fn found(action: &Action) -> String {
        check(action).err().unwrap_or_default()
    }

    fn run(path: &str, user: &str) -> Action {
        let run = RunAction {
            path: path.into(),
            user: user.into(),
            ..Default::default()
        };
        Action {
            run_action: Some(run),
            ..Default::default()
        }
    }

    fn timeout(action: Option<Action>, timeout_ms: i64) -> Action {
        let timeout = TimeoutAction {
            action: action.map(Box::new),
            timeout_ms,
            ..Default::default()
        };
        Action {
            timeout_action: Some(Box::new(timeout)),
            ..Default::default()
        }
    }

    fn attempt(action: Option<Action>) -> Action {
        let attempt = TryAction {
            action: action.map(Box::new),
            ..Default::default()
        };
        Action {
            try_action: Some(Box::new(attempt)),
            ..Default::default()
        }
    }

    fn progress(action: Option<Action>) -> Action {
        let progress = EmitProgressAction {
            action: action.map(Box::new),
            ..Default::default()
        };
        Action {
            emit_progress_action: Some(Box::new(progress)),
            ..Default::default()
        }
    }

    fn lists(actions: &[Action]) -> [Action; 3] {
        let actions = actions.to_vec();
        let parallel = ParallelAction {
            actions: actions.clone(),
            ..Default::default()
        };
        let serial = SerialAction {
            actions: actions.clone(),
            ..Default::default()
        };
        let codependent = CodependentAction {
            actions,
            ..Default::default()
        };
        [
            Action {
                parallel_action: Some(parallel),
                ..Default::default()
            },
            Action {
                serial_action: Some(serial),
                ..Default::default()
            },
            Action {
                codependent_action: Some(codependent),
                ..Default::default()
            },
        ]
    }

    #[test]
    fn run_needs_a_path_and_a_user() {
        assert_eq!(found(&run("ls", "vcap")), "");
        assert_eq!(found(&run("", "vcap")), "Invalid field: path");
        assert_eq!(found(&run("ls", "")), "Invalid field: user");
        assert_eq!(
            found(&run("", "")),
            "Invalid field: path, Invalid field: user"
        );
    }

    #[test]
    fn download_needs_both_ends_and_a_user() {
        let download = |from: &str, to: &str, user: &str, algorithm: &str, value: &str| {
            let download = DownloadAction {
                from: from.into(),
                to: to.into(),
                user: user.into(),
                checksum_algorithm: algorithm.into(),
                checksum_value: value.into(),
                ..Default::default()
            };
            found(&Action {
                download_action: Some(download),
                ..Default::default()
            })
        };
        assert_eq!(download("f", "t", "u", "", ""), "");
        assert_eq!(download("f", "t", "u", "md5", "v"), "");
        assert_eq!(download("", "t", "u", "", ""), "Invalid field: from");
        assert_eq!(download("f", "", "u", "", ""), "Invalid field: to");
        assert_eq!(download("f", "t", "", "", ""), "Invalid field: user");
        assert_eq!(
            download("f", "t", "", "md5", ""),
            "Invalid field: user, Invalid field: checksum value"
        );
        assert_eq!(
            download("", "", "", "", ""),
            "Invalid field: from, Invalid field: to, Invalid field: user"
        );
    }

    #[test]
    fn upload_needs_both_ends_and_a_user() {
        let upload = |from: &str, to: &str, user: &str| {
            let upload = UploadAction {
                from: from.into(),
                to: to.into(),
                user: user.into(),
                ..Default::default()
            };
            found(&Action {
                upload_action: Some(upload),
                ..Default::default()
            })
        };
        assert_eq!(upload("f", "t", "u"), "");
        assert_eq!(upload("", "t", "u"), "Invalid field: from");
        assert_eq!(upload("f", "", "u"), "Invalid field: to");
        assert_eq!(upload("f", "t", ""), "Invalid field: user");
        assert_eq!(
            upload("", "", ""),
            "Invalid field: to, Invalid field: from, Invalid field: user"
        );
    }

    #[test]
    fn timeout_must_be_positive_and_needs_an_action() {
        assert_eq!(found(&timeout(Some(run("p", "u")), 1)), "");
        for timeout_ms in [0, -1, i64::MIN] {
            assert_eq!(
                found(&timeout(Some(run("p", "u")), timeout_ms)),
                "Invalid field: timeout_ms"
            );
        }
        assert_eq!(found(&timeout(None, 1)), "Invalid field: action");
        assert_eq!(
            found(&timeout(Some(run("", "u")), 0)),
            "Invalid field: path, Invalid field: timeout_ms"
        );
        let empty = timeout(Some(Action::default()), 1);
        assert_eq!(found(&empty), "Invalid field: inner-action");
    }

    #[test]
    fn try_and_emit_progress_need_an_action() {
        for wrap in [attempt, progress] {
            assert_eq!(found(&wrap(Some(run("p", "u")))), "");
            assert_eq!(found(&wrap(None)), "Invalid field: action");
            assert_eq!(found(&wrap(Some(run("p", "")))), "Invalid field: user");
            assert_eq!(
                found(&wrap(Some(Action::default()))),
                "Invalid field: inner-action"
            );
        }
    }

    #[test]
    fn list_of_actions_must_not_be_empty_and_each_is_validated() {
        for list in lists(&[]) {
            assert_eq!(found(&list), "Invalid field: actions");
        }
        for list in lists(&[run("p", "u"), run("p", "u")]) {
            assert_eq!(found(&list), "");
        }
        for list in lists(&[
            run("", "u"),
            run("p", "u"),
            Action::default(),
            attempt(None),
        ]) {
            assert_eq!(
                found(&list),
                "Invalid field: path, Invalid field: inner-action, Invalid field: action"
            );
        }
    }

    #[test]
    fn action_without_an_alternative_is_rejected() {
        assert_eq!(found(&Action::default()), "Invalid field: inner-action");
    }

    #[test]
    fn first_alternative_in_message_order_is_the_action() {
        let bad_list = || vec![Action::default()];
        let mut action = Action {
            download_action: Some(DownloadAction {
                to: b"t".to_vec(),
                user: b"u".to_vec(),
                ..Default::default()
            }),
            upload_action: Some(UploadAction {
                from: b"f".to_vec(),
                user: b"u".to_vec(),
                ..Default::default()
            }),
            run_action: Some(RunAction {
                user: b"u".to_vec(),
                ..Default::default()
            }),
            timeout_action: timeout(Some(run("p", "u")), 0).timeout_action,
            emit_progress_action: progress(None).emit_progress_action,
            try_action: attempt(Some(run("p", ""))).try_action,
            parallel_action: Some(ParallelAction::default()),
            serial_action: Some(SerialAction {
                actions: bad_list(),
                ..Default::default()
            }),
            codependent_action: Some(CodependentAction {
                actions: vec![attempt(None)],
                ..Default::default()
            }),
        };
        let mut next = |expected: &str, forget: fn(&mut Action)| {
            assert_eq!(found(&action), format!("Invalid field: {expected}"));
            forget(&mut action);
        };
        next("from", |action| action.download_action = None);
        next("to", |action| action.upload_action = None);
        next("path", |action| action.run_action = None);
        next("timeout_ms", |action| action.timeout_action = None);
        next("action", |action| action.emit_progress_action = None);
        next("user", |action| action.try_action = None);
        next("actions", |action| action.parallel_action = None);
        next("inner-action", |action| action.serial_action = None);
        next("action", |action| action.codependent_action = None);
        next("inner-action", |_| ());
    }

    #[test]
    fn nesting_beyond_the_maximum_depth_is_rejected() {
        let nested =
            |levels: usize| (1..levels).fold(run("p", "u"), |inner, _| attempt(Some(inner)));
        assert_eq!(found(&nested(ACTION_DEPTH)), "");
        assert_eq!(
            found(&nested(ACTION_DEPTH + 1)),
            "Invalid field: action (nested too deep)"
        );
        let [parallel, ..] = lists(&[nested(ACTION_DEPTH), run("", "u")]);
        assert_eq!(
            found(&parallel),
            "Invalid field: action (nested too deep), Invalid field: path"
        );
    }

    #[test]
    fn field_name_precedes_the_findings_of_its_action() {
        let found = |rule: fn(&str, Option<&Action>, &mut Findings), action: Option<Action>| {
            let mut findings = Findings::default();
            rule("setup", action.as_ref(), &mut findings);
            findings.to_string()
        };
        assert_eq!(found(required, None), "invalid action type");
        assert_eq!(found(optional, None), "");
        for rule in [required, optional] {
            assert_eq!(found(rule, Some(run("p", "u"))), "");
            assert_eq!(
                found(rule, Some(run("", "u"))),
                "Invalid field: setup, Invalid field: path"
            );
        }
    }
}
