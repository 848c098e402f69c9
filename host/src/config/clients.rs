//! Keys for the clients of other Diego components: addresses, certificates, timeouts. Owns parsing
//! them; opens no connection.

use std::time::Duration;

use super::keys::Keys;
use super::{ClientTls, ConfigError};

/// BOSH's default. Diego's BBS waits without a limit if the key is absent, so one receiver that
/// never answers would block a worker forever.
const COMMUNICATION_TIMEOUT: Duration = Duration::from_secs(10);
/// BOSH's default. Diego's BBS ends at once if the key is absent.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Diego's interval, which its BBS has no key for.
const CONVERGENCE_REPORT_INTERVAL: Duration = Duration::from_secs(15);
const DATABASE_REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// The defaults of Diego's client library.
const LOGGREGATOR_HOST: &str = "127.0.0.1";
const LOGGREGATOR_PORT: u16 = 3458;

/// The clients of all components that this host calls, except Locket, which is part of the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientsConfig {
    /// Longest time that the auctioneer, a rep or a callback may take to answer.
    pub communication_timeout: Duration,
    /// Without it, pending LRPs and tasks are never placed on cells.
    pub auctioneer: Option<AuctioneerConfig>,
    /// Connections to cell reps.
    pub rep: RepConfig,
    /// Without it, no metrics and app logs are sent.
    pub loggregator: Option<LoggregatorConfig>,
    /// Interval at which requests, open files and the lock are reported.
    pub report_interval: Duration,
    /// Interval at which the results of convergence are reported.
    pub convergence_report_interval: Duration,
    /// Interval at which database statistics are reported.
    pub database_report_interval: Duration,
    /// Routes with metrics of their own.
    pub advanced_metrics: AdvancedMetrics,
}

/// The client of the auctioneer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuctioneerConfig {
    /// Base URL of its API.
    pub address: String,
    /// The host's certificate for the auctioneer; absent if none of its keys is given.
    pub tls: Option<ClientTls>,
    /// If false, a request that fails over https is tried once over http.
    pub require_tls: bool,
}

/// The client of cell reps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepConfig {
    /// The host's certificate for reps with https.
    pub tls: Option<ClientTls>,
    /// If false, a rep without an https address gets requests over http.
    pub require_tls: bool,
    /// TLS sessions to cache; the library's default if absent.
    pub session_cache_size: Option<usize>,
}

/// The client of the metrics agent, usually on the same machine. The fields are the keys
/// `loggregator_*` of Diego's configuration. Envelopes carry `job_origin`, `source_id` and
/// `instance_id`; an absent one is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are Diego's keys")]
pub struct LoggregatorConfig {
    pub api_host: String,
    pub api_port: u16,
    pub tls: ClientTls,
    pub job_deployment: String,
    pub job_name: String,
    pub job_index: String,
    pub job_ip: String,
    pub job_origin: String,
    pub source_id: String,
    pub instance_id: String,
    /// The library's default if absent.
    pub batch_max_size: Option<usize>,
    /// Time after which a batch is sent though it is not full; the library's default if absent.
    pub batch_flush_interval: Option<Duration>,
}

/// Routes for which requests are counted and timed separately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdvancedMetrics {
    pub request_count: Vec<String>,
    pub request_latency: Vec<String>,
}

impl ClientsConfig {
    pub(super) fn read(keys: &mut Keys) -> Self {
        Self {
            communication_timeout: keys
                .duration("communication_timeout")
                .unwrap_or(COMMUNICATION_TIMEOUT),
            auctioneer: AuctioneerConfig::read(keys),
            rep: RepConfig::read(keys),
            loggregator: keys.section("loggregator", LoggregatorConfig::read),
            report_interval: keys.duration("report_interval").unwrap_or(REPORT_INTERVAL),
            convergence_report_interval: keys
                .duration("convergence_report_interval")
                .unwrap_or(CONVERGENCE_REPORT_INTERVAL),
            database_report_interval: keys
                .duration("database_report_interval")
                .unwrap_or(DATABASE_REPORT_INTERVAL),
            advanced_metrics: keys.section("advanced_metrics", AdvancedMetrics::read),
        }
    }
}

impl Default for ClientsConfig {
    fn default() -> Self {
        Self {
            communication_timeout: COMMUNICATION_TIMEOUT,
            auctioneer: None,
            rep: RepConfig::default(),
            loggregator: None,
            report_interval: REPORT_INTERVAL,
            convergence_report_interval: CONVERGENCE_REPORT_INTERVAL,
            database_report_interval: DATABASE_REPORT_INTERVAL,
            advanced_metrics: AdvancedMetrics::default(),
        }
    }
}

