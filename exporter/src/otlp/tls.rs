//! TLS: whom to trust, who we are, and what went wrong, in words that name the setting to change.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, RootCertStore};

/// The files that TLS needs, as configured; each may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    /// Authorities that may sign the server's certificate; empty: those of the system.
    pub(super) ca: Named,
    /// The client's certificate and its chain.
    pub(super) cert: Named,
    /// Its private key.
    pub(super) key: Named,
}

/// A file, and the setting that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) setting: &'static str,
    pub(super) path: PathBuf,
}

impl Named {
    fn is_empty(&self) -> bool {
        self.path.as_os_str().is_empty()
    }
}

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there, may not be read, or is no PEM file of that kind.
    #[error("read {key} {path:?} as PEM")]
    File {
        /// The setting that names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: pem::Error,
    },
    /// The file has no certificate, or none that can be trusted.
    #[error("{key} {path:?} has no certificate of an authority that can be used")]
    Authorities {
        /// The setting that names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// No authority is known.
    #[error(
        "this system has no certificates of authorities: install ca-certificates, or name a file in export.ca"
    )]
    NoAuthorities,
    /// Certificate and key of the client do not belong together, or cannot be used.
    #[error("use {key} {path:?} with its key")]
    Identity {
        /// The setting that names the certificate.
        key: &'static str,
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<rustls::Error>,
    },
    /// The library lacks what it needs.
    #[error("set up TLS")]
    Setup(#[source] rustls::Error),
}

/// Reads the files anew, so that a renewed certificate counts from the next connection. Without TLS nobody is trusted.
pub(super) fn config(files: Option<&Files>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    let Some(files) = files else {
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    };
    let builder = builder.with_root_certificates(authorities(&files.ca)?);
    if files.cert.is_empty() {
        return Ok(builder.with_no_client_auth());
    }
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key.path);
    let key = key.map_err(|source| broken(&files.key, source))?;
    let identity = builder.with_client_auth_cert(chain, key);
    let Named { setting: key, path } = &files.cert;
    let unfit = |source| TlsError::Identity { key, path: path.clone(), source: Box::new(source) };
    identity.map_err(unfit)
}

fn authorities(ca: &Named) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let found = match ca.is_empty() {
        true => rustls_native_certs::load_native_certs().certs,
        false => certificates(ca)?,
    };
    let (added, _) = roots.add_parsable_certificates(found);
    match (added, ca.is_empty()) {
        (0, true) => Err(TlsError::NoAuthorities),
        (0, false) => Err(TlsError::Authorities { key: ca.setting, path: ca.path.clone() }),
        _ => Ok(roots),
    }
}

fn certificates(file: &Named) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(&file.path).and_then(Iterator::collect);
    all.map_err(|source| broken(file, source))
}

fn broken(file: &Named, source: pem::Error) -> TlsError {
    TlsError::File { key: file.setting, path: file.path.clone(), source }
}

/// What a failed handshake means for whoever configures the client.
pub(super) fn explain(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!(
                    "TLS: nobody trusted here signed the server's certificate ({why:?}); name its authority in export.ca"
                )
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!(
                    "TLS: the server's certificate is for another name ({why}); use that name in export.endpoint"
                )
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!(
                    "TLS: the server's certificate has expired ({why}); renew it there, or correct this host's clock"
                )
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!(
                    "TLS: the server's certificate is not valid yet ({why}); correct this host's clock"
                )
            }
            other => format!("TLS: the server's certificate is refused: {other}"),
        },
        rustls::Error::AlertReceived(alert) => format!(
            "TLS: the server ends the handshake ({alert:?}); if it wants a client certificate, check export.cert and export.key"
        ),
        rustls::Error::InvalidMessage(_) => {
            "the server does not speak TLS; for plain HTTP use http:// in export.endpoint"
                .to_owned()
        }
        other => format!("TLS: {other}"),
    }
}

/// An error and what caused it, also where one lies inside an I/O error, which names only the cause of that one.
pub(super) fn chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
    })
}
