//! XML as a small tree, bounded in depth and in the number of elements. Namespaces are left out: stores differ in them.

use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;
use quick_xml::reader::Reader;

const DEPTH_MAX: usize = 16;
/// A page of a listing has at most 1000 entries of about ten elements.
const ELEMENTS_MAX: usize = 40_000;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) children: Vec<Self>,
}

impl Element {
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|child| child.name == name).map(|child| child.text.as_str())
    }
}

/// Reads a document; `None` for what is none.
pub(crate) fn parse(bytes: &[u8]) -> Option<Element> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    reader.config_mut().check_end_names = true;
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Element> = Vec::new();
    let mut count = 0;
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                count += 1;
                if open.len() == DEPTH_MAX || count > ELEMENTS_MAX {
                    return None;
                }
                let name = start.local_name().as_ref().to_owned();
                open.push(Element { name, ..Element::default() });
            }
            Event::End(_) => {
                let closed = open.pop()?;
                match open.last_mut() {
                    Some(outer) => outer.children.push(closed),
                    None => return Some(closed),
                }
            }
            Event::Text(text) => push(&mut open, &text.xml_content(XmlVersion::Explicit1_0)),
            Event::CData(text) => push(&mut open, &text.xml_content(XmlVersion::Explicit1_0)),
            Event::GeneralRef(reference) => match reference.resolve_char_ref().ok()? {
                Some(c) => push(&mut open, c.encode_utf8(&mut [0; 4])),
                None => push(&mut open, resolve_predefined_entity(&reference)?),
            },
            Event::Eof | Event::DocType(_) => return None,
            _ => {}
        }
    }
}

fn push(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}
