//! Keys for the clients of other Diego components: addresses, certificates, timeouts. Owns parsing
//! them; opens no connection.

use std::time::Duration;

use super::keys::Keys;
use super::{CertificateFiles, ConfigError};

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
    pub tls: Option<CertificateFiles>,
    /// If false, a request that fails over https is tried once over http.
    pub require_tls: bool,
}

/// The client of cell reps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepConfig {
    /// The host's certificate for reps with https.
    pub tls: Option<CertificateFiles>,
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
    pub tls: CertificateFiles,
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
        let address = keys.text("auctioneer_address");
        let what = "the other files that name the auctioneer and this host to each other are given";
        let files = [
            "auctioneer_client_cert",
            "auctioneer_client_key",
            "auctioneer_ca_cert",
        ];
        let tls = CertificateFiles::all_or_none(keys, files.map(|key| (key, what)));
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
        let files = ["rep_client_cert", "rep_client_key", "rep_ca_cert"];
        // As in Diego, none if one of them is missing.
        let tls = match files.map(|key| keys.file(key)) {
            [Some(cert_file), Some(key_file), Some(ca_file)] => Some(CertificateFiles {
                cert_file,
                key_file,
                ca_file,
            }),
            _ => None,
        };
        let session_cache_size = keys
            .count("rep_client_session_cache_size")
            .map(|size| size as usize);
        Self {
            tls,
            require_tls: keys.flag("rep_require_tls"),
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
        let what = "metrics are sent with certificates only; or set `loggregator_use_v2_api` to false to send none";
        let names = [
            "loggregator_ca_path",
            "loggregator_cert_path",
            "loggregator_key_path",
        ];
        let names = names.map(|key| (key, what));
        let files = names.map(|(key, _)| keys.file(key));
        let is_named = host.is_some() || port.is_some() || files.iter().any(Option::is_some);
        let is_on = is_on.unwrap_or(is_named);
        let [ca_file, cert_file, key_file] = if is_on {
            keys.all_required(files, names)
        } else {
            files.map(Option::unwrap_or_default)
        };
        let mut text = |key| keys.text(key).unwrap_or_default();
        let agent = Self {
            api_host: host.unwrap_or_else(|| LOGGREGATOR_HOST.to_owned()),
            api_port: port.unwrap_or(LOGGREGATOR_PORT),
            tls: CertificateFiles {
                cert_file,
                key_file,
                ca_file,
            },
            job_deployment: text("loggregator_job_deployment"),
            job_name: text("loggregator_job_name"),
            job_index: text("loggregator_job_index"),
            job_ip: text("loggregator_job_ip"),
            job_origin: text("loggregator_job_origin"),
            source_id: text("loggregator_source_id"),
            instance_id: text("loggregator_instance_id"),
            batch_max_size: keys
                .count("loggregator_batch_max_size")
                .map(|size| size as usize),
            batch_flush_interval: keys
                .take("batchflushinterval")
                .filter(|ns: &u64| *ns > 0)
                .map(Duration::from_nanos),
        };
        is_on.then_some(agent)
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