impl AuctioneerConfig {
    fn read(keys: &mut Keys) -> Option<Self> {
        let require_tls = keys.flag("auctioneer_require_tls");
        let cert = keys.file("auctioneer_client_cert");
        let key = keys.file("auctioneer_client_key");
        let ca = keys.file("auctioneer_ca_cert");
        let address = keys.text("auctioneer_address");
        let tls = if cert.is_none() && key.is_none() && ca.is_none() {
            None
        } else {
            let what =
                "the other files that name the auctioneer and this host to each other are given";
            Some(ClientTls {
                cert_file: keys.required(cert, "auctioneer_client_cert", what),
                key_file: keys.required(key, "auctioneer_client_key", what),
                ca_file: keys.required(ca, "auctioneer_ca_cert", what),
            })
        };
        let address = address?;
        if !address.starts_with("http://") && !address.starts_with("https://") {
            keys.fault(ConfigError::Refused {
                key: "auctioneer_address",
                why: "it is a URL, such as \"https://auctioneer.service.cf.internal:9016\"",
            });
        }
        Some(Self {
            address,
            tls,
            require_tls,
        })
    }
}

impl RepConfig {
    fn read(keys: &mut Keys) -> Self {
        let cert = keys.file("rep_client_cert");
        let key = keys.file("rep_client_key");
        let ca = keys.file("rep_ca_cert");
        let session_cache_size = keys
            .count("rep_client_session_cache_size")
            .map(|size| size as usize);
        let require_tls = keys.flag("rep_require_tls");
        Self {
            tls: ClientTls::whole(cert, key, ca),
            require_tls,
            session_cache_size,
        }
    }
}

impl LoggregatorConfig {
    /// Since `loggregator_use_v2_api` was removed from Diego's library (October 2025), it sends to
    /// every configured agent; files written for older releases may still turn it off. A section
    /// that names neither an address nor a certificate configures no agent.
    fn read(keys: &mut Keys) -> Option<Self> {
        let is_on: Option<bool> = keys.take("loggregator_use_v2_api");
        let host = keys.text("loggregator_api_host");
        let port = keys.take("loggregator_api_port");
        let port = port.filter(|port: &u16| *port > 0);
        let files = [
            keys.file("loggregator_ca_path"),
            keys.file("loggregator_cert_path"),
            keys.file("loggregator_key_path"),
        ];
        let is_named = host.is_some() || port.is_some() || files.iter().any(Option::is_some);
        let mut text = |key| keys.text(key).unwrap_or_default();
        let [
            job_deployment,
            job_name,
            job_index,
            job_ip,
            job_origin,
            source_id,
            instance_id,
        ] = [
            text("loggregator_job_deployment"),
            text("loggregator_job_name"),
            text("loggregator_job_index"),
            text("loggregator_job_ip"),
            text("loggregator_job_origin"),
            text("loggregator_source_id"),
            text("loggregator_instance_id"),
        ];
        let batch_max_size = keys
            .count("loggregator_batch_max_size")
            .map(|size| size as usize);
        let batch_flush_interval = keys
            .take("batchflushinterval")
            .filter(|ns: &u64| *ns > 0)
            .map(Duration::from_nanos);
        if !is_on.unwrap_or(is_named) {
            return None;
        }
        let what = "metrics are sent with certificates only; or set `loggregator_use_v2_api` to false to send none";
        let [ca, cert, key] = files;
        Some(Self {
            tls: ClientTls {
                ca_file: keys.required(ca, "loggregator_ca_path", what),
                cert_file: keys.required(cert, "loggregator_cert_path", what),
                key_file: keys.required(key, "loggregator_key_path", what),
            },
            job_deployment,
            job_name,
            job_index,
            job_ip,
            job_origin,
            source_id,
            instance_id,
            api_host: host.unwrap_or_else(|| LOGGREGATOR_HOST.to_owned()),
            api_port: port.unwrap_or(LOGGREGATOR_PORT),
            batch_max_size,
            batch_flush_interval,
        })
    }
}

impl AdvancedMetrics {
    fn read(keys: &mut Keys) -> Self {
        let is_on = keys.flag("enabled");
        let routes = keys.section("route_config", |keys| Self {
            request_count: keys.texts("request_count"),
            request_latency: keys.texts("request_latency"),
        });
        if is_on { routes } else { Self::default() }
    }
}
