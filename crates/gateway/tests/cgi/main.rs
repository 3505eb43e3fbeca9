//! CGI without processes: tables and virtual time.

mod environment;
mod head;
mod program;
mod property;
