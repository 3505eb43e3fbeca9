//! Error codes of RST_STREAM and GOAWAY (RFC 9113 §7).

macro_rules! codes {
    ($($variant:ident $number:literal $name:literal;)*) => {
        /// Why a stream or the connection ends.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Code { $(#[doc = $name] $variant,)* }

        impl Code {
            /// Every code, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number on the wire.
            pub const fn number(self) -> u32 {
                match self { $(Self::$variant => $number,)* }
            }

            /// The name in the RFC.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

codes! {
    NoError 0x0 "NO_ERROR";
    Protocol 0x1 "PROTOCOL_ERROR";
    Internal 0x2 "INTERNAL_ERROR";
    FlowControl 0x3 "FLOW_CONTROL_ERROR";
    SettingsTimeout 0x4 "SETTINGS_TIMEOUT";
    StreamClosed 0x5 "STREAM_CLOSED";
    FrameSize 0x6 "FRAME_SIZE_ERROR";
    RefusedStream 0x7 "REFUSED_STREAM";
    Cancel 0x8 "CANCEL";
    Compression 0x9 "COMPRESSION_ERROR";
    Connect 0xa "CONNECT_ERROR";
    EnhanceYourCalm 0xb "ENHANCE_YOUR_CALM";
    InadequateSecurity 0xc "INADEQUATE_SECURITY";
    Http11Required 0xd "HTTP_1_1_REQUIRED";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_rfc() {
        for (number, code) in (0..).zip(Code::ALL) {
            assert_eq!(code.number(), number, "{}", code.name());
        }
    }
}
