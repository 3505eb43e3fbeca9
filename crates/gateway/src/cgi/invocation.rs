//! The command line of a program and where it runs. Nothing of a request is an argument unless the configuration
//! says so by a variable, and nothing of it is ever an option (C8, V23).

use sekisho_config::{Part, Programs, Template};
use sekisho_route::{Request, RouteState, Table, expand};

use super::cause::Cause;

/// What is started, with what, and where.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Invocation {
    /// The file that is executed: the interpreter, or the program itself.
    pub program: Vec<u8>,
    /// All its arguments, its own name (the first) included.
    pub args: Vec<Vec<u8>>,
    /// The folder it runs in.
    pub directory: Vec<u8>,
    /// Whether there is an interpreter: then the program's own file need not be executable.
    pub is_interpreted: bool,
}

/// The invocation for an [`Action::Cgi`](sekisho_route::Action::Cgi).
pub fn invocation(
    table: &Table,
    request: &Request<'_>,
    route_state: &RouteState,
) -> Result<Invocation, Cause> {
    let settings = &table.location(route_state.location).settings;
    let Some(cgi) = settings.cgi.as_deref() else { return Err(Cause::NotStarted) };
    let value = |template: &Template| {
        let mut value = Vec::new();
        expand(template, table, request, route_state, None, &mut value);
        value
    };
    let argument = |template: &Template| Some(value(template)).filter(|it| is_safe(template, it));
    let file = &route_state.file;
    let mut args = Vec::new();
    let mut program = file.clone();
    let interpreter = cgi.interpreter_of(file);
    if let Some(interpreter) = interpreter {
        program = value(&interpreter.program);
        let is_elsewhere = program.split(|byte| *byte == b'/').any(|segment| segment == b"..");
        if is_elsewhere && interpreter.program.as_literal().is_none() {
            return Err(Cause::BadArgument);
        }
        args.extend(interpreter.args.iter().map(argument));
        // An absolute path: it cannot be taken for an option.
        args.push(Some(file.clone()));
    }
    if let Programs::One(pass) = &cgi.programs {
        args.extend(pass.args.iter().map(argument));
    }
    args.insert(0, Some(program.clone()));
    let args = args.into_iter().collect::<Option<_>>().ok_or(Cause::BadArgument)?;
    let mut directory = cgi.working_dir.as_deref().map(value).unwrap_or_default();
    if directory.is_empty() {
        let end = file.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        directory.extend_from_slice(if end == 0 { b"/" } else { &file[..end] });
    }
    Ok(Invocation { program, args, directory, is_interpreted: interpreter.is_some() })
}

/// Whether a value is no option, or one that the configuration itself says (C8, V23).
fn is_safe(template: &Template, value: &[u8]) -> bool {
    let is_said = matches!(template.parts.first(), None | Some(Part::Literal(_)));
    is_said || !value.starts_with(b"-")
}
