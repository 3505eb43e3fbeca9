//! Users and groups as the machine knows them, wherever it keeps them (files, LDAP, …), and becoming one.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{gid_t, uid_t};

/// What the machine's answer about one user or group may take.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const ANSWER_BYTES_FIRST: usize = 4 << 10;
/// A user in more groups than this is not used for servers.
const GROUPS_MAX: usize = 1 << 16;

/// A user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// The user's number.
    pub uid: u32,
    /// The number of the user's own group.
    pub gid: u32,
}

/// The user of this name; `None` where there is none.
pub fn account(name: &str) -> io::Result<Option<Account>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut found = MaybeUninit::<libc::passwd>::uninit();
    let mut result = ptr::null_mut();
    with_room(|room, bytes| {
        // SAFETY: the name ends with a null, and `room` has so many bytes; the answer and what it points to
        // are written there.
        unsafe { libc::getpwnam_r(name.as_ptr(), found.as_mut_ptr(), room, bytes, &raw mut result) }
    })?;
    if result.is_null() {
        return Ok(None);
    }
    // SAFETY: an answer was found, and so it was written. Its strings are not looked at: they are gone.
    let found = unsafe { found.assume_init_ref() };
    Ok(Some(Account { uid: found.pw_uid, gid: found.pw_gid }))
}

/// The number of the group of this name; `None` where there is none.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut found = MaybeUninit::<libc::group>::uninit();
    let mut result = ptr::null_mut();
    with_room(|room, bytes| {
        // SAFETY: as above.
        unsafe { libc::getgrnam_r(name.as_ptr(), found.as_mut_ptr(), room, bytes, &raw mut result) }
    })?;
    // SAFETY: as above.
    Ok((!result.is_null()).then(|| unsafe { found.assume_init_ref() }.gr_gid))
}

/// All groups of a user, `own` among them.
pub fn groups_of(name: &str, own: u32) -> io::Result<Vec<u32>> {
    let name = CString::new(name)?;
    let mut room = 64;
    while room <= GROUPS_MAX {
        let mut groups: Vec<gid_t> = vec![0; room];
        let mut count = room as libc::c_int;
        // SAFETY: the name ends with a null; there is room for so many groups.
        let found =
            unsafe { libc::getgrouplist(name.as_ptr(), own, groups.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if found >= 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        room = count.max(room * 2);
    }
    Err(io::Error::other("in too many groups"))
}

/// Changes to this user, in every thread of the process, and verifies it: it is an error if an id of the old
/// user is left. Capabilities are not changed here.
pub fn become_account(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let checked = |result: libc::c_int| {
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: calls that change our ids, and read nothing but the list of groups, whose length is passed. The
    // C library does each of them in every thread.
    unsafe {
        checked(libc::setgroups(groups.len(), groups.as_ptr()))?;
        checked(libc::setresgid(gid, gid, gid))?;
        checked(libc::setresuid(uid, uid, uid))?;
    }
    let mut uids: [uid_t; 3] = [0; 3];
    let mut gids: [gid_t; 3] = [0; 3];
    // SAFETY: each call writes three numbers.
    unsafe {
        let [real, effective, saved] = &mut uids;
        checked(libc::getresuid(real, effective, saved))?;
        let [real, effective, saved] = &mut gids;
        checked(libc::getresgid(real, effective, saved))?;
    }
    if uids == [uid; 3] && gids == [gid; 3] {
        Ok(())
    } else {
        Err(io::Error::other("the kernel has not done what it said"))
    }
}

/// Calls with a buffer, and again with a larger one while it is too small.
fn with_room(mut call: impl FnMut(*mut libc::c_char, usize) -> libc::c_int) -> io::Result<()> {
    let mut bytes = ANSWER_BYTES_FIRST;
    loop {
        let mut room = vec![0_u8; bytes];
        match call(room.as_mut_ptr().cast(), bytes) {
            libc::ERANGE if bytes < ANSWER_BYTES_MAX => bytes *= 2,
            // "No such user" is reported in several ways.
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(()),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name() {
        assert_eq!(account("root").expect("asked"), Some(Account { uid: 0, gid: 0 }));
        assert_eq!(group("root").expect("asked"), Some(0));
        for nobody in ["no-such-user", "", "a\0b"] {
            assert_eq!(account(nobody).expect("asked"), None);
            assert_eq!(group(nobody).expect("asked"), None);
        }
        assert!(groups_of("root", 0).expect("asked").contains(&0));
    }
}
