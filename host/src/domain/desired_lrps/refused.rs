//! A desired LRP that was refused as it was sent: the app that it is of is told in its own log, where its developer looks.

use crate::domain::Service;

/// Of an app's guid, which a process guid begins with.
const UUID_PARTS: usize = 5;

/// Diego's name of the error that the request is answered with.
const KIND: &str = "InvalidRequest";

/// Tells the app, if the process guid names one.
pub fn refused(service: &Service, process_guid: &[u8], findings: &str) {
    if let Some(app_guid) = app_guid(&String::from_utf8_lossy(process_guid)) {
        service.clients().loggregator.app_error(&app_guid, &line(&app_guid, findings));
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
    fn an_app_is_the_first_five_parts() {
        let uuid = "5bba2cb1-0d1f-4b2c-8f0b-2a6ee6a1c8f3";
        assert_eq!(app_guid(&format!("{uuid}-9e2f7a10-6a3f")).as_deref(), Some(uuid));
        assert_eq!(app_guid(uuid).as_deref(), Some(uuid));
        assert_eq!(app_guid("----").as_deref(), Some("----"), "as Diego takes it");
        for guid in ["", "some-process-guid", "a-b-c-d"] {
            assert_eq!(app_guid(guid), None, "{guid:?}");
        }
        assert_eq!(
            line("a-b-c-d-e", "Invalid field: domain"),
            "Error parsing request for app with guid a-b-c-d-e, InvalidRequest, Invalid field: domain"
        );
    }
}
