//! Which fields of an upstream's answer a client sees, what its `X-Accel-*` fields ask of us, and which
//! fields a request gains: `proxy_hide_header`, `proxy_pass_header`, `proxy_ignore_headers`.

use sekisho_http::Fields;

/// Fields that are not passed on unless `proxy_pass_header` says so; those with `X-Accel-` in front neither.
const HIDDEN: [&str; 3] = ["date", "server", "x-pad"];
const ACCEL: &str = "x-accel-";
/// FastCGI, SCGI and uwsgi have one more.
const STATUS: &str = "status";

/// What a client sees of the fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Visible {
    /// `proxy_hide_header`
    pub hidden: Vec<Box<str>>,
    /// `proxy_pass_header`
    pub passed: Vec<Box<str>>,
}

impl Visible {
    /// Whether a field of an HTTP server is passed on.
    pub fn has(&self, name: &[u8]) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if self.is_asked_for(name) {
            return true;
        }
        let is_accel = name
            .get(..ACCEL.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(ACCEL.as_bytes()));
        !(is_accel
            || HIDDEN.iter().any(|known| is(known))
            || self.hidden.iter().any(|known| is(known)))
    }

    /// The same for FastCGI, SCGI and uwsgi, where a field says the status.
    pub fn has_of_gateway(&self, name: &[u8]) -> bool {
        let is_status = name.eq_ignore_ascii_case(STATUS.as_bytes());
        self.has(name) && (!is_status || self.is_asked_for(name))
    }

    fn is_asked_for(&self, name: &[u8]) -> bool {
        self.passed.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    }

    /// Puts the fields that are passed on into `out`.
    pub fn push(&self, fields: &Fields, out: &mut Fields) {
        for (name, value) in fields.iter().filter(|(name, _)| self.has(name)) {
            out.push(name, value);
        }
    }
}

/// `proxy_ignore_headers`, as far as it is about `X-Accel-*`; the rest is the cache's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "these are the fields that may be ignored")]
pub struct IgnoredAccel {
    /// `X-Accel-Redirect`
    pub redirect: bool,
    /// `X-Accel-Limit-Rate`
    pub limit_rate: bool,
    /// `X-Accel-Buffering`
    pub buffering: bool,
    /// `X-Accel-Charset`
    pub charset: bool,
}

/// What an upstream asks of us.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Accel {
    /// `X-Accel-Redirect`: another target answers.
    pub redirect: Option<Vec<u8>>,
    /// `X-Accel-Limit-Rate`: bytes a second; 0 is no limit.
    pub limit_rate: Option<u64>,
    /// `X-Accel-Buffering`
    pub buffering: Option<bool>,
    /// `X-Accel-Charset`
    pub charset: Option<Vec<u8>>,
}

impl Accel {
    /// Reads the fields; what makes no sense is ignored, as in nginx.
    pub fn parse(fields: &Fields, ignored: IgnoredAccel) -> Self {
        let text = |name: &str| fields.get(name).filter(|value| !value.is_empty());
        let number = |value: &[u8]| {
            let text = str::from_utf8(value).ok()?;
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
        };
        let switch = |value: &[u8]| {
            if value.eq_ignore_ascii_case(b"yes") {
                Some(true)
            } else {
                value.eq_ignore_ascii_case(b"no").then_some(false)
            }
        };
        Self {
            redirect: text("x-accel-redirect").filter(|_| !ignored.redirect).map(<[u8]>::to_vec),
            limit_rate: text("x-accel-limit-rate").filter(|_| !ignored.limit_rate).and_then(number),
            buffering: text("x-accel-buffering").filter(|_| !ignored.buffering).and_then(switch),
            charset: text("x-accel-charset").filter(|_| !ignored.charset).map(<[u8]>::to_vec),
        }
    }
}

/// `$proxy_add_x_forwarded_for`: what the client's fields say, with its address behind it.
pub fn add_forwarded_for<'a>(fields: impl Iterator<Item = &'a [u8]>, client: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for field in fields.filter(|field| !field.is_empty()) {
        all.extend_from_slice(field);
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(client);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_hidden_and_passed() {
        let fields: Fields = [
            ("Date", "d"),
            ("Server", "s"),
            ("X-Accel-Expires", "1"),
            ("X-Pad", "p"),
            ("Status", "200"),
            ("X-Powered-By", "php"),
            ("Set-Cookie", "a"),
        ]
        .into_iter()
        .collect();
        let seen = |visible: &Visible| {
            let mut out = Fields::default();
            visible.push(&fields, &mut out);
            let names = out.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(seen(&Visible::default()), "Status X-Powered-By Set-Cookie");
        assert!(!Visible::default().has_of_gateway(b"status"));
        let asked = Visible { hidden: Vec::new(), passed: vec!["Status".into()] };
        assert!(asked.has_of_gateway(b"status") && asked.has_of_gateway(b"x-powered-by"));
        let visible = Visible {
            hidden: vec!["x-powered-by".into()],
            passed: vec!["server".into(), "X-Accel-Expires".into()],
        };
        assert_eq!(seen(&visible), "Server X-Accel-Expires Status Set-Cookie");
    }

    #[test]
    fn what_an_upstream_asks_is_read_or_ignored() {
        let fields: Fields = [
            ("X-Accel-Redirect", "/a"),
            ("X-Accel-Limit-Rate", "100"),
            ("X-Accel-Buffering", "No"),
            ("X-Accel-Charset", "utf-8"),
        ]
        .into_iter()
        .collect();
        let read = Accel::parse(&fields, IgnoredAccel::default());
        let expected = Accel {
            redirect: Some(b"/a".to_vec()),
            limit_rate: Some(100),
            buffering: Some(false),
            charset: Some(b"utf-8".to_vec()),
        };
        assert_eq!(read, expected);
        let all = IgnoredAccel { redirect: true, limit_rate: true, buffering: true, charset: true };
        assert_eq!(Accel::parse(&fields, all), Accel::default());
        let odd: Fields = [
            ("X-Accel-Redirect", ""),
            ("X-Accel-Limit-Rate", "fast"),
            ("X-Accel-Buffering", "perhaps"),
        ]
        .into_iter()
        .collect();
        assert_eq!(Accel::parse(&odd, IgnoredAccel::default()), Accel::default());
    }

    #[test]
    fn the_client_is_added_to_those_who_came_before() {
        let add = |fields: &[&str]| {
            let all = add_forwarded_for(fields.iter().map(|field| field.as_bytes()), b"10.0.0.1");
            String::from_utf8(all).expect("text")
        };
        assert_eq!(add(&[]), "10.0.0.1");
        assert_eq!(add(&["1.2.3.4", "", "5.6.7.8"]), "1.2.3.4, 5.6.7.8, 10.0.0.1");
    }
}
