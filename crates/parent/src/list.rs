//! The list of openings: every file, log and folder that a configuration names without variables. It is the whole of
//! what the parent opens; there is no other way to have it open something.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::{Gid, Uid};
use sekisho_config::{
    Access, AccessTarget, CgiStderr, Config, CredentialSource, ExternalKey, LogTarget, Pem,
};
use sekisho_openings::{User, make_folder, open_guarded, open_to_give};

use crate::delivery::WorkerUser;
use crate::wire::Packet;

/// What is to be opened.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Openings {
    /// To be read: certificates, keys, passwords, databases.
    pub(crate) files: BTreeSet<PathBuf>,
    /// To be appended to.
    pub(crate) logs: BTreeSet<PathBuf>,
    /// To be created, for the user of the worker process.
    pub(crate) folders: BTreeSet<PathBuf>,
}

impl Openings {
    /// Those of a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let mut all = Self::default();
        all.logs(config);
        for block in config.blocks() {
            let http = &block.http;
            all.files.extend(http.servers.iter().flat_map(|server| server.tls.files()).cloned());
            all.files.extend(http.databases.iter().cloned());
            all.folders.extend(http.caches.iter().map(|cache| cache.path.clone()));
            all.files.extend(http.acme_store.iter().filter_map(|store| store.key.clone()));
            let zones = http.zones.iter().filter_map(|zone| zone.store.as_ref());
            let urls = zones.map(|store| &store.url).chain(&http.ticket_store);
            let urls = urls.chain(http.acme_store.iter().map(|store| &store.url));
            let authorities = urls.filter_map(|url| url.split_once("?ca="));
            all.files.extend(authorities.map(|(_, file)| PathBuf::from(file)));
            for acme in http.servers.iter().filter_map(|server| server.acme.as_deref()) {
                let issuer = &acme.issuer;
                all.files.extend(issuer.account_key.iter().cloned());
                all.files.extend(issuer.trusted_certificate.iter().cloned());
                if let Some(ExternalKey::File(path)) =
                    issuer.external_account.as_ref().map(|account| &account.key)
                {
                    all.files.insert(path.clone());
                }
                all.folders.extend(issuer.state_path.iter().cloned());
            }
            for storage in &http.storages {
                if let CredentialSource::File(path) = &storage.credentials {
                    all.files.insert(path.clone());
                }
                all.upstream(&storage.forward.tls);
            }
            for settings in http.locations.iter().map(|location| &location.settings) {
                if let Some(pass) = settings.pass.as_deref() {
                    all.upstream(&pass.forward.tls);
                }
                let except = settings.limit_except.as_ref().and_then(|it| it.access.as_ref());
                let rules = settings.access.iter().chain(except);
                all.files.extend(rules.filter_map(|access| password_file(access)));
                all.folders.extend(settings.temp_folders().map(|it| it.path.to_path_buf()));
            }
        }
        let endpoint = &config.main.endpoint;
        all.files.extend(endpoint.tls.iter().flat_map(|tls| tls.files()).cloned());
        let secrets = [&endpoint.token_file, &endpoint.credential_file, &endpoint.password_file];
        all.files.extend(secrets.into_iter().flatten().cloned());
        if let Some(cluster) = &config.main.cluster {
            let secrets = [&cluster.credentials, &cluster.trusted_certificate];
            all.files.extend(secrets.into_iter().flatten().cloned());
        }
        all
    }

    fn upstream(&mut self, tls: &sekisho_config::UpstreamTls) {
        let single = [&tls.trusted, &tls.crl, &tls.password_file];
        self.files.extend(single.into_iter().flatten().cloned());
        let pairs = tls.certificate.iter().chain(&tls.key);
        self.files.extend(pairs.filter_map(Pem::file).cloned());
    }

    fn logs(&mut self, config: &Config) {
        let mut add = |target: &LogTarget| {
            if let LogTarget::File(path) = target
                && !sekisho_openings::is_own_output(path)
            {
                self.logs.insert(path.clone());
            }
        };
        config.main.error_logs.iter().for_each(|log| add(&log.target));
        let locations = config.blocks().flat_map(|block| &block.http.locations);
        for settings in locations.map(|location| &location.settings) {
            settings.error_logs.iter().for_each(|log| add(&log.target));
            for log in settings.access_logs.iter() {
                if let AccessTarget::Fixed(target) = &log.target {
                    add(target);
                }
            }
            if let Some(CgiStderr::To(target)) = settings.cgi.as_ref().map(|cgi| &cgi.stderr) {
                add(target);
            }
        }
    }

    /// Creates the folders and opens the files and logs, for this user. What cannot be opened is in the packets, too:
    /// the worker process reports it.
    pub(crate) fn open(&self, user: Option<&WorkerUser>, packets: &mut Vec<Packet>) {
        let owner = user.map(|user| (user.uid, user.gid));
        for folder in &self.folders {
            // The worker process tries again and reports why it cannot.
            let _ = make_folder(folder, owner);
        }
        let reader = user.map_or(User { uid: 0, groups: Vec::new() }, |user| User {
            uid: user.uid,
            groups: user.groups.clone(),
        });
        for path in &self.files {
            match open_to_give(path, &reader) {
                Ok(file) => packets.push(Packet::of_path("file", path, file.into())),
                Err(error) => packets.extend(refused(path, &error)),
            }
        }
        self.open_logs(user, packets);
    }

    /// Opens the logs.
    pub(crate) fn open_logs(&self, user: Option<&WorkerUser>, packets: &mut Vec<Packet>) {
        for path in &self.logs {
            match open_log(path, user) {
                Ok(file) => packets.push(Packet::of_path("log", path, file.into())),
                Err(error) => packets.extend(refused(path, &error)),
            }
        }
    }
}

