//! The change of configuration (O3): the new one is checked completely and everything that it needs is opened
//! before anything changes. A bad one changes nothing and is reported.

use std::sync::Arc;
use std::time::Duration;

use sekisho_config::{Config, Level, Listen, ListenAddress};
use sekisho_lifecycle::Moment;
use sekisho_net::listen::BindError;
use sekisho_net::{Site, Sockets};
use sekisho_parent::pid_file::PidFile;

use crate::pid_file::is_running_server;
use crate::run::{Server, heap_bytes, machine, rules, worker_count};
use crate::sandbox::Fit;
use crate::service_manager::{self, State};
use crate::{Problem, control_plane, parent_link, privilege, sandbox, setup, temp_folders, user};

/// A socket that an earlier reload has closed may be open a moment longer, for the connections in its accept
/// queue: a second and a half if they are silent, and then the workers must have their turn.
const CLOSING_LIMIT: Duration = Duration::from_secs(4);
const CLOSING_PAUSE: Duration = Duration::from_millis(20);

/// How a reload went.
#[derive(Clone, Debug)]
pub(crate) struct ReloadResult {
    /// Whether the new configuration is in use.
    pub(crate) is_good: bool,
    /// Everything there is to say about it, warnings included.
    pub(crate) text: String,
}

impl Server {
    /// Reads the configuration again and uses it, if it is good.
    pub(crate) async fn reload(&mut self) -> ReloadResult {
        if self.drain.manner().is_some() || self.upgrade.is_some() {
            let text = "not reloaded: the server is shutting down\n";
            self.log(Level::Error, text.trim_end());
            return ReloadResult { is_good: false, text: text.to_owned() };
        }
        if parent_link::link().is_some() {
            // The parent reports it to the service manager.
            return self.try_reload().await;
        }
        service_manager::tell(State::Reloading, "reading the configuration");
        let result = self.try_reload().await;
        service_manager::tell(
            State::Ready,
            if result.is_good {
                self.status()
            } else {
                format!("{}; the last reload failed", self.status())
            },
        );
        result
    }

    async fn try_reload(&mut self) -> ReloadResult {
        let heap_before = heap_bytes();
        let outcome = self.plan.read();
        for report in &outcome.reports {
            let level = if report.is_error() { Level::Emerg } else { Level::Warn };
            // The line says its level itself, as nginx's does.
            let line = report.line();
            let line = line.trim_start_matches("[emerg] ").trim_start_matches("[warn] ");
            self.log(level, line);
        }
        let mut text = setup::rendered(&outcome, false);
        let taken = match outcome.config.map(Arc::new) {
            Some(config) => self.take_over(config, heap_before).await,
            None => Err(Problem::new("the configuration has errors")),
        };
        let is_good = taken.is_ok();
        match taken {
            Ok(warnings) => {
                self.log(Level::Notice, "reloaded");
                // The caller gets the warnings that were logged, too.
                text.extend(warnings.iter().map(|warning| format!("warning: {warning}\n")));
            }
            Err(problem) => {
                let message =
                    format!("reload failed, the old configuration stays in use: {problem}");
                self.log(Level::Emerg, &message);
                text.push_str(&message);
                text.push('\n');
            }
        }
        ReloadResult { is_good, text }
    }

