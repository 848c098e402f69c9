//! Calls of clients of older API versions, by version, method and certificate: who has to be
//! upgraded before the translator of a version is taken out. Owns the bound on the number of
//! clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Clients that are counted by name; further ones are counted together.
const MAX_CLIENTS: usize = 100;
const FURTHER_CLIENTS: &str = "others";

type Labels = [(&'static str, String); 3];

/// A shared handle; clones count into the same counters.
#[derive(Debug, Clone, Default)]
pub(super) struct OlderVersions {
    pub(super) requests: Family<Labels, Counter>,
    clients: Arc<Mutex<BTreeSet<String>>>,
}

impl OlderVersions {
    /// Counts a call. The log has a line for the first call of each combination and whenever their
    /// number has doubled.
    pub(super) fn called(&self, version: &str, method: &str, client: &str) {
        let client = self.known(client);
        let labels = [
            ("version", version.to_owned()),
            ("method", method.to_owned()),
            ("client", client.to_owned()),
        ];
        let calls = self.requests.get_or_create(&labels).inc() + 1;
        if calls.is_power_of_two() {
            tracing::info!(name: "client.older-version", version, method, client, calls,
                "a client calls an older version of the API; it has to be upgraded before that version's translator is \
                 taken out");
        }
    }

    fn known<'a>(&self, client: &'a str) -> &'a str {
        let mut clients = self.clients.lock();
        if clients.contains(client) {
            return client;
        }
        if clients.len() == MAX_CLIENTS {
            return FURTHER_CLIENTS;
        }
        clients.insert(client.to_owned());
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted_by_name_up_to_a_limit() {
        let older = OlderVersions::default();
        for number in 0..2 * MAX_CLIENTS {
            older.called("1.0", "Tasks_r2", &format!("client-{number}"));
        }
        older.called("1.0", "Tasks_r2", "client-1");
        let calls = |client: &str| {
            let labels = [
                ("version", "1.0".into()),
                ("method", "Tasks_r2".into()),
                ("client", client.into()),
            ];
            older.requests.get_or_create(&labels).get()
        };
        assert_eq!(
            (calls("client-1"), calls("client-2"), calls("client-100")),
            (2, 1, 0)
        );
        assert_eq!(calls(FURTHER_CLIENTS), u64::try_from(MAX_CLIENTS).unwrap());
    }
}
