//! The C interface of `sekisho.h`: the blocking client of `sekisho-endpoint`, with pointers for handles. Nothing is decided
//! here. A pointer that a caller hands in is one that it got from here, or the call is undefined, as in C.
#![allow(clippy::missing_safety_doc, reason = "the header says what each pointer must be")]

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::time::Duration;

use sekisho_endpoint::blocking::{Client, Ticket};
use sekisho_endpoint::{AnyBlockingStream, CallError, Code, Manner, NewRequest, connect_blocking};

const TRANSPORT: u32 = 1000;
const BROKEN: u32 = 1001;
const ENDED: u32 = 1002;
const ARGUMENT: u32 = 1003;
const TEXT_BYTES: usize = 251;

/// A session.
pub struct SekishoClient {
    client: Client<AnyBlockingStream>,
}

/// A request that was made.
pub struct SekishoCall {
    ticket: Ticket,
}

/// Bytes that the caller frees.
#[repr(C)]
pub struct SekishoBytes {
    data: *mut u8,
    length: usize,
}

/// What went wrong.
#[repr(C)]
pub struct SekishoError {
    code: u32,
    is_session_over: u8,
    text: [u8; TEXT_BYTES],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_connect(
    address: *const c_char,
    label: *const c_char,
    error: *mut SekishoError,
) -> *mut SekishoClient {
    // SAFETY: the header wants strings that end with a zero, or null.
    let (address, label) = unsafe { (text(address), text(label)) };
    let Some(address) = address else {
        // SAFETY: null, or the caller's.
        return unsafe { fail(error, ARGUMENT, false, "no address") };
    };
    match connect_blocking(address, label.unwrap_or_default()) {
        Ok(client) => Box::into_raw(Box::new(SekishoClient { client })),
        // SAFETY: null, or the caller's.
        Err(failure) => unsafe { tell(error, &failure) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_close(client: *mut SekishoClient) {
    if !client.is_null() {
        // SAFETY: it came from `sekisho_connect` and is not used again.
        let client = unsafe { Box::from_raw(client) };
        let _ = client.client.shut_down(Manner::Forceful);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_start(
    client: *mut SekishoClient,
    service: *const c_char,
    body: *const u8,
    length: usize,
    timeout_millis: u64,
    has_upload: c_int,
    error: *mut SekishoError,
) -> *mut SekishoCall {
    // SAFETY: as the header says.
    let (client, service, body) = unsafe { (&mut *client, text(service), bytes(body, length)) };
    let Some(service) = service else {
        // SAFETY: null, or the caller's.
        return unsafe { fail(error, ARGUMENT, false, "no name of a service") };
    };
    let mut request = NewRequest::to_name(service).body(body);
    if timeout_millis > 0 {
        request = request.timeout(Duration::from_millis(timeout_millis));
    }
    if has_upload != 0 {
        request = request.with_upload();
    }
    match client.client.start(&request) {
        Ok(ticket) => Box::into_raw(Box::new(SekishoCall { ticket })),
        // SAFETY: null, or the caller's.
        Err(failure) => unsafe { tell(error, &failure) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_send(
    client: *mut SekishoClient,
    call: *mut SekishoCall,
    part: *const u8,
    length: usize,
    error: *mut SekishoError,
) -> c_int {
    // SAFETY: as the header says.
    let (client, call, part) = unsafe { (&mut *client, &*call, bytes(part, length)) };
    match client.client.send(&call.ticket, part) {
        Ok(()) => 1,
        Err(CallError::BodyUnwanted) => 0,
        Err(failure) => {
            // SAFETY: null, or the caller's.
            unsafe { tell::<u8>(error, &failure) };
            -1
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_part_bytes_max(client: *const SekishoClient) -> usize {
    // SAFETY: as the header says.
    unsafe { &*client }.client.part_bytes_max()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_finish(client: *mut SekishoClient, call: *mut SekishoCall) {
    // SAFETY: as the header says.
    let (client, call) = unsafe { (&mut *client, &*call) };
    client.client.finish(&call.ticket);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_next_record(
    client: *mut SekishoClient,
    call: *mut SekishoCall,
    record: *mut SekishoBytes,
    channel: *mut u8,
    error: *mut SekishoError,
) -> c_int {
    // SAFETY: as the header says.
    let (client, call) = unsafe { (&mut *client, &*call) };
    match client.client.next_of_any(&call.ticket) {
        Ok(Some((number, body))) => {
            // SAFETY: the caller's; the channel may be null.
            unsafe {
                if !channel.is_null() {
                    channel.write(number);
                }
                give(record, body);
            }
            1
        }
        Ok(None) => 0,
        Err(failure) => {
            // SAFETY: null, or the caller's.
            unsafe { tell::<u8>(error, &failure) };
            -1
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_answer(
    client: *mut SekishoClient,
    call: *mut SekishoCall,
    answer: *mut SekishoBytes,
    error: *mut SekishoError,
) -> c_int {
    // SAFETY: as the header says; the call is not used again.
    let (client, call) = unsafe { (&mut *client, Box::from_raw(call)) };
    match client.client.answer(call.ticket) {
        Ok(body) => {
            // SAFETY: the caller's, or null.
            unsafe { give(answer, body) };
            0
        }
        Err(failure) => {
            // SAFETY: null, or the caller's.
            unsafe { tell::<u8>(error, &failure) };
            -1
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_cancel(client: *mut SekishoClient, call: *mut SekishoCall) {
    // SAFETY: as the header says.
    let (client, call) = unsafe { (&mut *client, &*call) };
    client.client.cancel(&call.ticket);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_abandon(client: *mut SekishoClient, call: *mut SekishoCall) {
    // SAFETY: as the header says; the call is not used again.
    let (client, call) = unsafe { (&mut *client, Box::from_raw(call)) };
    client.client.abandon(call.ticket);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_request(
    client: *mut SekishoClient,
    service: *const c_char,
    body: *const u8,
    length: usize,
    timeout_millis: u64,
    answer: *mut SekishoBytes,
    error: *mut SekishoError,
) -> c_int {
    // SAFETY: as the header says.
    let call = unsafe { sekisho_start(client, service, body, length, timeout_millis, 0, error) };
    if call.is_null() {
        return -1;
    }
    // SAFETY: the call was just made.
    unsafe { sekisho_answer(client, call, answer, error) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sekisho_free_bytes(bytes: *mut SekishoBytes) {
    if bytes.is_null() {
        return;
    }
    // SAFETY: `give` filled it, or it is empty.
    unsafe {
        let SekishoBytes { data, length } = bytes.read();
        if !data.is_null() {
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(data, length)));
        }
        bytes.write(SekishoBytes { data: ptr::null_mut(), length: 0 });
    }
}

unsafe fn give(to: *mut SekishoBytes, body: Vec<u8>) {
    if to.is_null() {
        return;
    }
    let length = body.len();
    let data = Box::into_raw(body.into_boxed_slice()).cast::<u8>();
    // SAFETY: the caller's.
    unsafe { to.write(SekishoBytes { data, length }) };
}

unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: it ends with a zero.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

unsafe fn bytes<'a>(data: *const u8, length: usize) -> &'a [u8] {
    if data.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: there are so many.
    unsafe { std::slice::from_raw_parts(data, length) }
}

/// Says what went wrong, and returns null.
unsafe fn tell<T>(error: *mut SekishoError, failure: &CallError) -> *mut T {
    let code = match failure {
        CallError::Transport(_) => TRANSPORT,
        CallError::Broken(_) => BROKEN,
        CallError::Ended { code: None, .. } => ENDED,
        other => other.code().map_or(Code::Unknown.number(), Code::number),
    };
    let mut text = failure.to_string();
    if let Some(source) = std::error::Error::source(failure) {
        text = format!("{text}: {source}");
    }
    // SAFETY: null, or the caller's.
    unsafe { fail(error, code, failure.is_session_over(), &text) }
}

unsafe fn fail<T>(error: *mut SekishoError, code: u32, is_over: bool, text: &str) -> *mut T {
    if !error.is_null() {
        let mut fitting = [0; TEXT_BYTES];
        let text = &text[..text.floor_char_boundary(TEXT_BYTES - 1)];
        fitting[..text.len()].copy_from_slice(text.as_bytes());
        // SAFETY: the caller's.
        unsafe {
            error.write(SekishoError { code, is_session_over: u8::from(is_over), text: fitting });
        }
    }
    ptr::null_mut()
}
