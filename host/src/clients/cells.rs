//! Which cells there are: those whose presence Locket has.

mod presence;

use std::sync::Arc;
use std::time::Duration;

use bbs_proto::models::CellPresence;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::fresh::Fresh;
use super::{ClientsError, text};
use crate::config;
use crate::locket::messages::{FetchAllRequest, FetchAllResponse, FetchRequest, FetchResponse, Resource, TypeCode};
use crate::locket::{self, ConnectError};

const FETCH: &str = "/models.Locket/Fetch";
const FETCH_ALL: &str = "/models.Locket/FetchAll";
const TYPE: &str = "presence";

/// Without Locket nobody says which cells there are.
#[derive(Debug, Clone, Default)]
pub struct Cells(Option<Arc<Connection>>);

#[derive(Debug)]
struct Connection {
    channel: Fresh<Channel, ConnectError>,
    timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum CellsError {
    #[error("Locket did not say which cells there are; see what it logged")]
    Locket(#[source] Box<Status>),
    #[error(
        "Locket did not say within {0:?} which cells there are; see whether it runs, or raise `db_connection_timeout`"
    )]
    Silent(Duration),
}

impl Cells {
    pub(super) fn new(config: &config::Locket) -> Result<Self, ClientsError> {
        let files = [&config.ca_cert_file, &config.client_cert_file, &config.client_key_file];
        let timeout = config.lookup_timeout;
        let config = config.clone();
        let channel = Fresh::new(files.map(Clone::clone).to_vec(), move || locket::connect_later(&config))
            .map_err(ClientsError::Locket)?;
        Ok(Self(Some(Arc::new(Connection { channel, timeout }))))
    }

    /// `None` where nobody is configured who could say.
    pub async fn all(&self) -> Result<Option<Vec<CellPresence>>, CellsError> {
        let Some(connection) = &self.0 else { return Ok(None) };
        let request = FetchAllRequest { r#type: TYPE.to_owned(), type_code: TypeCode::Presence.into() };
        let answer = connection.call::<_, FetchAllResponse>(FETCH_ALL, request).await;
        let resources = match answer {
            Ok(answer) => answer.resources,
            Err(CellsError::Locket(status)) if status.code() == Code::NotFound => Vec::new(),
            Err(fault) => return Err(fault),
        };
        Ok(Some(resources.iter().filter_map(cell).collect()))
    }

    /// `None` for a cell that is not there.
    pub async fn find(&self, cell_id: &[u8]) -> Result<Option<CellPresence>, CellsError> {
        let Some(connection) = &self.0 else { return Ok(None) };
        let answer = connection.call::<_, FetchResponse>(FETCH, FetchRequest { key: text(cell_id) }).await;
        match answer {
            Ok(answer) => Ok(answer.resource.as_ref().and_then(cell)),
            Err(CellsError::Locket(status)) if status.code() == Code::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

impl Connection {
    async fn call<Q, A>(&self, method: &'static str, message: Q) -> Result<A, CellsError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let channel = self.channel.get();
        match tokio::time::timeout(self.timeout, locket::call(&channel, method, Request::new(message))).await {
            Ok(answered) => answered.map_err(|status| CellsError::Locket(Box::new(status))),
            Err(_) => Err(CellsError::Silent(self.timeout)),
        }
    }
}

/// Left out where it cannot be read: the other cells are there all the same.
fn cell(resource: &Resource) -> Option<CellPresence> {
    let read = presence::read(&resource.value);
    let told = read.inspect_err(|error| {
        let cell = &resource.key;
        tracing::error!(name: "failed-to-unmarshal-cell-presence", cell, %error, "a cell cannot be read, and is left out");
    });
    told.ok()
}
