//! Error codes of RST_STREAM and GOAWAY (RFC 9113 §7).

sekisho_http::error_codes! {
    u32;
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
