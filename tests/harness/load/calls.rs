//! The calls that the load makes, and their failures. Does not judge the content of an answer.

use bbs_proto::models as proto;
use bbs_proto::prost::{DecodeError, Message};
use tokio::sync::watch;

/// The host's client and current address, which changes when the host restarts on another port.
#[derive(Debug, Clone)]
pub struct Caller {
    client: reqwest::Client,
    address: watch::Receiver<String>,
    /// The first part of its paths.
    version: &'static str,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// It is unknown whether the call had an effect.
    #[error("no answer: {0}")]
    Transport(String),
    #[error("status {status}: {body}")]
    Status { status: u16, body: String },
    #[error("unexpected answer: {0}")]
    Answer(String),
}

impl Failure {
    pub fn transport(error: reqwest::Error) -> Self {
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self::Transport(text)
    }

    pub fn unreadable(error: DecodeError) -> Self {
        Self::Answer(error.to_string())
    }
}

impl Caller {
    /// `address` is such as `http://127.0.0.1:8889`.
    pub fn new(address: watch::Receiver<String>) -> Self {
        Self::over(crate::harness::http_client(), address)
    }

    /// [`Self::new`] with a client that the host trusts.
    pub fn over(client: reqwest::Client, address: watch::Receiver<String>) -> Self {
        Self {
            client,
            address,
            version: "v1",
        }
    }

    /// A copy of the client that speaks an API version, such as `v1.2`.
    pub fn speaking(&self, version: &'static str) -> Self {
        Self {
            version,
            ..self.clone()
        }
    }

    /// Makes a call whose response the caller streams.
    pub async fn open(&self, method: &str, body: Vec<u8>) -> Result<reqwest::Response, Failure> {
        let url = format!("{}/{}/{method}", *self.address.borrow(), self.version);
        let response = self
            .client
            .post(url)
            .body(body)
            .send()
            .await
            .map_err(Failure::transport)?;
        match response.status().as_u16() {
            200 => Ok(response),
            status => Err(Failure::Status {
                status,
                body: response.text().await.unwrap_or_default(),
            }),
        }
    }

    /// Makes a call.
    pub async fn call<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, Failure> {
        self.answer(method, request.encode_to_vec()).await
    }

    async fn answer<A: Message + Default>(
        &self,
        method: &str,
        request: Vec<u8>,
    ) -> Result<A, Failure> {
        let response = self.open(method, request).await?;
        let body = response.bytes().await.map_err(Failure::transport)?;
        A::decode(body).map_err(Failure::unreadable)
    }

    /// Makes a call of whose answer only the error counts.
    pub async fn change(&self, method: &str, request: &impl Message) -> Result<(), Failure> {
        self.submit(method, request.encode_to_vec()).await
    }

    /// Makes a call with an encoded request. Every answer has its error in the same field.
    pub async fn submit(&self, method: &str, request: Vec<u8>) -> Result<(), Failure> {
        let answer: proto::DesiredLrpLifecycleResponse = self.answer(method, request).await?;
        refused(answer.error)
    }

    pub async fn desire(&self, lrp: &proto::DesiredLrp) -> Result<(), Failure> {
        self.change(
            "desired_lrp/desire.r2",
            &proto::DesireLrpRequest {
                desired_lrp: Some(lrp.clone()),
            },
        )
        .await
    }

    pub async fn update(
        &self,
        guid: &[u8],
        update: &proto::DesiredLrpUpdate,
    ) -> Result<(), Failure> {
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: guid.to_vec(),
            update: Some(update.clone()),
        };
        self.change("desired_lrp/update", &request).await
    }

    pub async fn remove(&self, guid: &[u8]) -> Result<(), Failure> {
        self.change(
            "desired_lrp/remove",
            &proto::RemoveDesiredLrpRequest {
                process_guid: guid.to_vec(),
            },
        )
        .await
    }

    /// One desired LRP; `None` if the key does not exist.
    pub async fn get(&self, guid: &[u8]) -> Result<Option<proto::DesiredLrp>, Failure> {
        let request = proto::DesiredLrpByProcessGuidRequest {
            process_guid: guid.to_vec(),
        };
        let answer: proto::DesiredLrpResponse = self
            .call("desired_lrps/get_by_process_guid.r3", &request)
            .await?;
        if answer
            .error
            .as_ref()
            .is_some_and(|error| error.r#type == proto::error::Type::ResourceNotFound as i32)
        {
            return Ok(None);
        }
        refused(answer.error)?;
        Ok(answer.desired_lrp)
    }

    pub async fn list(&self, guids: Vec<Vec<u8>>) -> Result<Vec<proto::DesiredLrp>, Failure> {
        let request = proto::DesiredLrPsRequest {
            process_guids: guids,
            ..Default::default()
        };
        let answer: proto::DesiredLrPsResponse =
            self.call("desired_lrps/list.r3", &request).await?;
        refused(answer.error)?;
        Ok(answer.desired_lrps)
    }

    /// The actual LRPs of one domain.
    pub async fn actual_lrps(&self, domain: &[u8]) -> Result<Vec<proto::ActualLrp>, Failure> {
        let request = proto::ActualLrPsRequest {
            domain: domain.to_vec(),
            ..Default::default()
        };
        let answer: proto::ActualLrPsResponse = self.call("actual_lrps/list", &request).await?;
        refused(answer.error)?;
        Ok(answer.actual_lrps)
    }
}

fn refused(error: Option<proto::Error>) -> Result<(), Failure> {
    error.map_or(Ok(()), |error| {
        Err(Failure::Answer(format!(
            "{:?}: {}",
            error.r#type(),
            String::from_utf8_lossy(&error.message)
        )))
    })
}
