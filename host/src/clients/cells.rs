//! The present cells: those with a presence in Locket.

mod presence;

use std::sync::Arc;
use std::time::Duration;

use bbs_proto::models::CellPresence;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::{ClientsError, text};
use crate::config;
use crate::locket::messages::{
    FetchAllRequest, FetchAllResponse, FetchRequest, FetchResponse, LocketAnswer, Resource,
    TypeCode,
};
use crate::locket::{self, ConnectError};
use crate::tls::client;
use crate::tls::reloading::Reloading;

const FETCH: &str = "/models.Locket/Fetch";
const FETCH_ALL: &str = "/models.Locket/FetchAll";
const TYPE: &str = "presence";
/// Age up to which a connection is kept that does not answer: it may still be made, since a machine
/// of Locket that hangs delays the connection to the next one.
const STILL_CONNECTING: Duration = Duration::from_secs(3);

/// Not configured, the present cells are unknown.
#[derive(Debug, Clone, Default)]
pub struct CellDirectory(Option<Arc<LocketCells>>);

#[derive(Debug)]
struct LocketCells {
    channel: Reloading<Channel, ConnectError>,
    timeout: Duration,
}

/// Why the present cells cannot be listed, or one of them cannot be found.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum CellsError {
    #[error("Locket could not list the cells; see its log")]
    Locket(#[source] Box<Status>),
    #[error(
        "Locket did not list the cells within {0:?}; check that it runs, or raise `db_connection_timeout`"
    )]
    Silent(Duration),
    #[error("the presence of the cell {cell_id:?} in Locket cannot be parsed; restart its rep")]
    Malformed {
        cell_id: String,
        source: serde_json::Error,
    },
}

impl CellsError {
    /// Whether Locket did not answer, and another call may wait as long.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Silent(_) => true,
            // Its own answers have no source.
            Self::Locket(status) => std::error::Error::source(&**status).is_some(),
            Self::Malformed { .. } => false,
        }
    }
}

impl CellDirectory {
    pub(super) fn new(config: &config::LocketConfig) -> Result<Self, ClientsError> {
        let files = client::paths(&config.tls);
        let timeout = config.lookup_timeout;
        let config = config.clone();
        let channel = Reloading::new(files, move || locket::connect_later(&config))
            .map_err(ClientsError::Locket)?;
        Ok(Self(Some(Arc::new(LocketCells { channel, timeout }))))
    }

    /// Lists the present cells; `None` if Locket is not configured.
    ///
    /// # Errors
    /// Locket fails or does not answer in time.
    pub async fn all(&self) -> Result<Option<Vec<CellPresence>>, CellsError> {
        let Some(connection) = &self.0 else {
            return Ok(None);
        };
        let request = FetchAllRequest {
            r#type: TYPE.to_owned(),
            type_code: TypeCode::Presence.into(),
        };
        let answer: Option<FetchAllResponse> = connection.call(FETCH_ALL, request).await?;
        let resources = answer.map(|answer| answer.resources).unwrap_or_default();
        // A malformed one is logged and skipped, so that the other cells are still listed.
        let cells = resources.iter().filter_map(|resource| cell(resource).ok());
        Ok(Some(cells.collect()))
    }

    /// Finds a present cell; `None` if it is not present, or Locket is not configured.
    ///
    /// # Errors
    /// Locket fails or does not answer in time. `Malformed` if the cell is present and its presence
    /// cannot be parsed: as in Diego, its containers are not those of a cell that is gone.
    pub async fn find(&self, cell_id: &[u8]) -> Result<Option<CellPresence>, CellsError> {
        let Some(connection) = &self.0 else {
            return Ok(None);
        };
        let request = FetchRequest { key: text(cell_id) };
        let answer: Option<FetchResponse> = connection.call(FETCH, request).await?;
        let resource = answer.and_then(|answer| answer.resource);
        resource.as_ref().map(cell).transpose()
    }
}

impl LocketCells {
    /// The answer of Locket; `None` if it has nothing of the kind.
    async fn call<Q, A>(&self, method: &'static str, message: Q) -> Result<Option<A>, CellsError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: LocketAnswer + Send + Sync + 'static,
    {
        let channel = self.channel.get();
        match tokio::time::timeout(
            self.timeout,
            locket::call(&channel, method, Request::new(message)),
        )
        .await
        {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(status)) if status.code() == Code::NotFound => Ok(None),
            Ok(Err(status)) => Err(CellsError::Locket(Box::new(status))),
            Err(_) => {
                // Another machine of Locket may answer.
                self.channel.make_again(self.timeout.max(STILL_CONNECTING));
                Err(CellsError::Silent(self.timeout))
            }
        }
    }
}

/// Parses a presence; logs a malformed one.
fn cell(resource: &Resource) -> Result<CellPresence, CellsError> {
    presence::read(&resource.value).map_err(|error| {
        let cell = &resource.key;
        tracing::error!(name: "failed-to-unmarshal-cell-presence", cell, %error, "the presence of a cell cannot be parsed");
        CellsError::Malformed {
            cell_id: cell.clone(),
            source: error,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn locket_that_cannot_be_reached_is_silent_and_one_that_fails_is_not() {
        let cut = Status::from_error(io::Error::from(io::ErrorKind::TimedOut).into());
        let failed = Status::internal("its database is away");
        let is_silence = |status| CellsError::Locket(Box::new(status)).is_silence();
        assert!(is_silence(cut) && !is_silence(failed));
    }
}
