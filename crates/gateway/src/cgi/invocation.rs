//! The command line of a program and where it runs. Nothing of a request's query is ever an argument
//! (C8).

use sekisho_route::{Exchange, Request, Table, expand};

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

/// The invocation for an [`Action::Cgi`](sekisho_route::Action::Cgi); `None` where nothing is run.
pub fn invocation(table: &Table, request: &Request<'_>, exchange: &Exchange) -> Option<Invocation> {
    let cgi = table.location(exchange.location).settings.cgi.as_deref()?;
    let file = &exchange.file;
    let interpreter = cgi.interpreter_of(file);
    let program = interpreter.map_or(file, |interpreter| &interpreter.program).clone();
    let mut args = vec![program.clone()];
    if let Some(interpreter) = interpreter {
        args.extend_from_slice(&interpreter.args);
        // An absolute path: it cannot be taken for an option.
        args.push(file.clone());
    }
    let mut directory = Vec::new();
    if let Some(template) = &cgi.working_dir {
        expand(template, table, request, exchange, None, &mut directory);
    }
    if directory.is_empty() {
        let end = file.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        directory.extend_from_slice(if end == 0 { b"/" } else { &file[..end] });
    }
    Some(Invocation { program, args, directory, is_interpreted: interpreter.is_some() })
}
