//! `user`: the user that the server changes to when it is started as root; and the ids of other users.

use sekisho_config::{Config, DEFAULT_USER};
use sekisho_sys::Account;

use crate::Problem;

/// The user that the server changes to.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

impl Identity {
    /// Whether that is the present user, whatever our groups are.
    pub(crate) fn has_own_ids(&self) -> bool {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        (uid.as_raw(), gid.as_raw()) == (self.uid, self.gid)
            && (rustix::process::getuid(), rustix::process::getgid()) == (uid, gid)
    }

    /// Whether that is the present user with the same groups.
    pub(crate) fn is_own(&self) -> bool {
        let sorted = |mut groups: Vec<u32>| {
            groups.sort_unstable();
            groups.dedup();
            groups
        };
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups = groups.into_iter().map(rustix::process::Gid::as_raw).collect();
        self.has_own_ids() && sorted(groups) == sorted(self.groups.clone())
    }
}

/// Whether we are root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user that the server changes to with this configuration; `None` if it is not root and keeps its user.
pub(crate) fn identity(config: &Config) -> Result<Option<Identity>, Problem> {
    if !is_root() {
        return Ok(None);
    }
    let named = config.main.user.as_ref();
    let (name, group) =
        named.map_or((DEFAULT_USER, None), |(name, group)| (name, group.as_deref()));
    let account = find(name).map_err(|why| match named {
        Some(_) => Problem::new(why),
        None => Problem::new(format_args!("{why}: name the user of the server with \"user\"")),
    })?;
    let gid = group.map_or(Ok(account.gid), find_group).map_err(Problem::new)?;
    let groups = sekisho_sys::groups_of(name, gid).map_err(|error| {
        Problem::new(format_args!("the groups of user \"{name}\" cannot be found: {error}"))
    })?;
    Ok(Some(Identity { name: name.to_owned(), uid: account.uid, gid, groups }))
}

/// The present user, if the configuration names it.
pub(crate) fn own_name(config: &Config) -> Option<&str> {
    let name = config.main.user.as_ref().map_or(DEFAULT_USER, |(name, _)| name);
    (uid(name) == Some(rustix::process::geteuid().as_raw())).then_some(name)
}

/// Whether a server with this `user` would be root.
pub(crate) fn would_be_root(user: Option<&str>) -> bool {
    is_root() && find(user.unwrap_or(DEFAULT_USER)).is_ok_and(|account| account.uid == 0)
}

/// The user of this name, or why there is none.
pub(crate) fn find(name: &str) -> Result<Account, String> {
    match sekisho_sys::account(name) {
        Ok(Some(account)) => Ok(account),
        Ok(None) => Err(format!("there is no user \"{name}\"")),
        Err(error) => Err(format!("user \"{name}\" cannot be looked up: {error}")),
    }
}

/// The number of the group of this name, or why there is none.
pub(crate) fn find_group(name: &str) -> Result<u32, String> {
    match sekisho_sys::group(name) {
        Ok(Some(gid)) => Ok(gid),
        Ok(None) => Err(format!("there is no group \"{name}\"")),
        Err(error) => Err(format!("group \"{name}\" cannot be looked up: {error}")),
    }
}

/// The number of a user.
pub(crate) fn uid(name: &str) -> Option<u32> {
    find(name).ok().map(|account| account.uid)
}

/// The numbers of a group's members: those that it lists, and those whose own group it is.
pub(crate) fn members(group: &str) -> Option<Vec<u32>> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    members_of(&groups, &users, group)
}

fn members_of(groups: &str, users: &str, group: &str) -> Option<Vec<u32>> {
    let gid = number(groups, group, 2)?;
    let line = groups.lines().find(|line| line.split(':').next() == Some(group))?;
    let listed = line.split(':').nth(3).unwrap_or_default().split(',');
    let mut uids: Vec<u32> = listed.filter_map(|name| number(users, name.trim(), 2)).collect();
    for line in users.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let field = |at: usize| fields.get(at).and_then(|text: &&str| text.parse::<u32>().ok());
        if field(3) == Some(gid) {
            uids.extend(field(2));
        }
    }
    Some(uids)
}

/// The number in a field of the line that begins with this name.
fn number(text: &str, name: &str, field: usize) -> Option<u32> {
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
        assert_eq!(number(text, "www-data", 2), Some(33));
        assert_eq!(number(text, "www-data", 3), Some(34));
        assert_eq!(number(text, "www", 2), None);
    }
}
