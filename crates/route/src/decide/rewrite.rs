//! Scripts: `set`, `if`, `rewrite`, `break` and `return`, as nginx runs them. A path that a script has made is
//! used only where it is resolved (F2): the script may hold any other in between, but none leaves it.

use std::mem;

use sekisho_config::{
    Assignee, Branch, Condition, FileTest, Level, Part, Replacement, Return, Rewrite, Script, Step,
    Template, Then, Variable,
};
use sekisho_http::{Status, target};

use super::{Decision, Next};
use crate::action::{Action, Files, Kind};
use crate::path_mapping::{self, Mapped};
use crate::redirect;
use crate::route_state::RouteState;

/// A longer value of a script is an error (500): one that doubles itself must not take all memory.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// What comes after a step.
enum Flow<F> {
    /// The next one.
    GoOn,
    /// Nothing: the script is over.
    End,
    /// An answer.
    Leave(Next<F>),
}

/// Where the path comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// It is as it was.
    Asked,
    /// From the script, and it stays in the location.
    InPlace,
    /// From the script, and a location is to be looked for.
    Anew,
}

/// A script that is being run.
struct Run {
    path: Origin,
    /// Whether what was captured is percent-encoded in values, if the client sent it so. It is until a path has
    /// been rewritten, as in nginx.
    encodes: bool,
    /// `rewrite_log`
    logs: bool,
}

impl<'a, F: Files> Decision<'a, F> {
    /// The server's script. `None`: it goes on with the search for a location.
    pub(super) fn server_script(&mut self, script: &'a Script) -> Option<Next<F::File>> {
        self.script(script).1
    }

    /// The location's script. `None`: it goes on in the location, or in an `if` of it.
    pub(super) fn location_script(&mut self, script: &'a Script) -> Option<Next<F::File>> {
        match self.script(script) {
            (_, Some(next)) => Some(next),
            (false, None) => None,
            (true, None) => Some(self.count_redirect().map_or_else(|next| next, |()| Next::Search)),
        }
    }

    /// Runs a script: whether the path is to be looked for again, or what is answered.
    fn script(&mut self, script: &'a Script) -> (bool, Option<Next<F::File>>) {
        let logs = self.settings().rewriting.log;
        let mut run = Run { path: Origin::Asked, encodes: true, logs };
        let flow = self.steps(&script.steps, &mut run);
        if self.route_state.captures.is_exhausted() {
            return (false, Some(self.undecided()));
        }
        let is_path = run.path == Origin::Asked || self.settle_path();
        match flow {
            Flow::Leave(next) => (false, Some(next)),
            Flow::GoOn | Flow::End if is_path => (run.path == Origin::Anew, None),
            // A path made of variables is not resolved again: one that would need it is not there.
            Flow::GoOn | Flow::End => (false, Some(Next::Fail(Status::NOT_FOUND))),
        }
    }

    /// A path that cannot be used gives way to the last one that could; whether it had not to.
    fn settle_path(&mut self) -> bool {
        let is_path = target::is_dotless(&self.route_state.path);
        if !is_path {
            let RouteState { path, last_path, .. } = &mut *self.route_state;
            mem::swap(path, last_path);
        }
        is_path
    }

    /// The recursion is one deep: an `if` has no `if` in it.
    fn steps(&mut self, steps: &'a [Step], run: &mut Run) -> Flow<F::File> {
        for step in steps {
            let flow = match step {
                Step::Set(assignee, value) => self.set(*assignee, value, run),
                Step::If(branch) => self.branch(branch, run),
                Step::Rewrite(rewrite) => self.rewrite(rewrite, run),
                Step::Break => {
                    if run.path == Origin::Anew {
                        self.stay(run);
                    }
                    Flow::End
                }
                Step::Return(answer) => Flow::Leave(self.answer(answer)),
            };
            if !matches!(flow, Flow::GoOn) {
                return flow;
            }
        }
        Flow::GoOn
    }

