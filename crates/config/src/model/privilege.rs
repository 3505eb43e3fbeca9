//! The settings for the server's own rights.

use std::path::PathBuf;

/// `sandbox` and its companions, `no_new_privs` and `cgi_allow_root`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Privilege {
    /// `sandbox`
    pub sandbox: Sandbox,
    /// `sandbox_read`: places that may be read beside those that the configuration names elsewhere.
    pub read: Vec<PathBuf>,
    /// `sandbox_write`: the same for writing.
    pub write: Vec<PathBuf>,
    /// `no_new_privs`: neither the server nor a program can become more than it is.
    pub no_new_privs: bool,
    /// `cgi_allow_root`
    pub programs_as_root: bool,
}

/// `sandbox`: whether the kernel keeps the workers within their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sandbox {
    /// Where no program is run, and the kernel can.
    #[default]
    Auto,
    /// Always; programs are kept within them, too.
    On,
    /// Never.
    Off,
}
