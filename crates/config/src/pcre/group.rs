//! Groups, and references to them.

use std::fmt::Write as _;

use super::Reader;

const RECURSION: &str = "recursion is not supported";

impl<'s> Reader<'s> {
    /// The opening of a group.
    pub(super) fn group(&mut self) -> Result<(), String> {
        let is_spaced = self.is_spaced.last() == Some(&true);
        self.copy(1);
        let Some(kind) = self.rest.strip_prefix('?') else {
            self.is_spaced.push(is_spaced);
            self.groups += usize::from(!self.rest.starts_with('*'));
            return Ok(());
        };
        match kind.as_bytes() {
            [b'#', ..] => {
                self.out.pop();
                self.until(')')?;
                return Ok(());
            }
            [b'R' | b'&' | b'0'..=b'9', ..] | [b'P', b'>', ..] | [b'+' | b'-', b'0'..=b'9', ..] => {
                return Err(RECURSION.to_owned());
            }
            [b'P', b'=', ..] => {
                self.out.pop();
                self.rest = &kind[2..];
                let name = self.until(')')?;
                self.push_name(name);
                return Ok(());
            }
            // A condition: its own parentheses are no group.
            [b'(', b'0'..=b'9' | b'<' | b'\'', ..] => {
                let end = self.rest.find(')').ok_or("\")\" is missing")?;
                self.copy(end + 1);
            }
            [b'(', ..] => self.copy(1),
            [b'\'', ..] => {
                self.rest = &kind[1..];
                let name = self.until('\'')?;
                self.groups += 1;
                let _ = write!(self.out, "?<{name}>");
            }
            [b'<', b'=' | b'!', ..] => self.copy(3),
            [b'<', ..] | [b'P', b'<', ..] => {
                self.groups += 1;
                self.copy(2);
            }
            [b':' | b'=' | b'!' | b'>' | b'|', ..] => self.copy(2),
            _ => return self.options(kind, is_spaced),
        }
        self.is_spaced.push(is_spaced);
        Ok(())
    }

    /// `(?i)`, `(?i-s:…)`, `(?^:…)`
    fn options(&mut self, kind: &'s str, around: bool) -> Result<(), String> {
        let end = kind.find([':', ')']).ok_or("\")\" is missing")?;
        let (options, behind) = kind.split_at(end);
        let (on, off) = options.split_once('-').unwrap_or((options, ""));
        let is_spaced = (around || on.contains('x')) && !off.contains('x');
        let (reset, is_spaced) = match on.strip_prefix('^') {
            Some(on) => (Some(on), on.contains('x')),
            None => (None, is_spaced),
        };
        if let Some(on) = reset {
            let off = "imsx".replace(|option| on.contains(option), "");
            let sign = if off.is_empty() { "" } else { "-" };
            let _ = write!(self.out, "?{on}{sign}{off}");
        } else {
            self.out.push('?');
            self.out.push_str(options);
        }
        self.rest = behind;
        if behind.starts_with(')') {
            if let Some(here) = self.is_spaced.last_mut() {
                *here = is_spaced;
            }
        } else {
            self.is_spaced.push(is_spaced);
        }
        self.copy(1);
        Ok(())
    }

    /// `\g1`, `\g{1}`, `\g{-1}`, `\g{name}`; we are at the `g`.
    pub(super) fn reference(&mut self) -> Result<(), String> {
        self.rest = &self.rest[1..];
        if self.rest.starts_with(['<', '\'']) {
            return Err(RECURSION.to_owned());
        }
        let group = if self.skip("{") {
            self.until('}')?
        } else {
            let is_part = |(at, c): (usize, char)| c.is_ascii_digit() || (at == 0 && c == '-');
            let length = self.rest.char_indices().take_while(|part| is_part(*part)).count();
            let (group, behind) = self.rest.split_at(length);
            self.rest = behind;
            group
        };
        let number = match group.strip_prefix('-') {
            Some(back) => {
                back.parse().ok().and_then(|back: usize| (self.groups + 1).checked_sub(back))
            }
            None if group.starts_with(|c: char| c.is_ascii_digit()) => group.parse().ok(),
            None if group.is_empty() => None,
            None => {
                self.push_name(group);
                return Ok(());
            }
        };
        match number {
            Some(number) if number > 0 => {
                let _ = write!(self.out, r"(?:\{number})");
                Ok(())
            }
            _ => Err(format!("there is no group \"{group}\"")),
        }
    }

    /// `\k<name>`, `\k'name'`, `\k{name}`; we are behind the `k`.
    pub(super) fn named_reference(&mut self) -> Result<(), String> {
        let end = match self.rest.as_bytes().first() {
            Some(b'<') => '>',
            Some(b'\'') => '\'',
            Some(b'{') => '}',
            _ => return Err(r#""\k" has no name"#.to_owned()),
        };
        self.rest = &self.rest[1..];
        let name = self.until(end)?;
        self.push_name(name);
        Ok(())
    }

    fn push_name(&mut self, name: &str) {
        let _ = write!(self.out, r"\k<{name}>");
    }
}
