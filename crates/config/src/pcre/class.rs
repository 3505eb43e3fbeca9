//! Classes: `[a-z]`.

use super::{Reader, kind};

/// The names of `[:alpha:]` and its like.
const NAMES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// One member of a class.
enum Member {
    /// A character by its number.
    One(u32),
    /// Several, as the engines write them.
    Several(String),
}

impl Reader<'_> {
    /// Reads a class. What comes out has no character in it that the engines could take for an operation.
    pub(super) fn class(&mut self) -> Result<(), String> {
        self.copy(1);
        if self.rest.starts_with('^') {
            self.copy(1);
        }
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            let first = self.member()?;
            self.from(&first)?;
            is_first = false;
        }
        self.copy(1);
        Ok(())
    }

    /// Writes a member, or the range that begins with it.
    fn from(&mut self, first: &Member) -> Result<(), String> {
        self.write(first);
        let is_range = self.rest.starts_with('-') && !self.rest[1..].starts_with(']');
        if !is_range || matches!(first, Member::Several(_)) {
            return Ok(());
        }
        let before = self.rest;
        self.rest = &self.rest[1..];
        match self.member()? {
            last @ Member::One(_) => {
                self.out.push('-');
                self.write(&last);
            }
            // The hyphen is a character, and what follows it is read again.
            Member::Several(_) => {
                self.rest = &before[1..];
                self.write(&Member::One(u32::from(b'-')));
            }
        }
        Ok(())
    }

    fn write(&mut self, member: &Member) {
        match member {
            Member::Several(text) => self.out.push_str(text),
            Member::One(code) => match u8::try_from(*code).map(char::from) {
                Ok(plain) if plain.is_ascii_alphanumeric() || "_/.,:;%=@!\"'<>".contains(plain) => {
                    self.out.push(plain);
                }
                _ => self.push_code(*code),
            },
        }
    }

    /// Takes one member.
    fn member(&mut self) -> Result<Member, String> {
        if self.rest.starts_with('\\') {
            self.rest = &self.rest[1..];
            return self.escaped_member();
        }
        if let Some(class) = self.named_class()? {
            return Ok(Member::Several(class));
        }
        self.one().map(Member::One)
    }

    /// The next character.
    fn one(&mut self) -> Result<u32, String> {
        let next = self.rest.chars().next().ok_or("a \"[\" has no \"]\"")?;
        self.rest = &self.rest[next.len_utf8()..];
        Ok(u32::from(next))
    }

    /// `[:alpha:]`, `[:^alpha:]`
    fn named_class(&mut self) -> Result<Option<String>, String> {
        let Some(inside) = self.rest.strip_prefix("[:") else { return Ok(None) };
        let end = inside.find(|c: char| c != '^' && !c.is_ascii_alphabetic());
        let Some((name, behind)) = end.map(|end| inside.split_at(end)) else { return Ok(None) };
        let Some(behind) = behind.strip_prefix(":]") else { return Ok(None) };
        if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(format!("there is no class \"{name}\""));
        }
        self.rest = behind;
        Ok(Some(format!("[:{name}:]")))
    }

    /// A member that is written with a backslash, which is behind us.
    fn escaped_member(&mut self) -> Result<Member, String> {
        let first = self.rest.chars().next().ok_or("a backslash is at its end")?;
        let several = match first {
            'd' | 'h' | 's' | 'v' | 'w' => kind(first).to_owned(),
            'D' | 'H' | 'S' | 'V' | 'W' => format!("[^{}]", kind(first)),
            'p' | 'P' => {
                let before = self.out.len();
                self.property();
                return Ok(Member::Several(self.out.split_off(before)));
            }
            _ => return self.escaped_one(first).map(Member::One),
        };
        self.rest = &self.rest[1..];
        Ok(Member::Several(several))
    }

    /// One character behind a backslash.
    fn escaped_one(&mut self, first: char) -> Result<u32, String> {
        if let Some(code) = self.coded()? {
            return Ok(code);
        }
        if first.is_digit(8) {
            let length = self.rest.bytes().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
            let (digits, behind) = self.rest.split_at(length);
            self.rest = behind;
            return u32::from_str_radix(digits, 8).map_err(|error| error.to_string());
        }
        let code = match first {
            'a' => 7,
            'b' => 8,
            't' => 9,
            'n' => 10,
            'f' => 12,
            'r' => 13,
            _ if first.is_ascii_alphanumeric() => {
                return Err(format!("\"\\{first}\" is unknown in a class"));
            }
            _ => return self.one(),
        };
        self.rest = &self.rest[1..];
        Ok(code)
    }
}
