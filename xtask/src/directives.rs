//! The reference of directives, as the table in `sekisho-config` tells it.

use std::path::Path;

use sekisho_config::reference;

use crate::{Complaints, check_generated};

const REFERENCE: &str = "docs/directives.md";

/// Writes the reference.
pub(crate) fn write(root: &Path) -> Complaints {
    crate::write(root, REFERENCE, &reference::markdown())
}

/// Checks that the reference is up to date.
pub(crate) fn check(root: &Path) -> Complaints {
    check_generated(root, REFERENCE, &reference::markdown(), "directives")
}
