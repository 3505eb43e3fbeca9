//! Error codes of HTTP/3 and QPACK (RFC 9114 §8.1, RFC 9204 §6).

sekisho_http::error_codes! {
    u64;
    NoError 0x100 "H3_NO_ERROR";
    GeneralProtocol 0x101 "H3_GENERAL_PROTOCOL_ERROR";
    Internal 0x102 "H3_INTERNAL_ERROR";
    StreamCreation 0x103 "H3_STREAM_CREATION_ERROR";
    ClosedCriticalStream 0x104 "H3_CLOSED_CRITICAL_STREAM";
    FrameUnexpected 0x105 "H3_FRAME_UNEXPECTED";
    Frame 0x106 "H3_FRAME_ERROR";
    ExcessiveLoad 0x107 "H3_EXCESSIVE_LOAD";
    Id 0x108 "H3_ID_ERROR";
    Settings 0x109 "H3_SETTINGS_ERROR";
    MissingSettings 0x10a "H3_MISSING_SETTINGS";
    RequestRejected 0x10b "H3_REQUEST_REJECTED";
    RequestCancelled 0x10c "H3_REQUEST_CANCELLED";
    RequestIncomplete 0x10d "H3_REQUEST_INCOMPLETE";
    Message 0x10e "H3_MESSAGE_ERROR";
    Connect 0x10f "H3_CONNECT_ERROR";
    VersionFallback 0x110 "H3_VERSION_FALLBACK";
    DecompressionFailed 0x200 "QPACK_DECOMPRESSION_FAILED";
    EncoderStream 0x201 "QPACK_ENCODER_STREAM_ERROR";
    DecoderStream 0x202 "QPACK_DECODER_STREAM_ERROR";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_rfcs() {
        let numbers = (0x100..=0x110).chain(0x200..=0x202);
        for (number, code) in numbers.zip(Code::ALL) {
            assert_eq!(code.number(), number, "{}", code.name());
        }
        assert_eq!(Code::ALL.len(), 20);
    }
}
