//! What is wrong with TLS to an address of the endpoint, as an operator reads it.

use std::io;
use std::path::Path;

use super::{Failure, Target};

/// Why a handshake failed, and what to do.
pub(super) fn refused(error: &io::Error, target: &Target) -> Failure {
    use rustls::{CertificateError as Wrong, Error};
    let at = target.socket.as_deref().unwrap_or_default();
    let authorities = target.cacert.as_deref().unwrap_or(Path::new("")).display();
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    let no_tls = "no TLS is spoken there (\"listen … ssl\"): leave --cacert out";
    let why = match cause {
        Some(Error::InvalidCertificate(Wrong::UnknownIssuer)) => {
            format!(
                "no authority in {authorities} has signed the server's certificate (unknown authority)"
            )
        }
        Some(Error::InvalidCertificate(
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. },
        )) => "the server's certificate is for another name: say it with --servername".to_owned(),
        Some(Error::InvalidMessage(_) | Error::InappropriateMessage { .. }) => no_tls.to_owned(),
        Some(other) => other.to_string(),
        None => match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                format!("the server closed the connection; perhaps {no_tls}")
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no answer in time; perhaps {no_tls}")
            }
            _ => error.to_string(),
        },
    };
    Failure::NoServer(format!("TLS with {at} failed: {why}"))
}