    fn set(&mut self, assignee: Assignee, value: &Template, run: &Run) -> Flow<F::File> {
        let mut text = mem::take(&mut self.route_state.value);
        let is_short = self.fill(value, run.encodes, &mut text);
        let route_state = &mut *self.route_state;
        match assignee {
            _ if !is_short => {}
            Assignee::Variable(id) => {
                route_state.assigned.set_at(id.0, &text, route_state.captures.count());
            }
            // As in nginx, a server that is asked gets the new query, with the path as it was resolved.
            Assignee::Args => {
                text.clone_into(&mut route_state.query);
                route_state.is_moved = true;
            }
            Assignee::LimitRate => {
                // nginx logs what is no size, and leaves the rate alone.
                let size = std::str::from_utf8(&text).ok();
                let size = size.and_then(|text| sekisho_config::value::size(text).ok());
                route_state.limit_rate = size.or(route_state.limit_rate);
                if size.is_none() {
                    let text = format!("invalid $limit_rate \"{}\"", text.escape_ascii());
                    route_state.log_entries.get_mut().add(Level::Error, text);
                }
            }
        }
        self.route_state.value = text;
        if is_short { Flow::GoOn } else { self.too_long() }
    }

    fn branch(&mut self, branch: &'a Branch, run: &mut Run) -> Flow<F::File> {
        match self.holds(&branch.condition, run) {
            None => self.too_long(),
            Some(false) => Flow::GoOn,
            Some(true) => {
                if let Some(location) = branch.location {
                    self.route_state.location = location;
                }
                self.steps(&branch.steps, run)
            }
        }
    }

    /// Whether a condition holds; `None` where a value is too long to know.
    fn holds(&mut self, condition: &Condition, run: &Run) -> Option<bool> {
        let mut value = mem::take(&mut self.route_state.value);
        value.clear();
        let result = match condition {
            Condition::Is(variable) => {
                self.scoped(|scope| scope.variable(variable, &mut value));
                Some(!matches!(value.as_slice(), b"" | b"0"))
            }
            Condition::Equals { variable, value: other, is_negated } => {
                let is_short = self.fill(other, run.encodes, &mut value);
                let bytes = value.len();
                self.scoped(|scope| scope.variable(variable, &mut value));
                let (other, own) = value.split_at(bytes);
                is_short.then_some((own == other) != *is_negated)
            }
            Condition::Matches { variable, pattern, is_negated } => {
                self.scoped(|scope| scope.variable(variable, &mut value));
                let is_match = self.route_state.captures.matches_or_forgets(pattern, &value);
                self.log_match(run, &pattern.source, &value, is_match);
                Some(is_match != *is_negated)
            }
            Condition::File { test, path, is_negated } => {
                Some(self.is_file(*test, path, &mut value, run) != *is_negated)
            }
        };
        self.route_state.value = value;
        result
    }

    fn is_file(&mut self, test: FileTest, path: &Template, file: &mut Vec<u8>, run: &Run) -> bool {
        let captures =
            path.parts.iter().any(|part| matches!(part, Part::Variable(Variable::Capture(_))));
        let mapped = if captures && run.encodes && self.is_encoded() {
            // The names of files are values like others, and so nginx encodes what was captured.
            let is_short = self.fill(path, true, file);
            Mapped { root_bytes: 0, is_safe: is_short && target::is_resolved(file) }
        } else {
            self.scoped(|scope| path_mapping::write_asked(scope, path, file))
        };
        if !mapped.is_safe {
            return false;
        }
        let settings = self.settings();
        let Some(seen) = self.files.inspect(file, mapped.root_bytes, settings) else {
            return false;
        };
        match test {
            FileTest::File => seen.kind == Kind::File,
            FileTest::Directory => seen.kind == Kind::Directory,
            FileTest::Exists => seen.kind != Kind::Other,
            FileTest::Executable => seen.is_executable,
        }
    }

