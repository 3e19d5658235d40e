//! The connection: posts a body, reads the answer within bounds, and says in one sentence why it could not.
//!
//! Both protocols go over one HTTP client (hyper), gRPC by HTTP/2 and the other by HTTP/1.1. One connection is kept open.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::part::Packed;
use super::settings::Settings;
use super::tls::{self, TlsError};
use super::verdict::{BODY, Failure, Reply, Verdict, sentence};
use super::{grpc, http as plain};
use crate::config::Protocol;

/// How long an idle connection is kept; longer than the usual interval of a minute.
const IDLE: Duration = Duration::from_secs(300);

/// An endpoint, connected when the first request needs it.
pub(super) struct Line {
    client: Client<HttpsConnector<HttpConnector>, Full<bytes::Bytes>>,
    settings: Settings,
    headers: HeaderMap,
}

impl Line {
    /// Reads what TLS needs. Nothing is connected yet.
    pub(super) fn open(settings: &Settings) -> Result<Self, TlsError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(settings.tls.as_ref())?)
            .https_or_http();
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_idle_timeout(IDLE).pool_max_idle_per_host(1).pool_timer(TokioTimer::new());
        let (client, own) = match settings.protocol {
            Protocol::Grpc => (
                builder.http2_only(true).build(tls.enable_http2().wrap_connector(tcp)),
                grpc::headers(settings.compression, settings.pace.timeout),
            ),
            Protocol::HttpProtobuf => (
                builder.build(tls.enable_http1().wrap_connector(tcp)),
                plain::headers(settings.compression),
            ),
        };
        let mut headers = settings.headers.clone();
        headers.extend(own);
        let agent = concat!("memprov/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        Ok(Self { client, settings: settings.clone(), headers })
    }

    /// One attempt, for as long as the configured timeout.
    pub(super) async fn send(&self, packed: &Packed) -> Verdict {
        let timeout = self.settings.pace.timeout;
        match tokio::time::timeout(timeout, self.post(packed)).await {
            Ok(Ok(reply)) => match self.settings.protocol {
                Protocol::Grpc => grpc::judge(&reply),
                Protocol::HttpProtobuf => plain::judge(&reply, SystemTime::now()),
            },
            Ok(Err(error)) => Failure::passing(self.explain(&*error)).into(),
            Err(_) => Failure::passing(format!("no answer within {timeout:?}")).into(),
        }
    }

    async fn post(&self, packed: &Packed) -> Result<Reply, Box<dyn Error + Send + Sync>> {
        let body = match self.settings.protocol {
            Protocol::Grpc => packed.framed(),
            Protocol::HttpProtobuf => packed.message(),
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.settings.url.clone();
        *request.headers_mut() = self.headers.clone();
        let (head, mut body) = self.client.request(request).await?.into_parts();
        let mut reply = Reply { status: head.status, headers: head.headers, ..Reply::default() };
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(data) => {
                    let room = BODY - reply.body.len();
                    reply.body.extend_from_slice(data.get(..room).unwrap_or(&data));
                    reply.cut |= data.len() > room;
                }
                Err(frame) => reply.trailers = frame.into_trailers().unwrap_or_default(),
            }
            if reply.cut {
                break;
            }
        }
        Ok(reply)
    }

    /// What stopped an attempt, and what to do about it where that can be told.
    fn explain(&self, error: &(dyn Error + 'static)) -> String {
        if let Some(tls) = tls::chain(error).find_map(|e| e.downcast_ref::<rustls::Error>()) {
            return tls::explain(tls);
        }
        let mut text = String::new();
        for error in tls::chain(error) {
            let cause = sentence(&error.to_string());
            if !text.contains(&cause) {
                let colon = if text.is_empty() { "" } else { ": " };
                text = format!("{text}{colon}{cause}");
            }
        }
        text + self.advice(error)
    }

    /// What may be meant where the other end speaks something else, or hangs up.
    fn advice(&self, error: &(dyn Error + 'static)) -> &'static str {
        let cut =
            tls::chain(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|io| {
                matches!(
                    io.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                )
            });
        // A request may be called off because of what the connection met before.
        let first =
            tls::chain(error).filter_map(|cause| cause.downcast_ref::<hyper::Error>()).last();
        let hung_up = cut
            || first.is_some_and(|e| e.is_canceled() || e.is_closed() || e.is_incomplete_message());
        let connected =
            !error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
        match (connected, hung_up, self.settings.tls.is_some(), self.settings.protocol) {
            (false, true, true, _) => "; if the server speaks plain HTTP, use http://",
            // HTTP/2 over TLS was agreed upon: what ends it is an alert, of which HTTP/2 keeps only the text.
            (true, true, true, _) | (true, false, true, Protocol::Grpc) => {
                "; if the server wants a client certificate, check export.cert and export.key"
            }
            (true, _, false, Protocol::Grpc) => {
                "; if this is no port of gRPC, use https:// or export.protocol http/protobuf"
            }
            (true, false, _, Protocol::HttpProtobuf) => {
                "; if this is no port of HTTP/1.1, use https:// or export.protocol grpc"
            }
            (true | false, ..) => "",
        }
    }
}
