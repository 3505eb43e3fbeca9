//! Scripts for FastCGI, SCGI and uwsgi as a client speaks them: a scripted application, on virtual time.

mod cuts;
mod fastcgi;
// One harness for every upstream protocol.
#[path = "../../../http1/tests/client/harness.rs"]
mod harness;
mod params;
mod real;
mod single;
#[path = "../../../http1/tests/client/wire.rs"]
mod wire;
