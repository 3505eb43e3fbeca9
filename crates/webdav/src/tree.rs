//! XML as a small tree whose names are resolved. Bounded in depth and in the number of elements; a document type is
//! refused, and so is every entity but the five that XML has.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;
use quick_xml::{XmlVersion, escape};

use crate::{Invalid, Name};

/// How deep elements may lie in each other.
const DEPTH_MAX: usize = 32;
/// How many there may be.
const ELEMENTS_MAX: usize = 2000;
/// A longer body is not read.
pub const BYTES_MAX: usize = 64 << 10;

/// An element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Element {
    pub(crate) name: Name,
    /// With the namespace of each name; `xmlns` is not among them.
    pub(crate) attributes: Vec<(Name, String)>,
    pub(crate) content: Vec<Content>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Text(String),
    Element(Element),
}

impl Element {
    /// The elements directly in it.
    pub(crate) fn children(&self) -> impl Iterator<Item = &Self> {
        self.content.iter().filter_map(|content| match content {
            Content::Element(element) => Some(element),
            Content::Text(_) => None,
        })
    }

    /// The first one of this name of the protocol.
    pub(crate) fn child(&self, local: &str) -> Option<&Self> {
        self.children().find(|child| child.is(local))
    }

    /// Whether it is this one of the protocol.
    pub(crate) fn is(&self, local: &str) -> bool {
        self.name.is_dav() && self.name.local == local
    }

    /// Its content as self-contained XML: no prefix is declared outside.
    pub(crate) fn inner_xml(&self) -> String {
        let mut out = String::new();
        for content in &self.content {
            content.write(&mut out);
        }
        out
    }

    fn write(&self, out: &mut String) {
        out.push('<');
        out.push_str(&self.name.local);
        push_attribute("xmlns", &self.name.namespace, out);
        for (number, (name, value)) in self.attributes.iter().enumerate() {
            match name.namespace.as_str() {
                "" => push_attribute(&name.local, value, out),
                XML => push_attribute(&format!("xml:{}", name.local), value, out),
                namespace => {
                    push_attribute(&format!("xmlns:a{number}"), namespace, out);
                    push_attribute(&format!("a{number}:{}", name.local), value, out);
                }
            }
        }
        if self.content.is_empty() {
            out.push_str("/>");
            return;
        }
        out.push('>');
        for content in &self.content {
            content.write(out);
        }
        out.push_str("</");
        out.push_str(&self.name.local);
        out.push('>');
    }
}

impl Content {
    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(&escape::escape(text.as_str())),
            Self::Element(element) => element.write(out),
        }
    }
}

/// The namespace of the prefix `xml`.
const XML: &str = "http://www.w3.org/XML/1998/namespace";

fn push_attribute(name: &str, value: &str, out: &mut String) {
    out.push(' ');
    out.push_str(name);
    out.push_str("=\"");
    out.push_str(&escape::escape(value));
    out.push('"');
}

/// Reads a document.
pub(crate) fn parse(bytes: &[u8]) -> Result<Element, Invalid> {
    if bytes.len() > BYTES_MAX {
        return Err(Invalid::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Invalid::Malformed)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // What XML does not allow at all would come out again in an answer.
    if text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
        return Err(Invalid::Malformed);
    }
    let mut reader = NsReader::from_str(text);
    reader.config_mut().check_end_names = true;
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    let mut count = 0;
    loop {
        let event = reader.read_event().map_err(|_| Invalid::Malformed)?;
        match event {
            Event::Start(start) => {
                count += 1;
                if open.len() == DEPTH_MAX || count > ELEMENTS_MAX {
                    return Err(Invalid::TooLarge);
                }
                if open.is_empty() && root.is_some() {
                    return Err(Invalid::Malformed);
                }
                open.push(element(&reader, &start)?);
            }
            Event::End(_) => {
                let closed = open.pop().ok_or(Invalid::Malformed)?;
                match open.last_mut() {
                    Some(outer) => outer.content.push(Content::Element(closed)),
                    None => root = Some(closed),
                }
            }
            Event::Text(text) => {
                push_text(&mut open, &text.xml_content(XmlVersion::Explicit1_0))?;
            }
            Event::CData(text) => push_text(&mut open, &text.xml_content(XmlVersion::Explicit1_0))?,
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().map_err(|_| Invalid::Malformed)?;
                match character {
                    Some(c) if is_allowed(c) => push_text(&mut open, c.encode_utf8(&mut [0; 4]))?,
                    Some(_) => return Err(Invalid::Malformed),
                    None => {
                        let text = resolve_predefined_entity(&reference);
                        push_text(&mut open, text.ok_or(Invalid::Malformed)?)?;
                    }
                }
            }
            Event::Eof if open.is_empty() => return root.ok_or(Invalid::Malformed),
            Event::Eof | Event::DocType(_) => return Err(Invalid::Malformed),
            _ => {}
        }
    }
}

