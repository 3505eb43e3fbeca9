//! What is done with a request before it is answered: the scripts of servers and locations, and the
//! variables that they set.

use std::sync::Arc;

use sekisho_http::Status;

use super::{LocationId, Pattern, Template, Variable};

/// What a level says about rewriting.
#[derive(Clone, Debug, Default)]
pub struct Rewriting {
    /// `rewrite`, `set`, `if`, `break` and `return`, in the order of the file (a level's own; a server's is
    /// run before a location is looked for). `None` where there are none.
    pub script: Option<Arc<Script>>,
    /// `rewrite_log`
    pub log: bool,
    /// `uninitialized_variable_warn`
    pub warns_of_unset: bool,
}

/// The steps of a server or a location.
#[derive(Debug, Default)]
pub struct Script {
    /// In the order of the file.
    pub steps: Vec<Step>,
}

/// One step of a [`Script`].
#[derive(Debug)]
pub enum Step {
    /// `set`
    Set(Assignee, Template),
    /// `if`
    If(Branch),
    /// `rewrite`
    Rewrite(Rewrite),
    /// `break`
    Break,
    /// `return`
    Return(Return),
}

/// What a `set` may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignee {
    /// A variable of the configuration's own.
    Variable(AssignedId),
    /// `$args`
    Args,
    /// `$limit_rate`
    LimitRate,
}

/// An index into [`Http::assigned`](super::Http::assigned).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AssignedId(pub u32);

/// A variable that some `set` gives a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assigned {
    /// Its name, without `$`.
    pub name: String,
    /// What it is where no `set` has been run: a named group, the variable of a `map`, a field.
    pub otherwise: Option<Variable>,
}

/// An `if` with what is done where it holds.
#[derive(Debug)]
pub struct Branch {
    /// The condition.
    pub condition: Condition,
    /// The settings that take over, seen as a location; `None` for an `if` of a server, which has none.
    pub location: Option<LocationId>,
    /// The steps within.
    pub steps: Vec<Step>,
}

/// The condition of an `if`.
#[derive(Debug)]
pub enum Condition {
    /// `$variable`: neither empty nor `0`.
    Is(Variable),
    /// `=` and, negated, `!=`
    Equals {
        /// What is compared.
        variable: Variable,
        /// With what.
        value: Template,
        /// `!=`
        is_negated: bool,
    },
    /// `~`, `~*` and, negated, `!~`, `!~*`
    Matches {
        /// What is matched.
        variable: Variable,
        /// By what.
        pattern: Arc<Pattern>,
        /// `!~` and `!~*`
        is_negated: bool,
    },
    /// `-f`, `-d`, `-e`, `-x` and, negated, `!-f`, …
    File {
        /// What is asked.
        test: FileTest,
        /// Of which file.
        path: Template,
        /// With `!`
        is_negated: bool,
    },
}

/// What may be asked of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileTest {
    /// `-f`: a regular file.
    File,
    /// `-d`: a directory.
    Directory,
    /// `-e`: a file, a directory or a symbolic link.
    Exists,
    /// `-x`: its owner may run it.
    Executable,
}

/// `rewrite`
#[derive(Debug)]
pub struct Rewrite {
    /// What the path must match.
    pub pattern: Arc<Pattern>,
    /// What becomes of it.
    pub replacement: Replacement,
    /// Whether the arguments of the request are added: the replacement does not end in `?`.
    pub keeps_args: bool,
}

/// What a `rewrite` makes of a path.
#[derive(Debug)]
pub enum Replacement {
    /// Another path.
    Path {
        /// The path.
        path: Template,
        /// The part after the first `?`, if there is one.
        args: Option<Template>,
        /// How it goes on.
        then: Then,
    },
    /// A redirect of the client.
    Address {
        /// Where to.
        address: Template,
        /// Whether there is a `?` in it.
        has_args: bool,
        /// 301 or 302.
        status: Status,
    },
}

/// How it goes on when a path has been rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// With the next step; a location is looked for at the end.
    GoOn,
    /// `last`: a location is looked for at once.
    Search,
    /// `break`: it stays in the location.
    Stay,
}

/// `return`
#[derive(Clone, Debug)]
pub struct Return {
    /// The code; 444 closes without an answer, so it is a number and not a `Status`.
    pub code: u16,
    /// Text, or the address of a redirect.
    pub text: Option<Arc<Template>>,
}
