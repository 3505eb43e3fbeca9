//! The `sekisho` program with the services that it has itself.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    sekisho::run(sekisho::built_in_services)
}