/// What XML 1.0 has no way to say is not taken from a reference either.
fn is_allowed(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}') || matches!(c, '\t' | '\n' | '\r')
}

fn element(reader: &NsReader<&[u8]>, start: &BytesStart<'_>) -> Result<Element, Invalid> {
    let (namespace, local) = reader.resolver().resolve_element(start.name());
    let name = Name { namespace: namespace_of(&namespace)?, local: name_of(local.into_inner())? };
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|_| Invalid::Malformed)?;
        let key = attribute.key.into_inner();
        if key == "xmlns" || key.strip_prefix("xmlns:").is_some() {
            // `xmlns:x=""` takes a prefix back, which is a mistake (Namespaces in XML 1.0 §2.2).
            if key != "xmlns" && attribute.value.is_empty() {
                return Err(Invalid::Malformed);
            }
            continue;
        }
        let (namespace, local) = reader.resolver().resolve_attribute(attribute.key);
        let name =
            Name { namespace: namespace_of(&namespace)?, local: name_of(local.into_inner())? };
        let value = attribute.normalized_value(XmlVersion::Explicit1_0);
        let value = value.map_err(|_| Invalid::Malformed)?.into_owned();
        if !value.chars().all(is_allowed) {
            return Err(Invalid::Malformed);
        }
        attributes.push((name, value));
    }
    Ok(Element { name, attributes, content: Vec::new() })
}

fn namespace_of(resolved: &ResolveResult<'_>) -> Result<String, Invalid> {
    match resolved {
        ResolveResult::Unbound => Ok(String::new()),
        ResolveResult::Bound(namespace) => {
            let text = escape::unescape(namespace.into_inner()).map_err(|_| Invalid::Malformed)?;
            if text.chars().all(is_allowed) {
                Ok(text.into_owned())
            } else {
                Err(Invalid::Malformed)
            }
        }
        ResolveResult::Unknown(_) => Err(Invalid::Malformed),
    }
}

/// A name that can be written again as it is.
fn name_of(local: &str) -> Result<String, Invalid> {
    let is_start = |c: char| c.is_alphabetic() || c == '_';
    let is_rest = |c: char| is_start(c) || c.is_numeric() || matches!(c, '-' | '.' | '\u{b7}');
    let mut characters = local.chars();
    let is_name = characters.next().is_some_and(is_start) && characters.all(is_rest);
    if is_name { Ok(local.to_owned()) } else { Err(Invalid::Malformed) }
}

fn push_text(open: &mut [Element], text: &str) -> Result<(), Invalid> {
    let Some(element) = open.last_mut() else {
        // Blanks may stand around the root, and nothing else.
        return if text.trim().is_empty() { Ok(()) } else { Err(Invalid::Malformed) };
    };
    match element.content.last_mut() {
        Some(Content::Text(before)) => before.push_str(text),
        _ => element.content.push(Content::Text(text.to_owned())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_resolved_and_values_stand_for_themselves() {
        let text = "<?xml version=\"1.0\"?><a:x xmlns:a='one' xmlns='two' b='&lt;'>t&amp;&#x41;<y a:c='d'/><![CDATA[<]]></a:x>";
        let root = parse(text.as_bytes()).expect("well-formed");
        assert_eq!(root.name, Name { namespace: "one".into(), local: "x".into() });
        assert_eq!(root.inner_xml(), "t&amp;A<y xmlns=\"two\" xmlns:a0=\"one\" a0:c=\"d\"/>&lt;");
        let again = format!("<z>{}</z>", root.inner_xml());
        let again = parse(again.as_bytes()).expect("well-formed");
        assert_eq!(again.content, root.content);
    }

    #[test]
    fn what_is_not_well_formed_or_too_large_is_refused() {
        for text in [
            "",
            "x",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<p:a/>",
            "<a xmlns:p=''/>",
            "<a b='1' b='2'/>",
            "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
            "<a>&nothing;</a>",
            "<a>&#0;</a>",
            "<a>\u{1}</a>",
            "<a b='&#1;'/>",
        ] {
            assert_eq!(parse(text.as_bytes()), Err(Invalid::Malformed), "{text}");
        }
        assert_eq!(parse(b"<a>\xff</a>"), Err(Invalid::Malformed));
        let deep = "<a>".repeat(DEPTH_MAX + 1);
        assert_eq!(parse(deep.as_bytes()), Err(Invalid::TooLarge));
        let many = format!("<a>{}</a>", "<b/>".repeat(ELEMENTS_MAX));
        assert_eq!(parse(many.as_bytes()), Err(Invalid::TooLarge));
        assert_eq!(parse(&vec![b' '; BYTES_MAX + 1]), Err(Invalid::TooLarge));
    }
}
