//! Why a request of HTTP/2 or HTTP/3 gets no response at all. [`refusal`](crate::refusal) has those that do.

macro_rules! malformed {
    ($($variant:ident $message:literal;)*) => {
        /// What makes a request malformed (RFC 9113 §8.1.1, RFC 9114 §4.1.2): its stream is reset.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Malformed { $(#[doc = $message] $variant,)* }

        impl Malformed {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// In words, for the error log.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$variant => $message,)* }
            }
        }
    };
}

malformed! {
    PseudoUnknown "pseudo-header field that a request cannot have";
    PseudoRepeated "pseudo-header field more than once";
    PseudoLate "pseudo-header field behind another field";
    PseudoInTrailers "pseudo-header field in trailers";
    MethodMissing "request without :method";
    MethodInvalid ":method is not a token";
    SchemeMissing "request without :scheme";
    SchemeInvalid ":scheme is not a scheme";
    PathMissing "request without :path";
    PathInvalid ":path is not an absolute path, or has an invalid byte";
    ConnectInvalid "CONNECT with :scheme or :path, or without :authority";
    ProtocolUnexpected ":protocol without CONNECT";
    HostDiffers "Host is not what :authority says";
    HostRepeated "more than one Host field";
    NameInvalid "header field name is not a token in lower case";
    ValueInvalid "header field value has a control byte, or white space at its ends";
    ConnectionField "header field that is only allowed in HTTP/1";
    TeInvalid "TE is something else than trailers";
    LengthInvalid "Content-Length is not one number of 64 bits";
    LengthDiffers "body does not have the length of Content-Length";
    DependsOnItself "stream depends on itself";
    TrailersInTunnel "header block in a tunnel";
    TrailersWithoutEnd "trailers that do not end the stream";
}
