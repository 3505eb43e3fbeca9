//! `ctl top`: all sessions, live, with keys to sort them and to control the one that is chosen. The terminal is
//! as it was when this ends, also by a panic.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use sekisho_endpoint::control::{Cancel, Finding, Outcome, Session, ShutDown, What};
use sekisho_net::Clock;

use super::Failure;
use super::session::Server;
use super::show::{age, bytes, current, deadline, label, name, state, tame};

/// What the keys do, from the most to the least needed: a small terminal shows the first of them.
const HELP: &str = "q quit  ↑↓ choose  c cancel  g graceful  f forceful  \
                    sort: i id  s state  a age  d deadline  b bytes  r reverse";

/// By what sessions are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sort {
    Id,
    State,
    Age,
    Deadline,
    Bytes,
}

impl Sort {
    const fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::State => "state",
            Self::Age => "age",
            Self::Deadline => "deadline",
            Self::Bytes => "bytes",
        }
    }
}

/// What a key asks for.
#[derive(Clone, PartialEq, Debug)]
enum Wanted {
    Nothing,
    Quit,
    /// An order about a session, and what it is called.
    Order(What, &'static str),
}

/// What is on the screen.
struct View {
    sessions: Vec<Session>,
    sort: Sort,
    is_reversed: bool,
    chosen: Option<String>,
    /// A forceful end wants its key twice.
    is_sure: Option<String>,
    message: String,
    table: TableState,
}

/// Shows the view until it is left.
pub(super) fn run(server: &mut Server, every: Duration) -> Result<ExitCode, Failure> {
    let mut view = View::new();
    view.take(server.sessions()?);
    let mut terminal = ratatui::try_init()
        .map_err(|error| Failure::Failed(format!("a live view needs a terminal: {error}")))?;
    let outcome = follow(server, &mut view, &mut terminal, every);
    ratatui::restore();
    outcome.map(|()| ExitCode::SUCCESS)
}

fn follow(
    server: &mut Server,
    view: &mut View,
    terminal: &mut ratatui::DefaultTerminal,
    every: Duration,
) -> Result<(), Failure> {
    let mut next: Instant = Clock::machine_now() + every;
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        let left = next.saturating_duration_since(Clock::machine_now());
        if event::poll(left)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
            match view.on_key(key.code, is_control) {
                Wanted::Quit => return Ok(()),
                Wanted::Nothing => {}
                Wanted::Order(what, name) => {
                    let outcome = server.ask_of_session(what)?;
                    view.message = told(name, &outcome);
                    view.take(server.sessions()?);
                }
            }
        }
        if Clock::machine_now() >= next {
            view.take(server.sessions()?);
            next = Clock::machine_now() + every;
        }
    }
}

fn told(name: &str, outcome: &Outcome) -> String {
    let session = outcome.sessions.first();
    let id = session.map_or_else(String::new, |session| format!(" {}", super::show::name(session)));
    match outcome.finding() {
        Finding::Done => format!("{name}{id}: done"),
        Finding::NothingRuns => format!("{name}{id}: no request runs"),
        Finding::NotFound | Finding::Ambiguous => format!("{name}: the session is gone"),
    }
}

impl View {
    fn new() -> Self {
        Self {
            sessions: Vec::new(),
            sort: Sort::Id,
            is_reversed: false,
            chosen: None,
            is_sure: None,
            message: String::new(),
            table: TableState::default(),
        }
    }

    /// Takes the sessions of a new look.
    fn take(&mut self, sessions: Vec<Session>) {
        self.sessions = sessions;
        self.order();
    }

    fn order(&mut self) {
        let by = self.sort;
        // Those that end and those that work come first, the largest before the smallest.
        self.sessions.sort_by_cached_key(|session| {
            let rank = match by {
                Sort::Id => 0,
                Sort::State => match session.state.as_bytes().first() {
                    Some(b'c') => 0,
                    Some(b'p') => 1,
                    _ => 2,
                },
                Sort::Age => u64::MAX - session.age_millis,
                Sort::Deadline if session.deadline.is_empty() => u64::MAX,
                Sort::Deadline => session.deadline_millis,
                Sort::Bytes => u64::MAX - (session.received_bytes + session.sent_bytes),
            };
            (rank, session.node.clone(), session.id)
        });
        if self.is_reversed {
            self.sessions.reverse();
        }
        let place = |it: &String| self.sessions.iter().position(|session| name(session) == *it);
        let at = self.chosen.as_ref().and_then(place);
        let at = at.or(self.table.selected().filter(|at| *at < self.sessions.len()));
        self.choose(at.unwrap_or(0));
    }

