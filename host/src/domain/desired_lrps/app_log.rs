//! A rejected request for a desired LRP: written to the log of its app, where the developer sees
//! it. Bounds the line, because the queue for the metrics agent bounds the number of lines alone.

use crate::domain::Service;

/// Parts of the app's guid at the start of a process guid.
const UUID_PARTS: usize = 5;

/// Diego's name of the error type in the answer.
const KIND: &str = "InvalidRequest";

/// Longest process guid with an app's log, in bytes. Those of Cloud Foundry have 73.
const LONGEST_GUID: usize = 200;

/// Longest line, in bytes. Findings quote the request, which may have megabytes.
const LONGEST_LINE: usize = 16 << 10;

/// Writes the findings to the app's log if the process guid starts with an app guid.
pub fn log_rejection(service: &Service, process_guid: &[u8], findings: &str) {
    if let Some(app_guid) = app_guid(process_guid) {
        service
            .clients()
            .loggregator
            .app_error(&app_guid, &line(&app_guid, findings));
    }
}

fn line(app_guid: &str, findings: &str) -> String {
    let mut line =
        format!("Error parsing request for app with guid {app_guid}, {KIND}, {findings}");
    line.truncate(line.floor_char_boundary(LONGEST_LINE));
    line
}

fn app_guid(process_guid: &[u8]) -> Option<String> {
    if process_guid.len() > LONGEST_GUID {
        return None;
    }
    let process_guid = String::from_utf8_lossy(process_guid);
    let parts: Vec<&str> = process_guid.split('-').take(UUID_PARTS).collect();
    (parts.len() == UUID_PARTS).then(|| parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_guid_is_the_first_five_parts() {
        let uuid = "5bba2cb1-0d1f-4b2c-8f0b-2a6ee6a1c8f3";
        assert_eq!(
            app_guid(format!("{uuid}-9e2f7a10-6a3f").as_bytes()).as_deref(),
            Some(uuid)
        );
        assert_eq!(app_guid(uuid.as_bytes()).as_deref(), Some(uuid));
        assert_eq!(
            app_guid(b"----").as_deref(),
            Some("----"),
            "as Diego takes it"
        );
        for guid in ["", "some-process-guid", "a-b-c-d"] {
            assert_eq!(app_guid(guid.as_bytes()), None, "{guid:?}");
        }
        assert_eq!(
            line("a-b-c-d-e", "Invalid field: domain"),
            "Error parsing request for app with guid a-b-c-d-e, InvalidRequest, Invalid field: domain"
        );
    }

    #[test]
    fn large_guid_has_no_log_and_a_long_line_is_cut_between_characters() {
        let of_length = |length: usize| format!("a-b-c-d-{}", "e".repeat(length - 8)).into_bytes();
        assert!(app_guid(&of_length(LONGEST_GUID)).is_some());
        assert_eq!(app_guid(&of_length(LONGEST_GUID + 1)), None);
        for prefix in ["", "x"] {
            let findings = format!("{prefix}{}", "ä".repeat(LONGEST_LINE));
            let cut = line("a-b-c-d-e", &findings);
            assert!((LONGEST_LINE - 1..=LONGEST_LINE).contains(&cut.len()));
            assert!(cut.ends_with('ä'));
        }
    }
}
