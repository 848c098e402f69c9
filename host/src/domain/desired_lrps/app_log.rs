//! A rejected request for a desired LRP: written to the log of its app, where the developer sees
//! it.

use crate::domain::Service;

/// Parts of the app's guid at the start of a process guid.
const UUID_PARTS: usize = 5;

/// Diego's name of the error type in the answer.
const KIND: &str = "InvalidRequest";

/// Writes the findings to the app's log if the process guid starts with an app guid.
pub fn log_rejection(service: &Service, process_guid: &[u8], findings: &str) {
    if let Some(app_guid) = app_guid(&String::from_utf8_lossy(process_guid)) {
        service
            .clients()
            .loggregator
            .app_error(&app_guid, &line(&app_guid, findings));
    }
}

fn line(app_guid: &str, findings: &str) -> String {
    format!("Error parsing request for app with guid {app_guid}, {KIND}, {findings}")
}

fn app_guid(process_guid: &str) -> Option<String> {
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
            app_guid(&format!("{uuid}-9e2f7a10-6a3f")).as_deref(),
            Some(uuid)
        );
        assert_eq!(app_guid(uuid).as_deref(), Some(uuid));
        assert_eq!(
            app_guid("----").as_deref(),
            Some("----"),
            "as Diego takes it"
        );
        for guid in ["", "some-process-guid", "a-b-c-d"] {
            assert_eq!(app_guid(guid), None, "{guid:?}");
        }
        assert_eq!(
            line("a-b-c-d-e", "Invalid field: domain"),
            "Error parsing request for app with guid a-b-c-d-e, InvalidRequest, Invalid field: domain"
        );
    }
}