    fn rewrite(&mut self, rewrite: &Rewrite, run: &mut Run) -> Flow<F::File> {
        let RouteState { captures, path, .. } = &mut *self.route_state;
        let is_match = captures.matches_or_forgets(&rewrite.pattern, path);
        self.log_match(run, &rewrite.pattern.source, &self.route_state.path, is_match);
        if !is_match {
            return Flow::GoOn;
        }
        self.route_state.is_internal = true;
        run.encodes = false;
        match &rewrite.replacement {
            Replacement::Address { address, has_args, status } => {
                let keeps = rewrite.keeps_args.then_some(*has_args);
                self.redirect_rewritten(address, keeps, *status, run)
            }
            Replacement::Path { path, args, then } => {
                if let Err(flow) = self.replace_path(path, args.as_ref(), rewrite.keeps_args, run) {
                    return flow;
                }
                run.path = Origin::Anew;
                match then {
                    Then::GoOn => Flow::GoOn,
                    Then::Search => Flow::End,
                    Then::Stay => {
                        self.stay(run);
                        Flow::End
                    }
                }
            }
        }
    }

    /// The path is another, and the location stays the same.
    fn stay(&mut self, run: &mut Run) {
        run.path = Origin::InPlace;
        self.route_state.is_rewritten = true;
    }

    /// The client is redirected. `keeps`: the arguments of the request are added, to others or not.
    fn redirect_rewritten(
        &mut self,
        address: &Template,
        keeps: Option<bool>,
        status: Status,
        run: &Run,
    ) -> Flow<F::File> {
        let mut value = mem::take(&mut self.route_state.value);
        let is_short = self.fill(address, true, &mut value);
        decode_harmless(&mut value);
        if let Some(has_args) = keeps
            && !self.route_state.query.is_empty()
        {
            value.push(if has_args { b'&' } else { b'?' });
            value.extend_from_slice(&self.route_state.query);
        }
        if run.logs {
            let text = format!("rewritten redirect: \"{}\"", value.escape_ascii());
            self.log_entry(Level::Notice, text);
        }
        redirect::keep_host(self.settings(), address, &mut value);
        // Whatever a variable held, it cannot split the field (V48).
        redirect::write_address(self.table, self.request, self.route_state, &value);
        self.route_state.value = value;
        if is_short { Flow::Leave(Next::Redirect(status)) } else { self.too_long() }
    }

    /// The path becomes another, which may be one that cannot be used.
    fn replace_path(
        &mut self,
        path: &Template,
        args: Option<&Template>,
        keeps_args: bool,
        run: &Run,
    ) -> Result<(), Flow<F::File>> {
        self.route_state.is_moved = true;
        let mut new = mem::take(&mut self.route_state.value);
        let mut is_short = self.fill(path, false, &mut new);
        if let Some(args) = args {
            let mut query = Vec::new();
            is_short &= self.fill(args, true, &mut query);
            if keeps_args && !self.route_state.query.is_empty() {
                query.push(b'&');
                query.extend_from_slice(&self.route_state.query);
            }
            self.route_state.query = query;
        } else if !keeps_args {
            self.route_state.query.clear();
        }
        if run.logs {
            let (path, args) = (new.escape_ascii(), self.route_state.query.escape_ascii());
            self.log_entry(Level::Notice, format!("rewritten data: \"{path}\", args: \"{args}\""));
        }
        let is_short = is_short && self.route_state.query.len() <= VALUE_BYTES_MAX;
        if !is_short || new.is_empty() {
            self.route_state.value = new;
            if !is_short {
                return Err(self.too_long());
            }
            self.log_entry(Level::Error, "the rewritten URI has a zero length".to_owned());
            return Err(Flow::Leave(Next::Fail(Status::INTERNAL_SERVER_ERROR)));
        }
        let RouteState { path, last_path, value, .. } = &mut *self.route_state;
        mem::swap(path, &mut new);
        // The old path, if it was valid, is kept in case the new one is invalid.
        if target::is_dotless(&new) {
            mem::swap(last_path, &mut new);
        }
        *value = new;
        Ok(())
    }