/// Opens a log for appending; a new one is given to the user, as nginx does.
fn open_log(path: &Path, user: Option<&WorkerUser>) -> io::Result<std::fs::File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    match open_guarded(flags | OFlags::EXCL, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_guarded(flags, path),
        Err(error) => Err(error),
        Ok(file) => {
            if let Some(user) = user.filter(|user| user.uid != 0) {
                let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
                // The descriptor is enough; the owner is for people and for programs that rotate logs.
                let _ = rustix::fs::fchown(&file, Some(uid), Some(gid));
            }
            Ok(file)
        }
    }
}

/// Why a file is not given, unless it does not exist: the worker process sees that itself.
fn refused(path: &Path, error: &io::Error) -> Option<Packet> {
    let rest = [path.as_os_str().as_bytes(), b"\0", error.to_string().as_bytes()].concat();
    (error.kind() != io::ErrorKind::NotFound).then(|| Packet::new("refused", rest, None))
}

/// The file of `auth_basic_user_file`, where it has no variables.
fn password_file(access: &Access) -> Option<PathBuf> {
    let file = &access.password.as_ref()?.file;
    let path = Path::new(OsStr::from_bytes(file.path.as_literal()?));
    Some(Path::new(OsStr::from_bytes(&file.folder)).join(path))
}

#[cfg(test)]
mod tests {
    use sekisho_config::{Memory, Options, load};

    use super::*;

    /// O8: what the configuration names is on the list, and nothing else.
    #[test]
    fn the_list_is_what_the_configuration_names() {
        let text = "error_log /l/error.log; events {} http { access_log /l/access.log;
            proxy_cache_path /c keys_zone=z:1m;
            server { listen 80; root /r; }
            server { listen 443 ssl; ssl_certificate /s/a.pem; ssl_certificate_key /s/a.key;
              ssl_client_certificate /s/ca.pem; ssl_crl /s/a.crl; ssl_session_ticket_key /s/t;
              root /r; access_log /l/own.log; access_log /l/$host.log; access_log /dev/stdout;
              location /a { auth_basic x; auth_basic_user_file /p/users; }
              location /b { auth_basic x; auth_basic_user_file /p/$host; }
              location /c { proxy_pass https://127.0.0.1; proxy_ssl_trusted_certificate /s/up.pem;
                proxy_ssl_verify on; proxy_ssl_certificate /s/c.pem; proxy_ssl_certificate_key /s/c.key;
                client_body_temp_path /t; } } }";
        let source = Memory::of("/c", text);
        let outcome = load(Path::new("/c"), &Options::new("/"), &source);
        let config = outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.reports));
        let all = Openings::of(&config);
        let shown = |paths: &BTreeSet<PathBuf>| {
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            shown(&all.files),
            "/p/users /s/a.crl /s/a.key /s/a.pem /s/c.key /s/c.pem /s/ca.pem /s/t /s/up.pem"
        );
        assert_eq!(shown(&all.logs), "/l/access.log /l/error.log /l/own.log");
        assert_eq!(shown(&all.folders), "/c /t");
    }
}
