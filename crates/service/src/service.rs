//! A service, what is left to do after a call, and services by number and by name.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use sekisho_lifecycle::Cancel;
use sekisho_native::Code;

use crate::request::Request;
use crate::response::Response;

/// Answers requests. A service lives on one thread; what would hold that thread up is [`Work::Blocking`], or done
/// elsewhere and awaited here.
pub trait Service {
    /// Takes a request. The answer is given through `response`, now, by the work that is returned, or by
    /// another holder of the response; exactly one is given in any case.
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work;

    /// Whether it takes the body of a request while that comes. If not, it is called when all of it is there.
    fn takes_stream(&self) -> bool {
        false
    }

    /// What its bodies and records look like, for people and programs that call it: the text of a `.proto` file, as a
    /// rule.
    fn schema(&self) -> Option<&str> {
        None
    }
}

/// What is left to do after a call.
pub enum Work {
    /// Nothing.
    Done,
    /// This: it is polled with its session or connection.
    Later(Pin<Box<dyn Future<Output = ()>>>),
    /// This, on a thread of the runtime's pool: it may block or compute, and what it returns is the answer.
    Blocking(Response, BlockingWork),
}

/// Work for a thread of the pool. It looks at the flag from time to time: a raised one wants it to end.
pub type BlockingWork = Box<dyn FnOnce(&Cancel) -> Answer + Send>;

/// An answer: a result, or an error with its text.
pub type Answer = Result<Vec<u8>, (Code, String)>;

impl Work {
    /// Work that takes time.
    pub fn later(work: impl Future<Output = ()> + 'static) -> Self {
        Self::Later(Box::pin(work))
    }

    /// What is left as one future. `spawn` runs a closure on a thread of a pool; it gives nothing where the pool
    /// has ended, and passes panics on.
    pub fn into_future<S, F>(self, spawn: S) -> Option<Pin<Box<dyn Future<Output = ()>>>>
    where
        S: FnOnce(Box<dyn FnOnce() -> Answer + Send>) -> F + 'static,
        F: Future<Output = Option<Answer>> + 'static,
    {
        match self {
            Self::Done => None,
            Self::Later(work) => Some(work),
            Self::Blocking(response, work) => {
                let cancel = response.cancel_flag();
                let answer = spawn(Box::new(move || work(&cancel)));
                Some(Box::pin(async move {
                    if let Some(answer) = answer.await {
                        response.give(answer);
                    }
                }))
            }
        }
    }

    /// Work that blocks or computes for more than a fraction of a millisecond.
    pub fn blocking(
        response: Response,
        work: impl FnOnce(&Cancel) -> Answer + Send + 'static,
    ) -> Self {
        Self::Blocking(response, Box::new(work))
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Done => "Done",
            Self::Later(_) => "Later",
            Self::Blocking(..) => "Blocking",
        })
    }
}

/// A service made of an async closure.
pub fn service_fn<F, W>(serve: F) -> Rc<dyn Service>
where
    F: Fn(Request, Response) -> W + 'static,
    W: Future<Output = ()> + 'static,
{
    Rc::new(Closure { serve, takes_stream: false })
}

/// The same for a service that takes bodies while they come ([`Request::take_stream`]).
pub fn stream_service_fn<F, W>(serve: F) -> Rc<dyn Service>
where
    F: Fn(Request, Response) -> W + 'static,
    W: Future<Output = ()> + 'static,
{
    Rc::new(Closure { serve, takes_stream: true })
}

struct Closure<F> {
    serve: F,
    takes_stream: bool,
}

impl<F, W> Service for Closure<F>
where
    F: Fn(Request, Response) -> W + 'static,
    W: Future<Output = ()> + 'static,
{
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        Work::later((self.serve)(request, response))
    }

    fn takes_stream(&self) -> bool {
        self.takes_stream
    }
}

/// The services of one thread, by number and by name.
#[derive(Default, Clone)]
pub struct Services {
    by_number: BTreeMap<u32, (Rc<str>, Rc<dyn Service>)>,
}

/// Two services cannot have one number or one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DuplicateService {
    /// The number that was to be given.
    pub number: u32,
    /// The name that was to be given.
    pub name: String,
}

impl Services {
    /// Adds a service under a number, which clients use, and a name, for operators and configurations.
    pub fn add(
        &mut self,
        number: u32,
        name: &str,
        service: Rc<dyn Service>,
    ) -> Result<(), DuplicateService> {
        if self.by_number.contains_key(&number) || self.number(name).is_some() {
            return Err(DuplicateService { number, name: name.to_owned() });
        }
        self.by_number.insert(number, (name.into(), service));
        Ok(())
    }

    /// The number of the service with this name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.by_number.iter().find(|(_, (other, _))| **other == *name).map(|(number, _)| *number)
    }

    /// The name of the service with this number.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.by_number.get(&number).map(|(name, _)| &**name)
    }

    /// The service with this number.
    pub fn find(&self, number: u32) -> Option<Rc<dyn Service>> {
        self.by_number.get(&number).map(|(_, service)| Rc::clone(service))
    }

    /// The same, with its name.
    pub fn find_named(&self, number: u32) -> Option<(&str, Rc<dyn Service>)> {
        self.by_number.get(&number).map(|(name, service)| (&**name, Rc::clone(service)))
    }

    /// The numbers and names of all of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        self.by_number.iter().map(|(number, (name, _))| (*number, &**name))
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Display for DuplicateService {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a service with the number {} or the name {} exists", self.number, self.name)
    }
}

impl std::error::Error for DuplicateService {}