    fn choose(&mut self, at: usize) {
        let at = at.min(self.sessions.len().saturating_sub(1));
        self.chosen = self.sessions.get(at).map(name);
        self.table.select(self.chosen.as_ref().map(|_| at));
    }

    fn on_key(&mut self, key: KeyCode, is_control: bool) -> Wanted {
        let sure = self.is_sure.take();
        let at = self.table.selected().unwrap_or(0);
        match key {
            KeyCode::Char('c') if is_control => return Wanted::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return Wanted::Quit,
            KeyCode::Down | KeyCode::Char('j') => self.choose(at + 1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(at.saturating_sub(1)),
            KeyCode::PageDown => self.choose(at + 10),
            KeyCode::PageUp => self.choose(at.saturating_sub(10)),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(usize::MAX),
            KeyCode::Char('i') => self.sort_by(Sort::Id),
            KeyCode::Char('s') => self.sort_by(Sort::State),
            KeyCode::Char('a') => self.sort_by(Sort::Age),
            KeyCode::Char('d') => self.sort_by(Sort::Deadline),
            KeyCode::Char('b') => self.sort_by(Sort::Bytes),
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.order();
            }
            KeyCode::Char('c') => {
                return self
                    .about(|reference| (What::Cancel(Cancel { reference, request: 0 }), "cancel"));
            }
            KeyCode::Char('g') => {
                return self.about(|reference| {
                    (What::ShutDown(ShutDown { reference, forceful: false }), "graceful shutdown")
                });
            }
            KeyCode::Char('f') => {
                if sure.is_some() && sure == self.chosen {
                    return self.about(|reference| {
                        (
                            What::ShutDown(ShutDown { reference, forceful: true }),
                            "forceful shutdown",
                        )
                    });
                }
                self.is_sure.clone_from(&self.chosen);
                if let Some(name) = &self.chosen {
                    self.message = format!("press f again to close {name} forcefully");
                }
            }
            _ => {}
        }
        Wanted::Nothing
    }

    fn about(&self, order: impl FnOnce(String) -> (What, &'static str)) -> Wanted {
        let Some(chosen) = &self.chosen else { return Wanted::Nothing };
        let (what, name) = order(chosen.clone());
        Wanted::Order(what, name)
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.order();
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [top, middle, bottom] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        frame.render_widget(Paragraph::new(self.summary()).style(bold()), top);
        let widths = [
            Constraint::Length(8),
            Constraint::Length(7),
            Constraint::Length(18),
            Constraint::Length(22),
            Constraint::Length(8),
            Constraint::Length(27),
            Constraint::Length(6),
            Constraint::Length(6),
            Constraint::Min(20),
        ];
        let columns = shown_columns(middle.width);
        let head = ["ID", "PROTO", "STATE", "PEER", "AGE", "DEADLINE", "IN", "OUT", "REQUEST"];
        let head = columns.iter().map(|at| head[*at]);
        let rows = self.sessions.iter().map(|session| {
            let cells = cells(session);
            let row = Row::new(
                columns.iter().map(|at| Cell::new(cells[*at].clone())).collect::<Vec<_>>(),
            );
            row.style(match session.state.as_bytes().first() {
                Some(b'p') => Style::new().fg(Color::Green),
                Some(b'c') => Style::new().fg(Color::Yellow),
                _ => Style::new(),
            })
        });
        let table = Table::new(rows.collect::<Vec<_>>(), columns.iter().map(|at| widths[*at]))
            .header(Row::new(head.collect::<Vec<_>>()).style(bold()))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, middle, &mut self.table);
        let line = if self.message.is_empty() { HELP } else { &self.message };
        frame.render_widget(Paragraph::new(Line::from(tame(line))), bottom);
    }

    fn summary(&self) -> String {
        let count = |first: &str| {
            self.sessions.iter().filter(|session| session.state.starts_with(first)).count()
        };
        format!(
            "{} sessions: {} idle, {} processing, {} closing; sorted by {}{}",
            self.sessions.len(),
            count("idle"),
            count("p_"),
            count("c_"),
            self.sort.name(),
            if self.is_reversed { ", reversed" } else { "" }
        )
    }
}

