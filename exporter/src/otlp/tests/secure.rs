//! TLS: whom the client trusts, who it is, and what it says when that fails. Certificates are made here.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::bed::{Answer, Grpc, Http, LONG, Log, configured, request, shouts, start, takes, until};
use crate::config::{Export, Protocol};
use crate::otlp::{Exporter, StartError, TlsError};

const PROTOCOLS: [Protocol; 2] = [Protocol::Grpc, Protocol::HttpProtobuf];

/// An authority, and a folder for what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    folder: tempfile::TempDir,
}

/// Certificate and key, in PEM.
struct Signed {
    cert: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let folder = tempfile::tempdir().unwrap();
        Self { issuer: Issuer::new(params, key), pem, folder }
    }

    fn sign(&self, name: &str, until_year: i32) -> Signed {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until_year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Signed { cert, key: key.serialize_pem() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn ca(&self) -> PathBuf {
        self.file("ca.pem", &self.pem)
    }
}

/// A server of either protocol; it wants a certificate of `clients` where there is one.
enum Server {
    Grpc(Grpc),
    Http(Http),
}

impl Server {
    fn start(protocol: Protocol, of: &Signed, clients: Option<&Authority>) -> Self {
        match protocol {
            Protocol::Grpc => {
                let mut tls =
                    ServerTlsConfig::new().identity(Identity::from_pem(&of.cert, &of.key));
                if let Some(clients) = clients {
                    tls = tls.client_ca_root(Certificate::from_pem(&clients.pem));
                }
                Self::Grpc(Grpc::start_at(([127, 0, 0, 1], 0).into(), Answer::Take, Some(tls)))
            }
            Protocol::HttpProtobuf => {
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
                    .with_safe_default_protocol_versions()
                    .unwrap();
                let certificate =
                    |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
                let builder = match clients {
                    None => builder.with_no_client_auth(),
                    Some(clients) => {
                        let mut roots = rustls::RootCertStore::empty();
                        roots.add(certificate(&clients.pem)).unwrap();
                        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
                            Arc::new(roots),
                            provider,
                        );
                        builder.with_client_cert_verifier(verifier.build().unwrap())
                    }
                };
                let key = PrivateKeyDer::from_pem_slice(of.key.as_bytes()).unwrap();
                let tls = builder.with_single_cert(vec![certificate(&of.cert)], key).unwrap();
                Self::Http(Http::start_with(Some(Arc::new(tls)), |_| takes()))
            }
        }
    }

    fn endpoint(&self) -> String {
        let address = match self {
            Self::Grpc(server) => server.address,
            Self::Http(server) => server.address,
        };
        format!("https://localhost:{}", address.port())
    }

    fn received(&self) -> usize {
        match self {
            Self::Grpc(server) => server.received().len(),
            Self::Http(server) => server.seen().len(),
        }
    }
}

/// The one line about a connection that fails.
fn line(export: &Export) -> String {
    let log = Log::default();
    let kept = log.keep();
    let (outbox, exporter) = start(configured(export));
    outbox.send(&exporter, 1, request("a", 1));
    until("it failed", || exporter.stats().retries >= 3);
    assert_eq!(exporter.stats().sent, 0);
    assert_eq!(exporter.shutdown(Duration::ZERO).delivered_points, 0);
    drop(kept);
    let mut lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    lines.remove(0)
}

#[test]
fn a_server_signed_by_the_configured_authority_is_trusted() {
    let authority = Authority::new("a");
    for protocol in PROTOCOLS {
        let server = Server::start(protocol, &authority.sign("localhost", 3000), None);
        let export = Export {
            endpoint: server.endpoint(),
            protocol,
            ca: authority.ca(),
            ..Export::default()
        };
        let (outbox, exporter) = start(configured(&export));
        for number in 1..=2 {
            outbox.send(&exporter, number, request("a", 1));
            until("sent", || exporter.stats().sent == number);
        }
        assert_eq!(exporter.shutdown(LONG).retries, 0);
        assert_eq!(server.received(), 2, "{protocol:?}");
    }
}