    /// Opens what is new, and then, when nothing can fail any more, switches to it. Returns the warnings for
    /// the operator.
    async fn take_over(
        &mut self,
        config: Arc<Config>,
        heap_before: u64,
    ) -> Result<Vec<String>, Problem> {
        let mut notes = privilege::at_reload(&config)?;
        notes.append(&mut temp_folders::prepare(&config, user::identity(&config)?.as_ref()));
        let count = worker_count(&config);
        let mut site =
            Site::new(Arc::clone(&config), &self.logs, &self.zones, &self.groups, machine())
                .map_err(Problem::new)?;
        crate::opening::make_cache_folders(&config)?;
        site.memory_bytes = heap_bytes().saturating_sub(heap_before);
        let rules = rules(&config, Some(&self.rules.0))?;
        site.access = rules.access.clone();
        site.native = rules.for_workers(Some(&self.rules));
        let given = self.given_sockets.take();
        let known =
            given.map(|(new, failed)| self.sockets.with_given(&self.endpoint_sockets, new, failed));
        let known = known.transpose().map_err(Problem::new)?;
        let before = known.as_ref().unwrap_or(&self.sockets);
        let sockets = self.reopen_sockets(before, &config, count).await.map_err(Problem::new)?;
        let before = known.as_ref().unwrap_or(&self.endpoint_sockets);
        let endpoint_sockets = before
            .reopen(&control_plane::listens(&config.main.endpoint), count)
            .map_err(|error| {
                sockets.remove_files_but(&self.sockets);
                Problem::new(error)
            })?;
        let pid = config.main.pid.as_deref().filter(|_| parent_link::link().is_none());
        let is_same_pid_file = self.pid_file.as_ref().map(PidFile::path) == pid;
        let wanted_pid_file = pid.filter(|_| !is_same_pid_file);
        let pid_file =
            wanted_pid_file.map(|path| PidFile::write(path, is_running_server).map_err(Problem));
        let pid_file = pid_file.transpose();
        let now = self.clock.now();
        let prepared = pid_file.and_then(|file| {
            let choice = sandbox::choose(&config, self.domain.as_ref(), Fit::Exactly)?;
            let domain = choice.domain.clone();
            let change =
                self.workers.prepare(&[&sockets, &endpoint_sockets], count, domain, now)?;
            Ok((file, choice, change))
        });
        let (pid_file, choice, change) = prepared.inspect_err(|_| {
            sockets.remove_files_but(&self.sockets);
            endpoint_sockets.remove_files_but(&self.endpoint_sockets);
        })?;
        self.sockets.refuse_newcomers_but(&sockets);
        self.endpoint_sockets.remove_files_but(&endpoint_sockets);
        self.tell_files_left(&self.sockets, &sockets);
        self.tell_files_left(&self.endpoint_sockets, &endpoint_sockets);
        self.endpoint_sockets = endpoint_sockets;
        let is_gone = |listen: &&Listen| !sockets.has(&listen.address);
        let gone = self.site.config().listens().filter(is_gone);
        let gone = gone.map(|listen| listen.address.clone()).collect();
        self.closed = Some((self.clock.now(), gone));
        self.sockets = sockets;
        self.rules = (rules, site.native.clone());
        self.site = Arc::new(site);
        if !is_same_pid_file {
            self.pid_file = pid_file;
        }
        let is_warning = |(level, _): &&(Level, String)| *level <= Level::Warn;
        let warnings = notes.iter().chain(&choice.notes).filter(is_warning);
        let warnings = warnings.map(|(_, note)| note.clone()).collect();
        for (level, note) in notes {
            self.log(level, &note);
        }
        self.take_choice(choice);
        self.commit(change);
        self.start_control_plane();
        self.tell_threads();
        self.sweep_leftovers();
        Ok(warnings)
    }

    /// Gives the threads beside the workers the new configuration.
    fn tell_threads(&mut self) {
        if let Err(problem) = self.certificates.take_up(&self.site) {
            self.log(Level::Error, &problem.to_string());
        }
        if let Err(problem) = self.stores.take_up(&self.site) {
            self.log(Level::Error, &problem.to_string());
        }
        self.join_cluster();
    }

    async fn reopen_sockets(
        &self,
        before: &Sockets,
        config: &Config,
        count: usize,
    ) -> Result<Sockets, BindError> {
        let listens: Vec<Listen> = config.listens().cloned().collect();
        loop {
            match before.reopen(&listens, count) {
                Err(failed) if failed.is_in_use() && self.has_just_closed(&failed.address) => {}
                done => return done,
            }
            tokio::time::sleep(CLOSING_PAUSE).await;
        }
    }

    fn has_just_closed(&self, address: &ListenAddress) -> bool {
        let is_fresh = |since: Moment| !(since + CLOSING_LIMIT).is_due(self.clock.now());
        let closed = self.closed.as_ref().filter(|(since, _)| is_fresh(*since));
        closed.is_some_and(|(_, addresses)| addresses.contains(address))
    }
}
