//! `user`: from root to someone with fewer rights, once the sockets and logs are open.

use rustix::process::{Gid, Uid};

use crate::Problem;

/// Becomes this user and group, if we are root. Called while there is only one thread: threads that are
/// started later inherit it.
pub(crate) fn become_user(user: &str, group: Option<&str>) -> Result<(), Problem> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (uid, mut gid) = look_up_user(user)
        .ok_or_else(|| Problem::new(format_args!("user \"{user}\" is not in /etc/passwd")))?;
    if let Some(group) = group {
        gid = look_up("/etc/group", group, 2)
            .ok_or_else(|| Problem::new(format_args!("group \"{group}\" is not in /etc/group")))?;
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[gid])
        .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid))
        .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
        .map_err(|error| Problem::new(format_args!("cannot become user \"{user}\": {error}")))
}

/// The number of a user.
pub(crate) fn uid(name: &str) -> Option<u32> {
    look_up("/etc/passwd", name, 2)
}

/// The numbers of a group's members: those that it lists, and those whose own group it is.
pub(crate) fn members(group: &str) -> Option<Vec<u32>> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    members_of(&groups, &users, group)
}

fn members_of(groups: &str, users: &str, group: &str) -> Option<Vec<u32>> {
    let gid = find(groups, group, 2)?;
    let line = groups.lines().find(|line| line.split(':').next() == Some(group))?;
    let listed = line.split(':').nth(3).unwrap_or_default().split(',');
    let mut uids: Vec<u32> = listed.filter_map(|name| find(users, name.trim(), 2)).collect();
    for line in users.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let number = |at: usize| fields.get(at).and_then(|text: &&str| text.parse::<u32>().ok());
        if number(3) == Some(gid) {
            uids.extend(number(2));
        }
    }
    Some(uids)
}

fn look_up_user(name: &str) -> Option<(u32, u32)> {
    Some((look_up("/etc/passwd", name, 2)?, look_up("/etc/passwd", name, 3)?))
}

/// The number in a field of the line that begins with this name.
fn look_up(file: &str, name: &str, field: usize) -> Option<u32> {
    let text = std::fs::read_to_string(file).ok()?;
    find(&text, name, field)
}

fn find(text: &str, name: &str, field: usize) -> Option<u32> {
    let mut lines = text.lines().map(|line| line.split(':'));
    let mut fields = lines.find(|fields| fields.clone().next() == Some(name))?;
    fields.nth(field)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_those_it_lists_and_those_whose_own_it_is() {
        let groups = "adm:x:4:ann,bob\nempty:x:5:\n";
        let users = "ann:x:10:99::/:/\nbob:x:11:99::/:/\neve:x:12:4::/:/\nsam:x:13:99::/:/\n";
        assert_eq!(members_of(groups, users, "adm"), Some(vec![10, 11, 12]));
        assert_eq!(members_of(groups, users, "empty"), Some(vec![]));
        assert_eq!(members_of(groups, users, "none"), None);
    }

    #[test]
    fn numbers_are_found_by_name() {
        let text = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:34:w:/var/www:/usr/sbin/nologin\n";
        assert_eq!(find(text, "www-data", 2), Some(33));
        assert_eq!(find(text, "www-data", 3), Some(34));
        assert_eq!(find(text, "www", 2), None);
    }
}