#[test]
fn a_client_certificate_is_shown_to_a_server_that_wants_one_and_its_absence_is_told() {
    let (servers, clients) = (Authority::new("a"), Authority::new("b"));
    for protocol in PROTOCOLS {
        let server = Server::start(protocol, &servers.sign("localhost", 3000), Some(&clients));
        let client = clients.sign("agent", 3000);
        let nobody =
            Export { endpoint: server.endpoint(), protocol, ca: servers.ca(), ..Export::default() };
        let somebody = Export {
            cert: clients.file("cert.pem", &client.cert),
            key: clients.file("key.pem", &client.key),
            ..nobody.clone()
        };
        let (outbox, exporter) = start(configured(&somebody));
        outbox.send(&exporter, 1, request("a", 1));
        until("sent", || exporter.stats().sent == 1);
        assert_eq!(exporter.shutdown(LONG).delivered_points, 1);
        let line = line(&nobody);
        assert!(line.contains("export.cert"), "{protocol:?}: {line}");
        assert_eq!(server.received(), 1);
    }
}

#[test]
fn what_is_wrong_with_a_certificate_is_named_with_the_remedy() {
    let (authority, other, namesake) =
        (Authority::new("a"), Authority::new("b"), Authority::new("a"));
    for protocol in PROTOCOLS {
        for (certificate, ca, says) in [
            (authority.sign("localhost", 3000), other.ca(), "UnknownIssuer"),
            (authority.sign("localhost", 3000), namesake.ca(), "export.ca"),
            (authority.sign("collector.example", 3000), authority.ca(), "another name"),
            (authority.sign("localhost", 2001), authority.ca(), "has expired"),
        ] {
            let server = Server::start(protocol, &certificate, None);
            let export = Export { endpoint: server.endpoint(), protocol, ca, ..Export::default() };
            let line = line(&export);
            assert!(line.contains("TLS: ") && line.contains(says), "{protocol:?}: {line}");
            assert_eq!(server.received(), 0);
        }
    }
}

#[test]
fn tls_and_plain_text_meeting_each_other_are_told_with_the_setting_to_change() {
    let authority = Authority::new("a");
    for protocol in PROTOCOLS {
        let hangs_up = Http::start(|_| None).address;
        for address in [shouts(b"HTTP/1.1 400 Bad Request\r\n\r\n"), hangs_up] {
            let endpoint = format!("https://localhost:{}", address.port());
            let export = Export { endpoint, protocol, ca: authority.ca(), ..Export::default() };
            let text = line(&export);
            assert!(text.contains("use http://"), "{text}");
        }
        let secure = Server::start(protocol, &authority.sign("localhost", 3000), None);
        let endpoint = secure.endpoint().replace("https", "http");
        let text = line(&Export { endpoint, protocol, ..Export::default() });
        assert!(text.contains("https://"), "{protocol:?}: {text}");
    }
}

#[test]
fn files_that_cannot_be_used_stop_the_start_and_are_named() {
    let authority = Authority::new("a");
    let none = authority.folder.path().join("none.pem");
    let empty = authority.file("empty.pem", "");
    let client = authority.sign("agent", 3000);
    let (cert, key) = (authority.file("c.pem", &client.cert), authority.file("k.pem", &client.key));
    let other = authority.file("o.pem", &authority.sign("other", 3000).key);
    let secure = Export { endpoint: "https://localhost:1".to_owned(), ..Export::default() };
    let refused = |export: Export| {
        let outbox = super::bed::Outbox::default();
        match Exporter::start(configured(&export), outbox).err() {
            Some(StartError::Tls { place, source }) => {
                assert_eq!(place, "https://localhost:1");
                source
            }
            _ => panic!("{export:?} starts"),
        }
    };
    let ca = refused(Export { ca: none.clone(), ..secure.clone() });
    assert!(ca.to_string().contains("export.ca") && ca.to_string().contains("none.pem"), "{ca}");
    let ca = refused(Export { ca: empty, ..secure.clone() });
    assert!(matches!(ca, TlsError::Authorities { .. } | TlsError::File { .. }), "{ca}");
    let pair = Export { ca: authority.ca(), cert: cert.clone(), key: none, ..secure.clone() };
    assert!(refused(pair).to_string().contains("export.key"));
    let pair = Export { ca: authority.ca(), cert: cert.clone(), key: other, ..secure.clone() };
    assert!(matches!(refused(pair), TlsError::Identity { .. }));
    let pair = Export { ca: authority.ca(), cert, key, ..secure };
    assert!(Exporter::start(configured(&pair), super::bed::Outbox::default()).is_ok());
}
