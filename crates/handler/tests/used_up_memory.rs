//! What is done where a share of the memory budget is used up (O9). A process of its own: the budget is the process's.
#![forbid(unsafe_code)]

use std::future::poll_fn;
use std::task::Poll;

use sekisho_handler::memory::{self, Class};
use sekisho_handler::request_body::{Gathered, RequestBody};

const MEMORY: usize = 16 << 10;

async fn gather(body: &[u8]) -> Gathered {
    let mut gathering = RequestBody::new(MEMORY, Some(body.len() as u64));
    for piece in body.chunks(1000) {
        let mut rest = piece;
        poll_fn(|cx| {
            let taken = gathering.take(cx, rest).expect("there is a disk");
            rest = &rest[taken..];
            if rest.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    gathering.end();
    poll_fn(|cx| gathering.poll_gathered(cx)).await.expect("gathered")
}

/// O9: a body goes to its file, in memory it has nothing; with memory it stays there and is counted.
#[tokio::test]
async fn a_request_body_goes_to_its_file_where_its_share_is_used_up() {
    let budget = memory::budget(Class::RequestBodies);
    let body: Vec<u8> = (0..15_000_u32).map(|at| (at * 31 % 251) as u8).collect();
    let others = budget.take(budget.limit() - 4096).expect("nobody else is here");
    let Gathered::File(file) = gather(&body).await else { panic!("it is in memory") };
    assert!(file.read_at(0, 20_000).expect("readable") == body);
    assert_eq!(budget.taken(), others.bytes(), "its memory is given back");
    drop(others);
    let Gathered::Memory(bytes, share) = gather(&body).await else { panic!("it is in a file") };
    assert!(bytes == body);
    assert_eq!((budget.taken(), share.is_some()), (body.len(), true));
    drop(share);
    assert_eq!(budget.taken(), 0);
}
