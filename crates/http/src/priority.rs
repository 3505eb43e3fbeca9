//! Priorities of responses (RFC 9218): urgency, and whether a part of a response is of use to the client.

/// How urgent a response is where the client does not say.
pub const URGENCY_DEFAULT: u8 = 3;
const URGENCY_MAX: u8 = 7;

/// What a client says about a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub urgency: u8,
    /// Whether the response may share the connection with others of its urgency.
    pub is_incremental: bool,
    /// Whether the client said anything. Clients that never do expect their streams to go forward side by side,
    /// so that one is only sent as a whole before the next where the client has asked for it.
    pub is_given: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: URGENCY_DEFAULT, is_incremental: false, is_given: false }
    }
}

impl Priority {
    /// Reads a `Priority` field value, a dictionary of RFC 9651; what cannot be read counts as not given.
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in value.split(|byte| *byte == b',') {
            let member = member.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            match member {
                [b'u', b'=', digit @ b'0'..=b'9'] if digit - b'0' <= URGENCY_MAX => {
                    (priority.urgency, priority.is_given) = (digit - b'0', true);
                }
                b"i" | b"i=?1" => (priority.is_incremental, priority.is_given) = (true, true),
                b"i=?0" => (priority.is_incremental, priority.is_given) = (false, true),
                _ => {}
            }
        }
        priority
    }

    /// Whether the response is sent as a whole before the next one of its urgency.
    pub const fn is_sequential(self) -> bool {
        self.is_given && !self.is_incremental
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_values_are_read_as_the_rfc_says() {
        type Row = (&'static [u8], (u8, bool, bool));
        let rows: [Row; 11] = [
            (b"", (3, false, false)),
            (b"u=0", (0, false, true)),
            (b"u=7, i", (7, true, true)),
            (b"i=?0,u=5", (5, false, true)),
            (b"i;x=y , u=2;z", (2, true, true)),
            (b"u=8", (3, false, false)),
            (b"u=-1", (3, false, false)),
            (b"u=1.5", (3, false, false)),
            (b"U=1", (3, false, false)),
            (b"u=1, u=2", (2, false, true)),
            (b"foo=bar, i=?2", (3, false, false)),
        ];
        for (value, expected) in rows {
            let seen = Priority::parse(value);
            let seen = (seen.urgency, seen.is_incremental, seen.is_given);
            assert_eq!(seen, expected, "{}", value.escape_ascii());
        }
    }
}
