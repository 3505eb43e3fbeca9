//! Object storage as root and as store, with real servers that check signatures: one of S3 (moto, from the Python package
//! index) and one of Azure Blob Storage (Azurite, from npm).
#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

/// Makes a test for each kind of store of functions that take one.
macro_rules! for_each_store {
    ($($name:ident,)*) => {
        mod s3 {
            $(#[test]
            fn $name() {
                if let Some(store) = crate::store::Store::start(crate::store::Kind::S3) {
                    super::$name(store);
                }
            })*
        }
        mod azure {
            $(#[test]
            fn $name() {
                if let Some(store) = crate::store::Store::start(crate::store::Kind::Azure) {
                    super::$name(store);
                }
            })*
        }
    };
}

mod azure;
mod changes;
mod dav;
mod odd;
mod reading;
mod slow;
mod store;
mod stored;
