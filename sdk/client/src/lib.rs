//! A client of the BBS, Diego's and this project's: typed calls of every method at its current
//! revision, and both event streams. Owns connections, TLS, retries and the errors of calls; what
//! an answer means is the caller's.
//!
//! # Versions
//!
//! A client calls Diego's API, which every BBS answers. Methods that only version 1.2 has are
//! called at 1.2, and [`Client::speaking`] returns a client that calls the others there too, whose
//! answers then have definitions.
//!
//! # Retries
//!
//! Those of Diego's own client: each call is tried three times, half a second apart, until there is
//! an answer of the BBS. An error of the BBS is an answer. A call whose answer was lost may have
//! been carried out, and then the next attempt meets its effect: `ResourceExists`,
//! `ResourceNotFound`, or `UpdateInProgress` because of the update that it has begun itself.
//!
//! # Example
//!
//! ```no_run
//! use bbs_client::{Client, Options, models};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("http://127.0.0.1:8889", Options::default())?;
//! let all = models::DesiredLrPsRequest::default();
//! let lrps = client.desired_lrps(&all).await?.desired_lrps;
//! println!("there are {} LRPs", lrps.len());
//! let by_guid = models::DesiredLrpUpdateStatusRequest {
//!     process_guid: b"hello".to_vec(),
//! };
//! let update = client.desired_lrp_update_status(&by_guid).await?;
//! let running = update.status.unwrap_or_default().running;
//! println!("hello has {running} current instances");
//!
//! let mut events = client.lrp_instance_events("").await?;
//! while let Some(event) = events.next().await? {
//!     println!("{event:?}");
//! }
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod connection;
mod error;
mod events;
pub mod json;
mod method;
pub mod methods;
mod tls;

pub use bbs_proto::{models, prost};
pub use connection::{Client, Options, Retries};
pub use error::{CallError, ConnectError, Refusal};
pub use events::{Event, EventStream, LrpInstanceEvent, TaskEvent};
pub use method::{Answer, Method, Route, Version};
pub use methods::routes;
pub use tls::{Identity, TlsFiles, TlsFilesError};

#[cfg(test)]
mod tests;
