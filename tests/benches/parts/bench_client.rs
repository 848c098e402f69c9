//! The client of a BBS that is measured, and what its process has spent.

use bbs_client::{Client, Options, Retries, TlsFiles};
use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::harness::host::Host;

/// A BBS that is measured: this host or another one.
pub struct BenchClient {
    client: Client,
    /// Id of its process, if that can be measured.
    pid: Option<u32>,
}

impl BenchClient {
    pub fn of(host: &Host) -> Self {
        Self::at(&host.url(""), TlsFiles::default(), Some(host.pid()))
    }

    /// A client of the BBS at an address. A failed call is none that is measured, so none is made
    /// again.
    pub fn at(url: &str, tls: TlsFiles, pid: Option<u32>) -> Self {
        let options = Options {
            tls,
            retries: Retries::NONE,
            ..Options::default()
        };
        Self {
            client: Client::new(url, options).unwrap_or_else(|fault| panic!("{url}: {fault}")),
            pid,
        }
    }

    pub async fn send(&self, method: &str, body: Vec<u8>) -> reqwest::Response {
        let response = self.client.send(&format!("v1/{method}"), body).await;
        response.unwrap_or_else(|fault| panic!("{method}: {fault:?}"))
    }

    pub async fn call(&self, method: &str, body: Vec<u8>) -> Vec<u8> {
        self.send(method, body)
            .await
            .bytes()
            .await
            .expect("the answer is complete")
            .to_vec()
    }

    /// Reads an answer as a stream to its end and returns its length.
    pub async fn list(&self, method: &str, body: Vec<u8>) -> usize {
        let mut response = self.send(method, body).await;
        let mut bytes = 0;
        while let Some(chunk) = response.chunk().await.expect("the list is complete") {
            bytes += chunk.len();
        }
        bytes
    }

    pub async fn change(&self, method: &str, body: Vec<u8>) {
        assert_eq!(self.error(method, body).await, None, "{method}");
    }

    pub async fn error(&self, method: &str, body: Vec<u8>) -> Option<proto::Error> {
        let answer = self.call(method, body).await;
        proto::ActualLrpLifecycleResponse::decode(&answer[..])
            .expect("an answer of the API")
            .error
    }

    /// Seconds that the process has spent in user and kernel mode. Less noisy than rates where
    /// clients and database share the processors.
    pub fn processor_seconds(&self) -> Option<f64> {
        // Linux counts them in hundredths of a second. The name of the program, in parentheses, may
        // contain spaces.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid?)).ok()?;
        let ticks = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
        Some(
            ticks
                .filter_map(|ticks| ticks.parse::<f64>().ok())
                .sum::<f64>()
                / 100.0,
        )
    }

    pub fn forget_peak(&self) {
        if let Some(pid) = self.pid {
            // Not permitted for another user's process: then the peak is that of its lifetime.
            let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
    }

    pub fn peak(&self) -> String {
        let status = self
            .pid
            .and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok());
        let line = status
            .as_deref()
            .and_then(|text| text.lines().find(|line| line.starts_with("VmHWM")));
        let kb = line
            .and_then(|line| line.split_whitespace().nth(1))
            .and_then(|kb| kb.parse::<u64>().ok());
        kb.map_or_else(String::new, |kb| format!("peak {} MB", kb / 1024))
    }
}