/// Which columns a terminal of this width has room for, in their order.
fn shown_columns(width: u16) -> Vec<usize> {
    // What each takes with its gap, and the width from which it is shown.
    let from = [0, 70, 0, 50, 60, 100, 120, 120, 0];
    (0..from.len()).filter(|at| width >= from[*at]).collect()
}

fn cells(session: &Session) -> [String; 9] {
    let peer = match label(session).as_str() {
        "-" => session.peer.clone(),
        label => format!("{label} {}", session.peer),
    };
    [
        name(session),
        session.protocol.clone(),
        state(session),
        peer,
        age(session.age_millis),
        deadline(session),
        bytes(session.received_bytes),
        bytes(session.sent_bytes),
        current(session),
    ]
    .map(|cell| tame(&cell))
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn session(id: u64, state: &str, sent: u64) -> Session {
        Session {
            id,
            protocol: "http1".to_owned(),
            state: state.to_owned(),
            peer: format!("10.0.0.{id}:1"),
            sent_bytes: sent,
            age_millis: 1000 * id,
            ..Session::default()
        }
    }

    fn view() -> View {
        let mut view = View::new();
        view.take(vec![session(1, "idle", 7), session(2, "p_1", 9), session(3, "c_1", 8)]);
        view
    }

    fn order(view: &View) -> Vec<u64> {
        view.sessions.iter().map(|session| session.id).collect()
    }

    fn screen(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame)).expect("drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn keys_sort_and_the_chosen_session_stays_chosen() {
        // E10
        let mut view = view();
        view.on_key(KeyCode::Down, false);
        assert_eq!((order(&view), view.chosen.clone()), (vec![1, 2, 3], Some(":2".to_owned())));
        for (key, expected) in [
            ('b', [2, 3, 1]),
            ('s', [3, 2, 1]),
            ('a', [3, 2, 1]),
            ('i', [1, 2, 3]),
            ('r', [3, 2, 1]),
        ] {
            assert_eq!(view.on_key(KeyCode::Char(key), false), Wanted::Nothing);
            assert_eq!(
                (order(&view), view.chosen.clone()),
                (expected.to_vec(), Some(":2".to_owned())),
                "{key}"
            );
        }
        view.take(vec![session(1, "idle", 0)]);
        assert_eq!(view.chosen.as_deref(), Some(":1"), "an ended session is not chosen");
        view.take(Vec::new());
        assert_eq!(
            (view.chosen.clone(), view.on_key(KeyCode::Char('c'), false)),
            (None, Wanted::Nothing)
        );
    }

    #[test]
    fn force_wants_its_key_twice_and_the_others_once() {
        // E9
        let mut view = view();
        let cancel = What::Cancel(Cancel { reference: ":1".to_owned(), request: 0 });
        assert_eq!(view.on_key(KeyCode::Char('c'), false), Wanted::Order(cancel, "cancel"));
        assert_eq!(view.on_key(KeyCode::Char('f'), false), Wanted::Nothing);
        assert!(view.message.contains("f again"));
        view.on_key(KeyCode::Down, false);
        assert_eq!(view.on_key(KeyCode::Char('f'), false), Wanted::Nothing, "another session");
        let force = What::ShutDown(ShutDown { reference: ":2".to_owned(), forceful: true });
        let force = Wanted::Order(force, "forceful shutdown");
        assert_eq!(view.on_key(KeyCode::Char('f'), false), force);
        assert_eq!(view.on_key(KeyCode::Char('c'), true), Wanted::Quit);
    }

    #[test]
    fn every_size_of_terminal_shows_what_it_can() {
        // E10
        let wide = screen(&mut view(), 140, 8);
        for text in ["3 sessions", "DEADLINE", "OUT", "10.0.0.2:1", "p_1", "q quit"] {
            assert!(wide.contains(text), "{text} in\n{wide}");
        }
        let small = screen(&mut view(), 40, 5);
        assert!(small.contains(":1") && small.contains("idle"), "{small}");
        for (width, height) in [(1, 1), (3, 2), (10, 3), (500, 100)] {
            screen(&mut view(), width, height);
        }
    }
}
