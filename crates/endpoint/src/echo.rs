//! The service `echo`: the answer is the request. For measuring, and for trying a connection.

use std::rc::Rc;

use sekisho_service::{Request, Response, Service, Work};

/// Answers each request with its own body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Echo {
    /// The number under which servers offer it.
    pub const NUMBER: u32 = 3;
}

impl Service for Echo {
    fn call(self: Rc<Self>, request: Request, response: Response) -> Work {
        // What came in a frame has room in one, unless the client takes less than it sends.
        if let Err(error) = response.body(request.body()) {
            let _ = response.error(sekisho_native::Code::ResourceLimitReached, &error.to_string());
        }
        Work::Done
    }
}