    /// `return`
    fn answer(&mut self, answer: &Return) -> Next<F::File> {
        if answer.code == 444 {
            return Next::Done(Action::Close);
        }
        let Some(status) = Status::new(answer.code) else {
            return Next::Fail(Status::INTERNAL_SERVER_ERROR);
        };
        let Some(text) = &answer.text else {
            return self.bare(status);
        };
        let mut value = mem::take(&mut self.route_state.value);
        // Within the text, `$status` is what is about to be answered.
        let kept = self.route_state.status;
        self.route_state.status = kept.or(Some(status));
        self.expand(text, &mut value);
        self.route_state.status = kept;
        let next = if status.is_redirect() {
            redirect::keep_host(self.settings(), text, &mut value);
            redirect::write_address(self.table, self.request, self.route_state, &value);
            Next::Redirect(status)
        } else {
            self.route_state.text.clear();
            self.route_state.text.extend_from_slice(&value);
            Next::Done(Action::Text(self.route_state.status.unwrap_or(status)))
        };
        self.route_state.value = value;
        next
    }

    /// Writes a value of a script over what `out` holds; returns whether its length is acceptable. `encodes`:
    /// what was captured from a path that came encoded is encoded again.
    fn fill(&self, template: &Template, encodes: bool, out: &mut Vec<u8>) -> bool {
        out.clear();
        let encodes = encodes && self.is_encoded();
        self.scoped(|scope| {
            for part in &template.parts {
                match part {
                    Part::Variable(Variable::Capture(number)) if encodes => {
                        encode_args(scope.captures.numbered(*number).unwrap_or_default(), out);
                    }
                    part => scope.part(part, out),
                }
                if out.len() > VALUE_BYTES_MAX {
                    return false;
                }
            }
            true
        })
    }

    /// Whether the client's path had anything encoded in it, or a plus sign: only then is there anything to be
    /// encoded again.
    fn is_encoded(&self) -> bool {
        let target = target::split(self.request.head.target());
        target.is_ok_and(|target| target.path.iter().any(|byte| matches!(byte, b'%' | b'+')))
    }

    fn too_long(&self) -> Flow<F::File> {
        self.log_entry(Level::Error, format!("a value is longer than {VALUE_BYTES_MAX} bytes"));
        Flow::Leave(Next::Fail(Status::INTERNAL_SERVER_ERROR))
    }

    fn log_match(&self, run: &Run, pattern: &str, text: &[u8], is_match: bool) {
        if run.logs {
            let result = if is_match { "matches" } else { "does not match" };
            self.log_entry(
                Level::Notice,
                format!("\"{}\" {result} \"{}\"", pattern.escape_debug(), text.escape_ascii()),
            );
        }
    }

    pub(super) fn log_entry(&self, level: Level, text: String) {
        self.route_state.log_entries.borrow_mut().add(level, text);
    }
}

/// Percent-encodes what is not allowed in an argument.
fn encode_args(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if !byte.is_ascii_graphic() || b"#%&+;?\"<>\\^`{|}".contains(&byte) {
            target::push_escape(byte, out);
        } else {
            out.push(byte);
        }
    }
}

/// Takes the encoding from what needs none in an address, up to its arguments, as nginx does for redirects.
fn decode_harmless(address: &mut Vec<u8>) {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (mut read, mut written) = (0, 0);
    while let Some(&byte) = address.get(read) {
        let pair = (digit(address.get(read + 1)), digit(address.get(read + 2)));
        let (byte, taken) = match pair {
            (Some(high), Some(low)) if byte == b'%' => match (high * 16 + low) as u8 {
                plain @ b'&'..=b'~' => (plain, 3),
                _ => (byte, 1),
            },
            _ => (byte, 1),
        };
        address[written] = byte;
        written += 1;
        read += taken;
        if byte == b'?' {
            break;
        }
    }
    address.drain(written..read);
}
