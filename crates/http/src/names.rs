//! Tables of names that HTTP/2 and HTTP/3 have alike: error codes, and bounds on what a peer may do.

/// An enum of error codes with their numbers on the wire and their names in the RFC.
#[macro_export]
macro_rules! error_codes {
    ($number:ty; $($variant:ident $value:literal $name:literal;)*) => {
        /// Why a stream or the connection ends.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Code { $(#[doc = $name] $variant,)* }

        impl Code {
            /// Every code, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number on the wire.
            pub const fn number(self) -> $number {
                match self { $(Self::$variant => $value,)* }
            }

            /// The name in the RFC.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

/// An enum of bounds with their names. Those that are rates come first.
#[macro_export]
macro_rules! bounds {
    ($($(#[doc = $doc:literal])+ $variant:ident $tag:literal;)*) => {
        /// What is bounded.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Bound { $($(#[doc = $doc])+ $variant,)* }

        impl Bound {
            /// Every bound, in the order of its counter.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// Its name in logs and metrics.
            pub const fn tag(self) -> &'static str {
                match self { $(Self::$variant => $tag,)* }
            }
        }
    };
}

/// Gives the policy of a protocol its rates, and the limits and deadlines that every version of HTTP has.
#[macro_export]
macro_rules! policy_parts {
    () => {
        impl Policy {
            /// The rate of a bound.
            pub fn rate(&self, bound: Bound) -> $crate::Rate {
                let none = $crate::Rate { burst: 0, per_second: 0 };
                self.rates.get(bound as usize).copied().unwrap_or(none)
            }
        }

        impl std::ops::Deref for Policy {
            type Target = $crate::Policy;

            fn deref(&self) -> &Self::Target {
                &self.common
            }
        }

        impl std::ops::DerefMut for Policy {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.common
            }
        }
    };
}
